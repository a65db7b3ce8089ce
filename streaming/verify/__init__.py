"""`reput verify`."""
