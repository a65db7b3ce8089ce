"""The texts in which pyspark passes on an error that a process of Spark raised."""

from __future__ import annotations

import traceback

from reput.source.errors import ReputError, reported_through_spark


def spark_text(error: ReputError) -> str:
    """The text of its traceback, as ``pyspark.util.handle_worker_exception`` makes it."""
    try:
        with reported_through_spark():
            raise error
    except ReputError:
        return traceback.format_exc()
