"""`reput convert`: a DLedger store's messages in a new store, whose log is a plain one."""
