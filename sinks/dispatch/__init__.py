"""What tasks make of records: entries by queue, and keys (``CommitLogDispatcher``)."""
