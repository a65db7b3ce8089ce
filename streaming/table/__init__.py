"""`reput table`: what a table is and what was done to it, its upkeep by hand, and rows that are to be forgotten."""
