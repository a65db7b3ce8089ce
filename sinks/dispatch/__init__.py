"""The results of tasks for records: entries by queue, and keys (``CommitLogDispatcher``)."""
