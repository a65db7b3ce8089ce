"""Backups of a store: its log and its configuration, as they were at each of many moments."""
