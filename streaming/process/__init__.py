"""The process of a command: signals, failures, its directories, its JVM."""
