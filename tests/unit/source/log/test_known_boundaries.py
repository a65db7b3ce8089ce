"""Places remembered from earlier walks shorten a walk and never change where it ends."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.logs import end_of, load_log, varied_messages

from reput.source.log import range_reader
from reput.source.log.mapped_file_queue import MappedFile
from reput.source.log.range_reader import Boundaries, DecodeOptions, align_down, limit, split
from reput.source.log.reput_end_offset import ReputEndFinder
from reput.source.log.segment_scan import Window

SIZE = 4096


def test_before_is_the_last_one_up_to_an_offset() -> None:
    """Places may be noted in any order and more than once; the start is one of them."""
    known = Boundaries()
    assert known.before(5, 100) == 5
    for begin in (40, 10, 30, 30, 20):
        known.note(begin)
    expected = {9: 5, 10: 10, 19: 10, 20: 20, 35: 30, 40: 40, 1000: 40}
    assert expected == {offset: known.before(5, offset) for offset in expected}
    assert [known.before(35, 39), known.before(35, 40), known.before(50, 60)] == [35, 40, 50]


def test_offsets_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit the old offsets are dropped, and the new one is kept."""
    monkeypatch.setattr(range_reader, "_BOUNDARIES_MAX", 4)
    known = Boundaries()
    for offset in range(10, 60, 10):
        known.note(offset)
    assert [known.before(0, 49), known.before(0, 59)] == [0, 50]
    known.note(20)
    assert [known.before(0, 49), known.before(0, 59)] == [20, 50]


@pytest.mark.parametrize("seed", range(3))
def test_align_down_is_the_same_in_any_order(seed: int, tmp_path: Path) -> None:
    """The finds of other walks do not change an answer, over segments and blanks."""
    queue, records = load_log(tmp_path, varied_messages(80, seed=seed), SIZE)
    offsets = random.Random(seed).choices(range(end_of(records) + 100), k=300)
    known = Boundaries()
    ReputEndFinder(check_crc=True, tail_guard_ms=0, on_boundary=known.note).find(queue, 0)
    for offset in offsets:
        file = queue.find(offset)
        assert file is not None
        plain = align_down(file, file.file_from_offset, offset)
        assert plain == align_down(file, file.file_from_offset, offset, known=known), offset


def test_split_and_limit_are_the_same(tmp_path: Path) -> None:
    """Ranges and batches do not depend on what was read before."""
    queue, records = load_log(tmp_path, varied_messages(80), SIZE)
    end, known = end_of(records), Boundaries()
    for bytes_max in (3000, 100, 700, 100):
        assert list(split(queue, 0, end, bytes_max)) == list(split(queue, 0, end, bytes_max, known=known))
        assert limit(queue, 0, end, bytes_max, None) == limit(queue, 0, end, bytes_max, None, known=known)


def test_the_finder_notes_offsets_where_records_begin(tmp_path: Path) -> None:
    """Each offset that the end's finder passes on is a record's."""
    queue, records = load_log(tmp_path, varied_messages(30), 1 << 16)
    offsets: list[int] = []
    ReputEndFinder(check_crc=True, tail_guard_ms=0, on_boundary=offsets.append).find(queue, 0)
    assert offsets
    assert set(offsets) <= {record.physical_offset for record in records}


def test_a_known_offset_saves_the_walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second look for the same offset begins where the first one ended."""
    queue, records = load_log(tmp_path, varied_messages(30), 1 << 16)
    walks, scan_windows = [], range_reader.scan_windows

    def noted(file: MappedFile, start: int, end: int, options: DecodeOptions) -> Iterator[Window]:
        walks.append(start)
        return scan_windows(file, start, end, options)

    monkeypatch.setattr(range_reader, "scan_windows", noted)
    known, begin = Boundaries(), records[20].physical_offset
    for offset in (begin + 5, begin + 6, begin):
        assert begin == align_down(queue.files[0], 0, offset, known=known)
    assert [0, begin, begin] == walks
