"""`reput ask`: named questions to the table, each a file of SQL, and plans to replay the messages that they find."""
