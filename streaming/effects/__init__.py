"""The one way from ranges of the log to their effects on queues, index and table."""
