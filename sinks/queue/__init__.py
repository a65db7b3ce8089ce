"""ConsumeQueue and its kin: written, read and looked up (RocketMQ: ``store.queue``)."""
