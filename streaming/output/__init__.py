"""The parts of commands that concern one output."""
