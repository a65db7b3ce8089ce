"""The keys of a range's records compared with the index files, and the results of all ranges joined.

Keys are put in log order, so a range's keys lie together; they are found by the range's physical offsets.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from reput.sinks.dispatch.entries import KeyEntries
from reput.sinks.formats.index_file import TIME_DIFF_MAX
from reput.sinks.index.index_reader import Entries, IndexReader
from reput.sinks.verify.findings import Findings
from reput.sinks.verify.log_limits import LogLimits
from reput.source.arrays import Int64s, leading


@dataclass(frozen=True)
class ComparedKeys:
    """What a range found: if it `agrees`, its keys are exactly those numbered `[first, end)`, in order.

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
    """Compare as `compare_index`, with keys of tags from some record on; `plain` are the keys without those of tags.

    None where no key of a tag is missing before the first one that the index has.
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


def same_keys(found: Entries, keys: KeyEntries) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which entries have the hash and the physical offset of the key with the same number, bool[n]."""
    same: np.ndarray[tuple[int], np.dtype[np.bool_]] = (found["key_hash"] == keys.hashes) & (
        found["physical_offset"] == keys.offsets
    )
    return same


def same_times(
    row: IndexReader, found: Entries, keys: KeyEntries, first: int
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which entries, from key `first` on, have the time difference of their record's store time, bool[n]."""
    same: np.ndarray[tuple[int], np.dtype[np.bool_]] = found["time_diff"] == expected_diffs(row, found, keys, first)
    return same


def expected_diffs(row: IndexReader, found: Entries, keys: KeyEntries, first: int) -> Int64s:
    """The expected time differences, in seconds, of entries from key `first` on."""
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

    Keys before the first are counted as ``expired_keys``, those behind the last as ``keys_behind_the_end``, and those
    between two ranges that lead to what the log lacks as ``keys_not_judged``.
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
