"""Arrow rows of messages."""
