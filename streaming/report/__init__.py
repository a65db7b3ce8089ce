"""`reput report`: one page about a message table, for people who never saw reput."""
