"""ConsumeQueue and its kin: writing, reading, looking up (RocketMQ: ``store.queue``)."""
