"""One whole commitlog: where it ends, its ranges, its records by place, time and id."""
