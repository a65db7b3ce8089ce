"""Writing: ConsumeQueue, IndexFile, the store checkpoint and the message table."""
