"""What a Spark worker process needs once, before its first task."""

from __future__ import annotations

import gc
from functools import lru_cache


@lru_cache(maxsize=1)
def settle_worker() -> None:
    """Take what is loaded by now out of the garbage collector's sight; call it when the modules are imported.

    pyspark's daemon collects all garbage after every task, which costs 45 ms with pandas, pyarrow and numba loaded:
    more than most tasks.
    """
    gc.collect()
    gc.freeze()
