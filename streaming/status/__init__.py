"""The state of a run: on a terminal, in its log, as metrics, on a page and in a file."""
