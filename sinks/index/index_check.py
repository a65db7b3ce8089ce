"""The index compared with the log: each file by itself, the keys of ranges, a walk key by key; and how far it agrees.

`reput verify` reports what differs. `reput recover` keeps what agrees (`IndexCheck`). A broker that starts with an
`abort` file deletes every index file newer than its checkpoint, and derives again only the keys of records that its
recovery happens to pass (``IndexService#load``): keys are lost, and a record's keys may be there twice. Here each key
whose record the log still has is compared with the key that the record makes. Keys that agree stay. The index is cut
back to before all keys of the first record that disagrees, and derived again from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from reput.sinks.dispatch.entries import KeyEntries
from reput.sinks.files.store_path import INDEX
from reput.sinks.findings import Difference, Findings
from reput.sinks.formats.index_file import (
    HEADER_SIZE,
    SLOT_SIZE,
    TIME_DIFF_MAX,
    IndexHeader,
    chain_entries,
    index_file_size,
    time_diffs,
)
from reput.sinks.index.index_reader import Entries, IndexReader
from reput.sinks.queue.queue_check import LogLimits
from reput.source.arrays import Bools, Int32s, Int64s, leading
from reput.source.errors import SinkError
from reput.source.printable import counted

# ----------------------------------------------------------------------------------------------------------------------
# One index file by itself: its header's counts, its slots and chains, and the parts that should be empty.
#
# A walk from a key's slot finds the key if each slot points to its newest entry, and each entry to the one before it in
# its slot. Both follow from the entries' hashes, so they are computed again and compared. If they agree, each key's
# chain reaches all its entries and no entry of another slot, and every link leads to a smaller number.

_CHUNK = 1 << 20


@dataclass
class IndexFileCheck:
    """Checks the file at position `file` of the row; memory: 8 bytes per slot, and a million entries."""

    row: IndexReader
    file: int
    findings: Findings
    _end: int = 0  # after the last entry, counted or put since

    @property
    def name(self) -> str:
        """The file's path below the root."""
        return f"{INDEX}/{self.row.names[self.file]}"

    @property
    def header(self) -> IndexHeader:
        """The file's header."""
        return self.row.headers[self.file]

    def run(self) -> None:
        """Check the whole file."""
        size = self.row.path(self.row.names[self.file]).stat().st_size
        wanted = index_file_size(self.row.max_hash_slot_num, self.row.max_index_num)
        if size != wanted:
            text = (
                f"{size} bytes where maxHashSlotNum={self.row.max_hash_slot_num} and "
                f"maxIndexNum={self.row.max_index_num} make {wanted}"
            )
            self._differ("file_size", text, size, wanted, size)
            return
        if not self._check_count():
            return
        slots = np.zeros(self.row.max_hash_slot_num, np.int32)
        self._end = self.header.next_entry
        used = self._check_chains(slots)
        self._check_slots(slots)
        self._check_slot_count(used)
        self._check_physical_offsets()
        self._check_empty()

    def _check_count(self) -> bool:
        count, is_last = self.header.index_count, self.file == len(self.row.names) - 1
        if not 0 <= count <= self.row.max_index_num:
            text = f"the header counts to {count}, entries go from 1 to {self.row.max_index_num - 1}"
            self._differ("index_header", text, 36, None, count)
            return False
        if not is_last and count < self.row.max_index_num:
            text = f"the header counts to {count}, but there is a later file, so this one was full"
            self._differ("index_header", text, 36, self.row.max_index_num, count)
        return True

    def _chunks(self) -> Iterator[tuple[int, Entries]]:
        """The counted entries in chunks, each with the number of its first entry."""
        number, end = 1, self.header.next_entry
        while number < end:
            count = min(_CHUNK, end - number)
            yield number, self.row.entries_of(self.row.names[self.file], number, count)
            number += count

    def _check_chains(self, slots: Entries) -> int:
        used = 0
        for first, entries in self._chunks():
            hashes = entries["key_hash"].astype(np.int32)
            for at in np.flatnonzero(hashes < 0).tolist():
                text = f"entry {first + at}: a negative hash, {hashes[at]}"
                self._differ("index_entry", text, self.row.entry_at(first + at), None, int(hashes[at]), first + at)
            previous = np.empty(len(hashes), np.int32)
            used += chain_entries(slots, hashes, first, previous)
            for at in np.flatnonzero(previous != entries["previous"]).tolist():
                found, number = int(entries["previous"][at]), first + at
                text = f"entry {number}: its chain continues at entry {previous[at]}, the link says {found}"
                self._differ("chain", text, self.row.entry_at(number) + 16, int(previous[at]), found, number)
        return used

    def _check_slots(self, slots: Entries) -> None:
        on_disk = self.row.slots_of(self.row.names[self.file])
        count = self.header.next_entry
        for slot in np.flatnonzero(on_disk != slots).tolist():
            found = int(on_disk[slot])
            if found >= count and self._leads_back(slot, found, int(slots[slot])):
                self._end = max(self._end, found + 1)
                continue
            beyond = f", beyond the {count - 1} entries counted" if found >= count else ""
            text = f"slot {slot} points to entry {found}{beyond}; its newest entry is {slots[slot]}"
            self._differ("slot", text, HEADER_SIZE + SLOT_SIZE * slot, int(slots[slot]), found)
        self.findings.note("entries_not_counted_yet", self._end - count)

    def _leads_back(self, slot: int, number: int, newest: int) -> bool:
        """Whether entries after the counted ones link from `number` to the slot's `newest` counted entry.

        A put writes the entry, then the slot, then the count: such a put is in progress, or its broker died.
        """
        if self.file < len(self.row.names) - 1 or number >= self.row.max_index_num:
            return False
        while number >= self.header.next_entry:
            entry = self.row.entries_of(self.row.names[self.file], number, 1)[0]
            if not entry["physical_offset"] or entry["key_hash"] % self.row.max_hash_slot_num != slot:
                return False
            if not 0 <= entry["previous"] < number:
                return False
            number = int(entry["previous"])
        return number == newest

    def _check_slot_count(self, used: int) -> None:
        found, keys = self.header.hash_slot_count, self.header.next_entry - 1
        if found == used:
            return
        if found == keys:
            self.findings.note("slots_counted_as_until_4.7.0")
            return
        self._differ("index_header", f"hashSlotCount is {found}, {used} slots are in use", 32, used, found)

    def _check_physical_offsets(self) -> None:
        """Check that ``beginPhyOffset`` and ``endPhyOffset`` are those of the first and the last entry."""
        keys = self.header.next_entry - 1
        if not keys:
            self._check_inherited()
            return
        for name, at, number, found in (
            ("beginPhyOffset", 16, 1, self.header.begin_phy_offset),
            ("endPhyOffset", 24, keys, self.header.end_phy_offset),
        ):
            entry = self.row.entries_of(self.row.names[self.file], number, 1)
            expected = int(entry["physical_offset"][0])
            if found != expected:
                text = f"the header's {name} is {found}, entry {number} names {expected}"
                self._differ("index_header", text, at, expected, found)

    def _check_inherited(self) -> None:
        """Check that a file without keys begins and ends where its predecessor ended; the first file has zeros."""
        header = self.header
        pairs = [
            ("beginTimestamp", 0, header.begin_timestamp),
            ("endTimestamp", 8, header.end_timestamp),
            ("beginPhyOffset", 16, header.begin_phy_offset),
            ("endPhyOffset", 24, header.end_phy_offset),
        ]
        if self.file:
            before = self.row.headers[self.file - 1]
            stamp, offset = max(0, before.end_timestamp), max(0, before.end_phy_offset)
        else:
            stamp, offset = 0, 0
            if self.row.may_follow_expired:
                stamp, offset = header.begin_timestamp, header.begin_phy_offset
        for (name, at, found), expected in zip(pairs, (stamp, stamp, offset, offset), strict=True):
            if found != expected:
                text = (
                    f"the header of a file without keys has the {name} {found}, its predecessor ended with {expected}"
                )
                self._differ("index_header", text, at, expected, found)

    def _check_empty(self) -> None:
        """Check that entry 0 is unused, and that only zeros follow the last entry."""
        name = self.row.names[self.file]
        self._check_zeros(self.row.entry_at(0), self.row.entries_of(name, 0, 1).tobytes())
        with self.row.open(name) as file:
            for begin, data in file.filled_behind(self._end):
                self._check_zeros(begin, data)

    def _check_zeros(self, begin: int, data: bytes) -> None:
        if data.strip(b"\0"):
            at = begin + len(data) - len(data.lstrip(b"\0"))
            text = "bytes where no entry is"
            self._differ("bytes_behind_the_end", text, at, 0, data[at - begin])

    def _differ(
        self, kind: str, text: str, at: int | None, expected: int | None, found: int, number: int | None = None
    ) -> None:
        wanted = None if expected is None else str(expected)
        self.findings.differ(Difference(kind, text, self.name, at, number, None, wanted, str(found)))


# ----------------------------------------------------------------------------------------------------------------------
# The keys of a range's records compared with the index files, and the results of all ranges joined.
#
# Keys are put in log order, so a range's keys are consecutive; they are found by the range's physical offsets.


@dataclass(frozen=True)
class ComparedKeys:
    """The result of a range: if it `agrees`, its keys are exactly those numbered `[first, end)`, in order.

    The keys of records before `untagged_until` are without those of their tags, which releases before 5.4.0 do not put.
    """

    first: int
    end: int
    keys: int
    agrees: bool
    untagged_until: int = -1


def compare_index(row: IndexReader, keys: KeyEntries, start: int, end: int) -> ComparedKeys:
    """Compare the keys of `[start, end)` of the log with the entries of records there."""
    first, behind = row.search(start), row.search(end)
    if behind - first != len(keys.hashes):
        return ComparedKeys(first, behind, len(keys.hashes), agrees=False)
    found = row.entries(first, behind - first)
    agrees = bool(same_keys(found, keys).all() and same_times(row, found, keys, first).all())
    return ComparedKeys(first, behind, len(keys.hashes), agrees and _edges_agree(row, keys, first))


def compare_untagged(
    row: IndexReader, tagged: KeyEntries, plain: KeyEntries, start: int, end: int
) -> ComparedKeys | None:
    """Like `compare_index`, if only records from some offset on have keys of tags; `plain` are the keys without these.

    None if no key of a tag is missing before the first one that the index has.
    """
    first, behind = row.search(start), row.search(end)
    found = row.entries(first, behind - first)
    count = min(len(found), len(plain.hashes))
    agreeing = leading(same_keys(found[:count], plain.between(0, count)))
    upgraded = int(found["physical_offset"][agreeing]) if agreeing < len(found) else end
    kept = int(np.searchsorted(plain.offsets, upgraded))
    omitted = int(np.searchsorted(tagged.offsets, upgraded))
    if omitted == kept:
        return None
    keys = plain.between(0, kept).before(tagged.between(omitted, len(tagged.hashes)))
    return replace(compare_index(row, keys, start, end), untagged_until=upgraded)


def same_keys(found: Entries, keys: KeyEntries) -> Bools:
    """Which entries have the hash and the physical offset of the key with the same number, bool[n]."""
    same: Bools = (found["key_hash"] == keys.hashes) & (found["physical_offset"] == keys.offsets)
    return same


def same_times(row: IndexReader, found: Entries, keys: KeyEntries, first: int) -> Bools:
    """Which entries, beginning with key `first`, have the time difference of their record's store time, bool[n]."""
    same: Bools = found["time_diff"] == expected_diffs(row, found, keys, first)
    return same


def expected_diffs(row: IndexReader, found: Entries, keys: KeyEntries, first: int) -> Int64s:
    """The expected time differences, in seconds, of entries beginning with key `first`."""
    bases = row.time_bases(first, len(found))
    diffs = np.where(bases > 0, np.clip((keys.timestamps - bases) // 1000, 0, TIME_DIFF_MAX), 0)
    unknown = bases < 0
    diffs[unknown] = found["time_diff"][unknown]
    return diffs


def _edges_agree(row: IndexReader, keys: KeyEntries, first: int) -> bool:
    """Whether the headers' begin and end times are those of the files' first and last keys, if `keys` has these."""
    for file, header in enumerate(row.headers):
        begin, end = row.starts[file] - first, row.starts[file + 1] - 1 - first
        if begin > end:
            continue
        if 0 <= begin < len(keys.hashes) and header.begin_timestamp != keys.timestamps[begin]:
            return False
        if 0 <= end < len(keys.hashes) and header.end_timestamp != keys.timestamps[end]:
            return False
    return True


def keys_join(row: IndexReader, ranges: Iterable[ComparedKeys], log: LogLimits, findings: Findings) -> bool:
    """Whether all ranges agree, and their keys join without gaps, in log order.

    Keys before the first are counted as ``expired_keys``, those after the last as ``keys_behind_the_end``. Keys between
    two ranges that lead to missing stretches of the log are counted as ``keys_not_judged``.
    """
    first, end, unjudged = None, None, 0
    for compared in ranges:
        if not compared.agrees or (end is not None and compared.first < end):
            return False
        between = row.entries(end, compared.first - end) if end is not None else row.entries(0, 0)
        if not log.lacks(between["physical_offset"].astype(np.int64)).all():
            return False
        first, end = compared.first if first is None else first, compared.end
        unjudged += len(between)
    findings.note("keys_not_judged", unjudged)
    findings.note("expired_keys", first or 0)
    findings.note("keys_behind_the_end", row.keys - (end or 0))
    return True


# ----------------------------------------------------------------------------------------------------------------------
# A walk key by key along index and log, which names each difference after a comparison of ranges has found that there
# are some.

# How far to look for the next key at which entries and keys agree again.
_LOOK_AHEAD = 256
# An index with this many differences belongs to another log: the rest is not compared.
_DIFFERENCES_MAX = 10_000


class IndexWalk:
    """Walks along all keys; give it the keys of the log's records in log order, then `close` it."""

    def __init__(
        self,
        row: IndexReader,
        first: int,
        hashes_at: Callable[[int], frozenset[int]],
        log: LogLimits,
        findings: Findings,
        *,
        may_lag: bool,
    ) -> None:
        """Begin at key `first`.

        `hashes_at` gives the hashes of the keys of the log's record at a physical offset; none without a record there.
        With `may_lag`, keys that are missing at the very end are a note.
        """
        self._row = row
        self._at = first
        self._hashes_at = hashes_at
        self._log = log
        self._findings = findings
        self._may_lag = may_lag
        self._base: int | None = None
        self._last_time: int | None = None
        self._missing: list[tuple[int, int]] = []  # (hash, offset) since the entries ended

    def take(self, keys: KeyEntries) -> None:
        """Compare the next keys, in log order."""
        done = 0
        while done < len(keys.hashes) and not self._gave_up:
            self._pass_over_missing()
            rest = KeyEntries(keys.hashes[done:], keys.offsets[done:], keys.timestamps[done:])
            found = self._row.entries(self._at, len(rest.hashes) + _LOOK_AHEAD)
            if not len(found):
                self._missing += zip(rest.hashes.tolist(), rest.offsets.tolist(), strict=True)
                return
            count = min(len(found), len(rest.hashes))
            agreeing = leading(same_keys(found[:count], rest.between(0, count)))
            self._accept(found[:agreeing], rest.between(0, agreeing))
            done += agreeing
            if agreeing < count:
                done += self._step(found[agreeing:], rest.between(agreeing, len(rest.hashes)))

    def _pass_over_missing(self) -> None:
        """Pass over the keys of records that the log lacks: nothing can judge them."""
        while self._log.missing and len(found := self._row.entries(self._at, _LOOK_AHEAD)):
            count = leading(self._log.lacks(found["physical_offset"].astype(np.int64)))
            self._findings.note("keys_not_judged", count)
            for _ in range(count):
                self._pass()
            if count < len(found):
                break

    @property
    def _gave_up(self) -> bool:
        return self._findings.differences >= _DIFFERENCES_MAX

    def close(self) -> None:
        """Report keys that have no entry, and entries that have no key."""
        if self._gave_up:
            text = f"{_DIFFERENCES_MAX} keys differ: the rest of the index is not compared; derive it again"
            self._findings.differ(Difference("given_up", text, INDEX))
            return
        if self._missing and self._may_lag:
            self._findings.note("not_indexed_yet", len(self._missing))
        elif self._missing:
            key_hash, offset = self._missing[0]
            missing = counted(len(self._missing), "key is", "keys are")
            text = f"{missing} missing at the end, the first of the record at {offset}"
            self._findings.differ(
                Difference("key_missing", text, physical_offset=offset, expected=_describe(key_hash, offset)),
                len(self._missing),
            )
        self._pass_over_missing()
        while self._at < self._row.keys and not self._gave_up:
            entry = self._row.entries(self._at, 1)
            if entry["physical_offset"][0] >= self._log.limit:
                self._findings.note("keys_behind_the_end")
                self._at += 1
            else:
                self._extra(entry)

    def _accept(self, found: Entries, keys: KeyEntries) -> None:
        """Check the times of entries with the right key, and the headers of files that begin or end with them."""
        done = 0
        while done < len(found):
            file = self._row.file_of(self._at)
            start, end = self._row.starts[file], self._row.starts[file + 1]
            some = min(len(found) - done, end - self._at)
            times, diffs = keys.timestamps[done : done + some], found["time_diff"][done : done + some]
            if self._at == start:
                self._check_first(file, diffs, times)
            base = self._base if self._base is not None else self._row.headers[file].begin_timestamp
            first = 1 if self._at == start else 0
            wrong = np.flatnonzero(diffs[first:] != time_diffs(times[first:], base)) + first
            for row in wrong.tolist():
                self._report_time(self._at + row, int(time_diffs(times[row : row + 1], base)[0]), int(diffs[row]))
            self._at, done = self._at + some, done + some
            self._last_time = int(times[-1])
            if self._at == end:
                self._check_time(file, "endTimestamp", 8, self._last_time, self._row.headers[file].end_timestamp)
                self._base = None

    def _check_first(self, file: int, diffs: Entries, times: Entries) -> None:
        """Check a file's first key: it sets the begin, but its own time counts from the end that the file inherited."""
        self._base = int(times[0])
        self._check_time(file, "beginTimestamp", 0, self._base, self._row.headers[file].begin_timestamp)
        inherited = self._last_time if file else None if self._row.may_follow_expired else 0
        if inherited is not None:
            expected = int(time_diffs(times[:1], max(0, inherited))[0])
            if diffs[0] != expected:
                self._report_time(self._at, expected, int(diffs[0]))

    def _check_time(self, file: int, name: str, at: int, expected: int, found: int) -> None:
        if expected != found:
            path = f"{INDEX}/{self._row.names[file]}"
            text = f"the header's {name} is {found}, the key's record was stored at {expected}"
            self._findings.differ(Difference("index_header", text, path, at, expected=str(expected), found=str(found)))

    def _report_time(self, key: int, expected: int, found: int) -> None:
        text = f"a time difference of {expected} s expected, {found} s found"
        file, at, number = self._row.where(key)
        self._findings.differ(
            Difference("index_time", f"entry {number}: {text}", file, at + 12, number, None, str(expected), str(found))
        )

    def _step(self, found: Entries, keys: KeyEntries) -> int:
        """Pass over the next entry, whose key is wrong, over the key, or both; return the number of keys passed."""
        if _same(found, 1, keys, 1):
            self._changed(found, keys)
            return 1
        extra, absent = _next_like(found, keys.hashes[0], keys.offsets[0]), _next_key(keys, found[0])
        if extra and (not absent or extra <= absent):
            for row in range(extra):
                self._extra(found[row : row + 1])
            return 0
        if absent:
            for row in range(absent):
                self._absent(keys, row)
            return absent
        if len(keys.hashes) == 1 and found["physical_offset"][0] > keys.offsets[0]:
            self._absent(keys, 0)
            return 1
        self._changed(found, keys)
        return 1

    def _changed(self, found: Entries, keys: KeyEntries) -> None:
        file, at, number = self._row.where(self._at)
        wanted, there = (int(keys.hashes[0]), int(keys.offsets[0])), (int(found[0][0]), int(found[0][1]))
        text = f"entry {number}: {_describe(*wanted)} expected, {_describe(*there)} found"
        self._findings.differ(
            Difference("index_entry", text, file, at, number, wanted[1], _describe(*wanted), _describe(*there))
        )
        self._pass()

    def _extra(self, entry: Entries) -> None:
        key_hash, offset = int(entry["key_hash"][0]), int(entry["physical_offset"][0])
        file, at, number = self._row.where(self._at)
        if self._log.lacks(entry["physical_offset"].astype(np.int64))[0]:
            self._findings.note("keys_not_judged")
        elif key_hash in self._hashes_at(offset):
            self._findings.note("key_indexed_twice")
        else:
            text = f"entry {number}: the record at {offset} has no key with hash {key_hash}"
            self._findings.differ(
                Difference("foreign_key", text, file, at, number, offset, None, _describe(key_hash, offset))
            )
        self._pass()

    def _pass(self) -> None:
        """Pass over an entry of an uncertain record, which may have set the times that others count from."""
        if self._at in self._row.starts:
            self._base = None
        self._last_time = None
        self._at += 1

    def _absent(self, keys: KeyEntries, row: int) -> None:
        key_hash, offset = int(keys.hashes[row]), int(keys.offsets[row])
        file, at, number = self._row.where(self._at)
        text = f"a key with hash {key_hash} of the record at {offset} is missing before entry {number}"
        self._findings.differ(Difference("key_missing", text, file, at, number, offset, _describe(key_hash, offset)))


def _next_like(found: Entries, key_hash: int, offset: int) -> int:
    """The number of entries before the next one with this key; 0 if none is near."""
    near = found[1:_LOOK_AHEAD]
    return _first(np.flatnonzero((near["key_hash"] == key_hash) & (near["physical_offset"] == offset)))


def _next_key(keys: KeyEntries, entry: Entries) -> int:
    """The number of keys before the next one that this entry has; 0 if none is near."""
    near = keys.hashes[1:_LOOK_AHEAD] == entry["key_hash"]
    return _first(np.flatnonzero(near & (keys.offsets[1:_LOOK_AHEAD] == entry["physical_offset"])))


def _first(rows: Int64s) -> int:
    return int(rows[0]) + 1 if len(rows) else 0


def _same(found: Entries, entry: int, keys: KeyEntries, key: int) -> bool:
    if entry >= len(found) or key >= len(keys.hashes):
        return False
    return bool(found["key_hash"][entry] == keys.hashes[key] and found["physical_offset"][entry] == keys.offsets[key])


def _describe(key_hash: int, offset: int) -> str:
    return f"hash {key_hash} of the record at {offset}"


@dataclass(frozen=True)
class _File:
    """One file on disk: its header, its entries from number 0 on, and whether the rest is as it should be.

    `is_counted` covers the header's two counts, `is_clean` the slots and the bytes after the last entry.
    """

    name: str
    header: IndexHeader
    entries: np.ndarray[Any, Any]
    is_counted: bool
    is_clean: bool

    @property
    def next_entry(self) -> int:
        return len(self.entries)


@dataclass(frozen=True)
class IndexState:
    """The index after everything from the record at `end` on is cut off.

    `state` is that of a progress record, `removed` names the files to remove, `entries_dropped` counts entries of the
    newest file that is kept, and `is_mended` is whether other bytes of that file change.
    """

    end: int
    state: dict[str, Any]
    removed: tuple[str, ...]
    entries_dropped: int
    is_mended: bool


class IndexCheck:
    """Compares the index with batches of the log, in log order, up to the first key that is missing or different."""

    def __init__(self, root: Path, max_hash_slot_num: int, max_index_num: int, start: int) -> None:
        """Open the index below `root`; keys of records before `start`, which the log no longer has, are trusted.

        Raises
        ------
        SinkError
            No file has the size that `max_hash_slot_num` and `max_index_num` make.
        """
        self._reader = IndexReader(root, max_hash_slot_num, max_index_num)
        self._slots = max_hash_slot_num
        self._max_index_num = max_index_num
        self._start = start
        self.names = self._reader.names
        self._check_sizes()
        # The file that is compared, the number of its next entry, its begin, and the end (ms) that it inherited.
        self._at, self._file, self._next = 0, self._load(0), 1
        self._begin_timestamp = self._file.header.begin_timestamp if self._file is not None else 0
        self._previous_end = 0
        self.disagrees_at: int | None = None
        self._skip_expired()

    @property
    def has_no_files(self) -> bool:
        """Whether the output has no index file."""
        return not self.names

    @property
    def trusted_until(self) -> int:
        """The physical offset after the begin of the last trusted record, which is before the start; 0 without any."""
        if self._file is None or self._next == 1:
            return 0
        return int(self._file.entries["physical_offset"][self._next - 1]) + 1

    def compare(self, keys: KeyEntries) -> None:
        """Compare the next batch's keys; set `disagrees_at` to the first record whose key differs or is missing."""
        assert self.disagrees_at is None
        done = 0
        while done < len(keys.hashes):
            if self._file is not None and self._next == self._file.next_entry:
                following = self._next_file()
                if following is not None:
                    self._open(following)
            file = self._file
            until = done if file is None else min(len(keys.hashes), done + file.next_entry - self._next)
            if until == done:
                self.disagrees_at = int(keys.offsets[done])
                return
            some = KeyEntries(keys.hashes[done:until], keys.offsets[done:until], keys.timestamps[done:until])
            agreeing = self._agreeing(some)
            self._next += agreeing
            if agreeing < until - done:
                self.disagrees_at = int(keys.offsets[done + agreeing])
                return
            done = until

    def cut(
        self,
        end: int,
        last_record: int,
        store_timestamp: Callable[[int], int | None],
        known: Mapping[str, Any] | None = None,
    ) -> IndexState:
        """Cut the index to the agreeing keys of records before `end`, or before an earlier offset.

        `last_record` is the physical offset of the last record in `[start, end)`, -1 without one. `store_timestamp`
        gives the store timestamp of a record by its offset, None if the log no longer has the record. `known` is the
        state of the present progress record.
        """
        at, file, count = self._at, self._file, self._next
        while file is not None and (at > 0 if count == 1 else int(file.entries["physical_offset"][count - 1]) >= end):
            if count > 1:
                count -= 1
            else:
                at, file = at - 1, self._load(at - 1)
                count = file.next_entry if file is not None else 1
        if file is None:
            # Every message makes a file, with or without a key.
            return self._nothing_kept(end if last_record < 0 else self._start)
        if count == 1 and not (file.next_entry == 1 and file.is_counted and self._may_be_inherited(file.header)):
            return self._nothing_kept(self._start)
        header = self._header(file, count, store_timestamp)
        stamp_before = self._end_timestamp_before(at, known)
        if count >= self._max_index_num and last_record > header.end_phy_offset:
            # The message after the one that filled the file has made the next file.
            full, at, count, successor = header, at + 1, 1, self._load(at + 1)
            if successor is None:
                return self.cut(max(self._start, full.end_phy_offset), -1, store_timestamp, known)
            file, stamp_before = successor, full.end_timestamp
            stamp, offset = max(0, full.end_timestamp), max(0, full.end_phy_offset)
            # The count in a file without keys: 0 as 4.9.3 leaves it, or 1 as a flush leaves it.
            unused = file.header.index_count if file.header.index_count in (0, 1) else 0
            header = IndexHeader(stamp, stamp, offset, offset, index_count=unused)
        state = {"file": file.name, "header": asdict(header), "index_msg_timestamp": stamp_before}
        removed = tuple(name for name in self.names if name > file.name)
        is_mended = header != file.header or not file.is_clean
        return IndexState(end, state, removed, file.next_entry - count, is_mended)

    def _may_be_inherited(self, header: IndexHeader) -> bool:
        """Whether the oldest file's header, without keys, is that of a new file, perhaps after an expired one."""
        offset, stamp = header.begin_phy_offset, header.begin_timestamp
        same = (header.end_phy_offset, header.end_timestamp) == (offset, stamp)
        return same and (offset == stamp == 0 or (0 < offset < self._start and stamp > 0))

    def _nothing_kept(self, end: int) -> IndexState:
        state = {"file": None, "header": None, "index_msg_timestamp": 0}
        return IndexState(end, state, tuple(self.names), 0, is_mended=False)

    def _agreeing(self, keys: KeyEntries) -> int:
        """The number of leading `keys` that agree with the next entries, of which there are enough."""
        assert self._file is not None
        file, first = self._file, self._next
        found = file.entries[first : first + len(keys.hashes)]
        same = (found["key_hash"] == keys.hashes) & (found["physical_offset"] == keys.offsets)
        diffs = time_diffs(keys.timestamps, self._begin_timestamp)
        if first == 1:
            if self._at > 0:
                diffs[:1] = time_diffs(keys.timestamps[:1], self._previous_end)
            else:
                # The time that the very first file on disk inherited has expired with its predecessor.
                diffs[:1] = found["time_diff"][:1]
            same[0] &= file.header.begin_phy_offset == keys.offsets[0]
            same[0] &= file.header.begin_timestamp == keys.timestamps[0]
        same &= found["time_diff"] == diffs
        if first + len(found) == file.next_entry:
            same[-1] &= file.header.end_phy_offset == keys.offsets[-1]
            same[-1] &= file.header.end_timestamp == keys.timestamps[-1]
        return leading(same)

    def _next_file(self) -> _File | None:
        """The next file if this one is full, or else None."""
        assert self._file is not None
        return self._load(self._at + 1) if self._file.next_entry >= self._max_index_num else None

    def _open(self, following: _File) -> None:
        assert self._file is not None
        self._previous_end = max(0, self._file.header.end_timestamp)
        self._at, self._file, self._next = self._at + 1, following, 1
        self._begin_timestamp = following.header.begin_timestamp

    def _skip_expired(self) -> None:
        while self._file is not None:
            offsets = self._file.entries["physical_offset"].astype(np.int64)  # 0 before the first entry
            expired = (offsets[1:] < self._start) & (np.diff(offsets) >= 0)
            self._next = 1 + leading(expired)
            following = self._next_file() if expired.all() else None
            if following is None or not (following.entries["physical_offset"][1:2] < self._start).any():
                return
            self._open(following)

    def _header(self, file: _File, count: int, store_timestamp: Callable[[int], int | None]) -> IndexHeader:
        if count == file.next_entry and file.is_counted:
            return file.header
        last = file.entries[count - 1]
        offset = int(last["physical_offset"])
        stamp_of_last = store_timestamp(offset)
        if stamp_of_last is None:  # to the second, as the entry has it
            stamp_of_last = file.header.begin_timestamp + 1000 * int(last["time_diff"])
        slots: Int32s = np.zeros(self._slots, np.int32)
        hashes = file.entries["key_hash"][1:count].astype(np.int32)
        used = chain_entries(slots, hashes, 1, np.empty(len(hashes), np.int32))
        return IndexHeader(
            file.header.begin_timestamp, stamp_of_last, file.header.begin_phy_offset, offset, used, index_count=count
        )

    def _end_timestamp_before(self, at: int, known: Mapping[str, Any] | None) -> int:
        """The end (ms) of the previous file: ``indexMsgTimestamp`` of the store checkpoint."""
        if at > 0:
            return self._reader.headers[at - 1].end_timestamp
        # The previous file may have expired; a sink remembers its end.
        return int(known["index_msg_timestamp"]) if known and known["file"] == self.names[0] else 0

    def _check_sizes(self) -> None:
        size = index_file_size(self._slots, self._max_index_num)
        sizes = {name: self._reader.path(name).stat().st_size for name in self.names}
        if any(sizes.values()) and size not in sizes.values():
            name = max(sizes, key=lambda known: sizes[known])
            raise SinkError(
                f"{self._reader.path(name)} has {sizes[name]} bytes where maxHashSlotNum and maxIndexNum make {size}",
                advice="give the broker's settings (--broker-conf), or remove the index to derive it again",
                file=self._reader.path(name),
            )

    def _load(self, at: int) -> _File | None:
        """The file at position `at` of the row; None if there is none, or if it is unusable.

        Every file but the last must be full and have its slots in order; the next start makes the last file's slots
        again anyway.
        """
        if not 0 <= at < len(self.names):
            return None
        with self._reader.open(self.names[at]) as file:
            if file.size != index_file_size(self._slots, self._max_index_num):
                return None
            header = file.header()
            count = min(header.next_entry, self._max_index_num)
            entries, slots_on_disk = file.entries(0, count), file.slots()
            is_clean = not any(data.strip(b"\0") for _, data in file.filled_behind(count))
        slots: Int32s = np.zeros(self._slots, np.int32)
        hashes = entries["key_hash"][1:].astype(np.int32)
        if len(hashes) and int(hashes.min()) < 0:
            return None
        previous = np.empty(len(hashes), np.int32)
        used = chain_entries(slots, hashes, 1, previous)
        if (previous != entries["previous"][1:]).any() or entries[:1].tobytes().strip(b"\0"):
            return None
        # Up to 4.7.0 a broker counted every key, not every slot in use.
        is_counted = header.index_count <= count and header.hash_slot_count in (used, count - 1)
        has_its_slots = bool((slots_on_disk == slots).all())
        if at + 1 < len(self.names) and count >= self._max_index_num and not (has_its_slots and is_counted):
            return None
        is_clean &= has_its_slots
        return _File(self.names[at], header, entries, is_counted, is_clean)
