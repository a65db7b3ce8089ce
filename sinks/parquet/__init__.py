"""Parquet files as tasks write them: rows that are collected column by column become pages directly."""
