"""The Delta tables: their files, their commits, and what others did to them."""
