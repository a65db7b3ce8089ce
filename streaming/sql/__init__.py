"""`reput sql`: what a statement may be, its run, its rows."""
