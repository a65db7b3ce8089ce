"""`reput doctor`: what a broker would do with a store at its start, before it is started."""
