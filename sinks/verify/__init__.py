"""Finding what differs between a log and what was derived from it; nothing is written."""
