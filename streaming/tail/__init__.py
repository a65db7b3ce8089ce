"""`reput tail`: the streaming queries and their micro-batches."""
