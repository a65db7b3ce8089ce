"""Compiled code: from bytes to columns of numbers."""
