"""Offsets by key from index files (``IndexService#queryOffset``, ``IndexFile#selectPhyOffset``); read only."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from reput.sinks.files.store_path import INDEX, index_file
from reput.sinks.formats.index_file import IndexHeader
from reput.sinks.index.index_reader import OpenIndexFile, index_file_names, open_index_file
from reput.source.errors import SinkError
from reput.source.record.java_string import hash_code

# So many entries that are too old cost a tenth of a second.
_OLDER_MAX = 10_000


def index_key_hash(key: str) -> int:
    """The hash of ``topic#key``, 0 to 2^31 - 1 (``IndexFile#indexKeyHashMethod``)."""
    value = abs(hash_code(key))
    return value if value < 2**31 else 0  # Math.abs(Integer.MIN_VALUE) is negative


@dataclass
class QueryOffsetResult:
    """Commitlog offsets of entries with the key's hash, newest first; an offset that the index has twice comes twice.

    A hash has 32 bits, so any of them may belong to another key. `damages` has a sentence for each contradiction in the
    files that was passed over. `older_left` is how many entries that are too old are still passed over before the
    search ends at the first of them, as a broker's does.
    """

    phy_offsets: list[int] = field(default_factory=list)
    damages: list[str] = field(default_factory=list)
    older_left: int = 0

    def ends_at_older(self) -> bool:
        """Whether the search of a file ends at an entry that is too old; counts the entry."""
        self.older_left -= 1
        if self.older_left == 0:
            self.damages.append(
                f"{_OLDER_MAX} index entries with this hash are older than the times asked for: what the broker "
                "stored later with an earlier time may be missed behind them"
            )
        return self.older_left < 0


@dataclass(frozen=True)
class IndexLookup:
    """The index files below `root`, made with the settings ``maxHashSlotNum`` and ``maxIndexNum``."""

    root: Path
    max_hash_slot_num: int
    max_index_num: int

    def query_offset(
        self, topic: str, key: str, max_num: int, begin: int, end: int, *, times_rise: bool = True
    ) -> QueryOffsetResult:
        """Look a key up in the files from the newest to the oldest, as ``IndexService#queryOffset`` does.

        Parameters
        ----------
        topic, key
            As the producer gave them; a unique key is a key like any other.
        max_num
            How many entries to take at most, including those of other keys with the same hash.
        begin, end
            Times in milliseconds, both inclusive. An entry's time is the store time cut to whole seconds from the
            file's begin, so give a `begin` that is 1000 ms early.
        times_rise
            End a search at the first entry or file that is too old, as a broker does. Otherwise some thousand of them
            are passed over, and entries whose time the file cannot tell are taken, too: after the clock went back
            older entries have later times, and a message from before its file's first one has that one's time.

        Raises
        ------
        SinkError
            There is no index, or a file's size is not that of the settings.
        StoreError, TransientError
            A file cannot be read; see ``read_error``.
        """
        result = QueryOffsetResult(older_left=0 if times_rise else _OLDER_MAX)
        key_hash = index_key_hash(f"{topic}#{key}")
        for name in reversed(self.file_names()):
            path = self.root.joinpath(*index_file(name))
            try:
                with open_index_file(path, self.max_hash_slot_num) as opened:
                    opened.check_size(path, self.max_index_num)
                    header = opened.header()
                    if result.older_left > 0 or _is_time_matched(header, begin, end):
                        file = _IndexFile(opened, path, self.max_index_num)
                        file.select_phy_offset(result, key_hash, max_num, begin, end)
            except FileNotFoundError:  # it has expired since it was listed, as have all older ones
                break
            is_older = header.begin_timestamp < begin and result.older_left <= 0
            if is_older or len(result.phy_offsets) >= max_num:
                break
        return result

    def file_names(self) -> list[str]:
        """The names of the index files, oldest first.

        Raises
        ------
        SinkError
            There is no directory of index files.
        """
        directory = self.root / INDEX
        if not directory.is_dir():
            raise SinkError(
                f"no index at {directory}",
                advice="give the directory that holds index/ (--output), or derive it with 'reput tail'",
                file=directory,
            )
        return index_file_names(self.root)


def _is_time_matched(header: IndexHeader, begin: int, end: int) -> bool:
    """Whether a file may hold times of `[begin, end]` (``IndexFile#isTimeMatched``)."""
    first, last = header.begin_timestamp, header.end_timestamp
    return (begin < first and end > last) or first <= begin <= last or first <= end <= last


@dataclass(frozen=True)
class _IndexFile:
    """One open file of the right size."""

    file: OpenIndexFile
    path: Path
    max_index_num: int

    def select_phy_offset(self, result: QueryOffsetResult, key_hash: int, max_num: int, begin: int, end: int) -> None:
        """Add the offsets of a hash's entries (``IndexFile#selectPhyOffset``).

        An entry's predecessor is older and has a smaller number, so the walk ends: it stops at the first link that does
        not lead to a smaller number. A crash between slot and header leaves an entry that links to itself; the broker
        stops there too, but follows any other such link for ever.
        """
        slot = key_hash % self.file.max_hash_slot_num
        # A broker sets the slot, then the count. Read in the same order, the count is never two behind.
        number = self.file.slot(slot)
        header = self.file.header()
        count = header.next_entry
        if count > self.max_index_num:
            result.damages.append(
                f"{self.path}: the header counts to {count} where maxIndexNum is {self.max_index_num}; "
                "the file is passed over"
            )
            return
        if number < 0 or number > count:
            result.damages.append(
                f"{self.path}: slot {slot} points to entry {number} of {count}; its entries cannot be found"
            )
            return
        # After a crash a slot may point to the entry behind the counted ones; entry maxIndexNum does not exist.
        while 0 < number < self.max_index_num and count > 1 and len(result.phy_offsets) < max_num:
            entry_hash, phy_offset, time_diff, previous = self.file.entries(number, 1)[0].item()
            if time_diff < 0:
                result.damages.append(f"{self.path}: entry {number} has the time difference {time_diff}")
                return
            time = header.begin_timestamp + 1000 * time_diff
            # Of the first entry the broker counts from another file's time; a difference that is negative becomes 0.
            has_no_time = result.older_left > 0 and (time_diff == 0 or number == 1)
            if entry_hash == key_hash and (has_no_time or begin <= time <= end):
                result.phy_offsets.append(phy_offset)
            if previous == number or (time < begin and result.ends_at_older()):
                return
            if previous > number or previous < 0:
                result.damages.append(
                    f"{self.path}: entry {number} links to entry {previous}, which is not an older one; "
                    "the entries behind it cannot be found"
                )
                return
            number = previous
