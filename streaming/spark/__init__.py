"""Spark's session, its start, its jobs and its workers."""
