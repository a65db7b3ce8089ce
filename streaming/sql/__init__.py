"""`reput sql`: what a statement may contain, how either engine runs it, and how its rows are shown."""
