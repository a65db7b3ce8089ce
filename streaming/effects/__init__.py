"""One way from ranges of the log to what they do to queues, index and table."""
