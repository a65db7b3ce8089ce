"""The commands' words: options, help, what is printed."""
