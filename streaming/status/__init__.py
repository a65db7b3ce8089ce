"""What a run says of itself: on a terminal, in its log, as metrics, on a page and in a file."""
