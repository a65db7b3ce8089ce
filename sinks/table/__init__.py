"""The Delta tables: their files, their commits, and what others do to them."""
