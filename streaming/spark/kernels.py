"""Compiled kernels, kept on disk where this user may write."""

from __future__ import annotations

import os
from pathlib import Path

from reput.streaming.spark.class_archive import user_cache


def choose_cache() -> None:
    """Have this process and those that it starts keep compiled kernels where they can be written."""
    package = Path(__file__).resolve().parents[2]
    if "NUMBA_CACHE_DIR" not in os.environ and not os.access(package, os.W_OK):
        os.environ["NUMBA_CACHE_DIR"] = str(user_cache() / "numba")


def prepare_kernels(*, with_rows: bool = True) -> None:
    """Compile the kernels once, after `choose_cache`, before workers would each do it themselves.

    `with_rows` as in ``compile_kernels``.
    """
    choose_cache()
    from reput.streaming.spark.warm_up import compile_kernels  # noqa: PLC0415  numba reads its cache directory at import

    compile_kernels(with_rows=with_rows)
