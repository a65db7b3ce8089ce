"""How kernels are compiled: once for each set of types, kept on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function of numbers and arrays that makes no array itself.

    It counts no references, since its caller holds the arrays. Counting took more time than the work: each call of one
    kernel by another costs two atomic operations an array. A kernel that makes an array fails to compile. Other
    threads run Python meanwhile.
    """
    return njit(cache=True, nogil=True, _nrt=False)(function)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile a small function as `kernel` does, as a part of the kernels that call it for every record or word."""
    return njit(cache=True, nogil=True, _nrt=False, forceinline=True)(function)
