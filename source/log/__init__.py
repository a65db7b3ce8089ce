"""One whole commitlog: where it ends, its ranges, its records by offset, time and id."""
