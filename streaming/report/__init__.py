"""`reput report`: what a table holds, as one page for people who never saw reput."""
