"""The command line: options, help, and what is printed."""
