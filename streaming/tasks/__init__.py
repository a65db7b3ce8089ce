"""Pieces of work side by side: in processes of this machine, or as Spark's tasks."""
