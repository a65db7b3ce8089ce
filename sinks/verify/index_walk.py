"""A walk key by key along index and log, which names what a comparison of whole ranges found to differ."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from reput.sinks.dispatch.entries import KeyEntries
from reput.sinks.files.store_path import INDEX
from reput.sinks.formats.index_file import time_diffs
from reput.sinks.index.index_reader import Entries, IndexReader
from reput.sinks.verify.findings import Difference, Findings
from reput.sinks.verify.index_keys import same_keys
from reput.sinks.verify.log_limits import LogLimits
from reput.source.arrays import leading
from reput.source.printable import counted

# How far to look for the next key at which entries and keys agree again.
_LOOK_AHEAD = 256
# With so many differences it is another index: the rest is not compared.
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

        `hashes_at` gives the hashes of the keys of the log's record at a physical offset, none without a record there.
        `may_lag` makes keys that are missing at the very end a note.
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
        """Go on with the next keys."""
        done = 0
        while done < len(keys.hashes) and not self._gave_up:
            self._pass_over_missing()
            rest = KeyEntries(keys.hashes[done:], keys.offsets[done:], keys.timestamps[done:])
            found = self._row.entries(self._at, len(rest.hashes) + _LOOK_AHEAD)
            if not len(found):
                self._missing += zip(rest.hashes.tolist(), rest.offsets.tolist(), strict=True)
                return
            count = min(len(found), len(rest.hashes))
            agreeing = leading(same_keys(found[:count], _part(rest, 0, count)))
            self._accept(found[:agreeing], _part(rest, 0, agreeing))
            done += agreeing
            if agreeing < count:
                done += self._step(found[agreeing:], _part(rest, agreeing, len(rest.hashes)))

    def _pass_over_missing(self) -> None:
        """Pass over the keys of records that the log lacks: nobody can judge them."""
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
        """Report keys for which no entry was left, and entries for which no key was left."""
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
        """Check a file's first key: it sets the begin, but its own time counts from what the file inherited."""
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
        """Pass over the next entry, which has the wrong key, over the key, or both; returns how many keys it passed."""
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


def _part(keys: KeyEntries, begin: int, end: int) -> KeyEntries:
    return KeyEntries(keys.hashes[begin:end], keys.offsets[begin:end], keys.timestamps[begin:end])


def _next_like(found: Entries, key_hash: int, offset: int) -> int:
    """The number of entries before the next one with this key; 0 if none is near."""
    near = found[1:_LOOK_AHEAD]
    return _first(np.flatnonzero((near["key_hash"] == key_hash) & (near["physical_offset"] == offset)))


def _next_key(keys: KeyEntries, entry: Entries) -> int:
    """The number of keys before the next one that this entry has; 0 if none is near."""
    near = keys.hashes[1:_LOOK_AHEAD] == entry["key_hash"]
    return _first(np.flatnonzero(near & (keys.offsets[1:_LOOK_AHEAD] == entry["physical_offset"])))


def _first(rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> int:
    return int(rows[0]) + 1 if len(rows) else 0


def _same(found: Entries, entry: int, keys: KeyEntries, key: int) -> bool:
    if entry >= len(found) or key >= len(keys.hashes):
        return False
    return bool(found["key_hash"][entry] == keys.hashes[key] and found["physical_offset"][entry] == keys.offsets[key])


def _describe(key_hash: int, offset: int) -> str:
    return f"hash {key_hash} of the record at {offset}"
