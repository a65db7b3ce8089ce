"""`reput table`: a table's description and history, its upkeep by hand, and rows that are to be forgotten."""
