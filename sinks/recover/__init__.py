"""What an output has and the log does not explain: found, cut back, or removed as expired."""
