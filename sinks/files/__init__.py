"""The plumbing of one output: how files are written, named, locked and replaced."""
