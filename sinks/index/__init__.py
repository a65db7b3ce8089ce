"""IndexFile: writing, reading, looking up (RocketMQ: ``store.index``)."""
