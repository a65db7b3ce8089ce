"""Tasks that run side by side: in processes of this machine, or in Spark."""
