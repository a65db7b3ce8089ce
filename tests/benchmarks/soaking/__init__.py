"""The parts of `make soak`; see ``benchmarks.soak``."""
