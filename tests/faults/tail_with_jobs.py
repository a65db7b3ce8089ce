"""`reput` that has a job of Spark's read each micro-batch, however small it is."""

from __future__ import annotations

from reput.streaming.cli.main import main
from reput.streaming.tail import micro_batch

if __name__ == "__main__":
    micro_batch.SMALL_BYTES = micro_batch.SMALL_FIRST_BYTES = 0
    main()
