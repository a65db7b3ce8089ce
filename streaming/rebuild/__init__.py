"""`reput rebuild`."""
