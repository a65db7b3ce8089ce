"""What commands share about one output."""
