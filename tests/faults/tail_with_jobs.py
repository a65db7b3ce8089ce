"""`reput` that has a job of Spark's read each micro-batch, however small it is."""

from __future__ import annotations

from reput.streaming.cli.main import main
from reput.streaming.tail import batch_reading

if __name__ == "__main__":
    batch_reading.SMALL_BYTES = batch_reading.SMALL_FIRST_BYTES = 0
    main()
