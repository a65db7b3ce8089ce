"""Finding, cutting back or expiring what an output has and the log does not explain."""
