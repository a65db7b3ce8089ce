"""Settings: reput's own, a broker's, and which machines work."""
