"""The types of arrays that pass between modules, and functions on arrays that many modules use."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Bools: TypeAlias = NDArray[np.bool_]
Bytes: TypeAlias = NDArray[np.uint8]
Int32s: TypeAlias = NDArray[np.int32]
Int64s: TypeAlias = NDArray[np.int64]
# Structured: an element is an entry of a queue.
Entries = np.ndarray[Any, Any]


def leading(flags: Any) -> int:
    """The number of true `flags` before the first false one."""
    return len(flags) if flags.all() else int(np.argmin(flags))
