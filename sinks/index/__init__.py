"""IndexFile: written, read and looked up (RocketMQ: ``store.index``)."""
