"""`reput backup` and `reput restore`."""
