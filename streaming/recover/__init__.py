"""`reput recover` and `reput expire`."""
