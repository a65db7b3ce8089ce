"""`reput dump`: the records of a log, and what stands in a file of queues or of the index, a line each."""
