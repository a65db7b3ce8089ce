"""`reput sql`: what a statement may contain, how it runs, and how its rows are shown."""
