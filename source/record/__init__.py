"""The specification: RocketMQ's record format in plain Python."""
