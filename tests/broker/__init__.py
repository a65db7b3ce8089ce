"""Real RocketMQ processes and real Java clients on loopback, for tests and for hand use."""
