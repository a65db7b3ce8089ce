"""Running: the streaming queries, recovery at start, configuration and the command line."""
