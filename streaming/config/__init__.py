"""Settings: reput's own, a broker's, and the machines that work."""
