"""What records come to, computed by tasks: entries by queue, and keys (``CommitLogDispatcher``)."""
