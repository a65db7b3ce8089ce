"""Whether settings or files are wrong where a kind of mapped files has another size than the settings say.

A broker makes every file of a kind in the set size, and names each by the byte where it begins. So where all of them
have another size, the settings are another broker's: following them would damage sound files. One file of another size
is damage. Where a kind has few files, their names and what stands at their ends decide.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from reput.source.log.store_layout import is_file_name
from reput.source.record import message_format as fmt


@dataclass(frozen=True, order=True)
class SizedFile:
    """A file of a row: the byte of the row where it begins, its size in bytes, its path."""

    begin: int
    size: int
    path: str


# One row of files, in order.
Row = Sequence[SizedFile]


def row_of(directories: Iterable[Path]) -> list[SizedFile]:
    """Return the mapped files in directories that hold one row; a directory that cannot be listed has none."""
    found = []
    for directory in directories:
        with suppress(OSError), os.scandir(directory) as entries:
            for entry in entries:
                if is_file_name(entry.name) and entry.is_file(follow_symlinks=False):
                    with suppress(FileNotFoundError):  # it expired since it was listed
                        found.append(SizedFile(int(entry.name), entry.stat().st_size, entry.path))
    return sorted(found)


def last_bytes(file: SizedFile, size: int) -> bytes:
    """Return the last `size` bytes of a file; none if it cannot be read."""
    try:
        with Path(file.path).open("rb") as opened:
            return os.pread(opened.fileno(), size, max(0, file.size - size))
    except OSError:
        return b""


def log_ends_full(row: Row) -> bool:
    """Return whether a row of segments is filled up to its last byte, which is no blank that a broker leaves there."""
    last = row[-1]
    end = last_bytes(last, fmt.BLANK_SIZE)
    blank = fmt.BLANK_SIZE.to_bytes(4, "big") + fmt.BLANK_MAGIC_CODE.to_bytes(4, "big", signed=True)
    return bool(end.strip(b"\0")) and end != blank


@dataclass(frozen=True)
class OtherSize:
    """What the files have instead of the set size: `count` of `total` files have `size` bytes."""

    size: int
    count: int
    total: int

    def words(self, what: str) -> str:
        """Which files have which size, for `what` such as ``queue file``."""
        if self.total == 1:
            return f"the only {what} has {self.size} bytes"
        whose = f"all {self.total}" if self.count == self.total else f"{self.count} of {self.total}"
        return f"{whose} {what}s have {self.size} bytes"


def other_size(
    rows: Sequence[Row],
    wanted: int,
    *,
    is_stated: bool,
    unit: int = 1,
    ends_full: Callable[[Row], bool] | None = None,
) -> OtherSize | None:
    """Return the size that the files have if the set size is not theirs; None where files are damaged, or nothing is.

    Parameters
    ----------
    rows
        All rows of one kind, each in order; files without a byte do not count.
    wanted
        The size in bytes that the settings say.
    is_stated
        Whether somebody gave that size. If it is only the default, nobody has said that it is this store's.
    unit
        A file's size is a multiple of this.
    ends_full
        Whether a row is filled up to its last byte, as one is that was cut.
    """
    rows = [row for row in rows if row]
    sizes = Counter(file.size for row in rows for file in row if file.size)
    if not sizes:
        return None
    most, count = max(sizes.items(), key=lambda each: (each[1], each[0]))
    found = OtherSize(most, count, sum(sizes.values()))
    if most == wanted or sizes[wanted] >= count or most % unit:
        return None
    begins = [[file.begin for file in row] for row in rows]
    if any(begin % most for row in begins for begin in row):
        return None
    steps = [after - begin for row in begins for begin, after in pairwise(row)]
    if any(begin % wanted for row in begins for begin in row) or any(step < wanted for step in steps):
        return found  # no broker with the set size names files so
    if sizes[wanted] or (steps and most < wanted):
        return None  # files lie as those of the set size do
    if most > wanted:
        return found  # a file may be cut, and never grows
    if ends_full is not None and all(ends_full(row) for row in rows):
        return None
    return found if count > 1 or not is_stated else None
