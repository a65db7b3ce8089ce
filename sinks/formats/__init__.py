"""The bytes of each kind of file, and nothing else."""
