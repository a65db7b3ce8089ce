"""`reput dump`: the records of a log, or the entries in a file of queues or of the index, a line each."""
