"""`reput query`."""
