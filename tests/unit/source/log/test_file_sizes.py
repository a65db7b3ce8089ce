"""Whether settings or files are wrong, for rows of one, two and many files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from reput.source.log.store_layout import (
    OtherSize,
    Row,
    SizedFile,
    log_ends_full,
    other_size,
    row_of,
)
from reput.source.record import message_format as fmt

SET = 6000

#: The rows (sizes by begin), the set size, whether that was stated, and the right size.
CASES: Mapping[str, tuple[Sequence[Mapping[int, int]], int, bool, int | None]] = {
    "no file": ([], SET, True, None),
    "only empty files": ([{0: 0}], SET, False, None),
    "all as set": ([{0: SET, SET: SET}], SET, True, None),
    "one file, cut": ([{0: 4000}], SET, True, None),
    "one file, and nobody stated a size": ([{0: 4000}], SET, False, 4000),
    "one file of an odd size": ([{0: 4001}], SET, False, None),
    "one file, larger: none grows": ([{0: 8000}], SET, True, 8000),
    "one file, whose name does not fit what is set": ([{4000: 4000}], SET, True, 4000),
    "a row of two": ([{0: 4000, 4000: 4000}], SET, True, 4000),
    "a row of two whose last one is cut": ([{0: 4000, 4000: 2000}], SET, True, 4000),
    "two rows of one": ([{0: 4000}, {0: 4000}], SET, True, 4000),
    "two rows of one, each cut otherwise": ([{0: 4000}, {0: 2000}], SET, True, None),
    "two rows of one, one cut, and nobody stated a size": ([{0: 4000}, {0: 2000}], SET, False, 4000),
    "one of two as set": ([{0: SET}, {0: 4000}], SET, False, None),
    "many, and half of what is set": ([{0: 3000, 3000: 3000, 6000: 3000}], SET, True, 3000),
    "many, and twice what is set": ([{0: 12000, 12000: 12000}], SET, True, 12000),
    "many, cut alike where they lie": ([{0: 3000, SET: 3000, 2 * SET: 3000}], SET, True, None),
    "many, one damaged": ([{0: 4000, 4000: 4000, 8000: 120}], SET, True, 4000),
    "many, one already given the set size": ([{0: SET, 4000: 4000, 8000: 4000}], SET, True, 4000),
    "many as set, one damaged": ([{0: SET, SET: SET, 2 * SET: 4000}], SET, True, None),
    "sizes that names contradict": ([{0: 4000, 5000: 4000}], SET, True, None),
}


def row(sizes: Mapping[int, int]) -> list[SizedFile]:
    return [SizedFile(begin, size, "") for begin, size in sizes.items()]


@pytest.mark.parametrize("case", CASES)
def test_what_is_wrong(case: str) -> None:
    """The size that files have where the settings are wrong, none where files are."""
    rows, wanted, is_stated, size = CASES[case]
    found = other_size([row(each) for each in rows], wanted, is_stated=is_stated, unit=20)
    assert (None if found is None else found.size) == size


def test_rows_that_are_full_to_the_last_byte_were_cut() -> None:
    """A record that reaches the file's end would continue after it."""
    rows = [row({0: 4000}), row({0: 4000})]

    def last(each: Row) -> bool:
        return each is rows[-1]

    found = {
        name: other_size(rows, SET, is_stated=True, ends_full=ends_full)
        for name, ends_full in (("all", lambda _: True), ("one", last))
    }
    assert found == {"all": None, "one": OtherSize(4000, 2, 2)}


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (OtherSize(40, 1, 1), "the only segment has 40 bytes"),
        (OtherSize(40, 7, 7), "all 7 segments have 40 bytes"),
        (OtherSize(40, 6, 7), "6 of 7 segments have 40 bytes"),
    ],
)
def test_words(found: OtherSize, words: str) -> None:
    assert found.words("segment") == words


def test_files_of_several_directories_are_one_row(tmp_path: Path) -> None:
    """Other files do not count, nor does a directory that is not there."""
    for name, size in (("a/00000000000000000000", 5), ("b/00000000000000000005", 7), ("b/notes", 9)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(bytes(size))
    found = row_of([tmp_path / name for name in "bac"])
    assert [(file.begin, file.size) for file in found] == [(0, 5), (5, 7)]


@pytest.mark.parametrize(
    ("end", "is_full"),
    [
        (bytes(8), False),
        ((8).to_bytes(4, "big") + fmt.BLANK_MAGIC_CODE.to_bytes(4, "big", signed=True), False),
        (b"a record", True),
    ],
)
def test_where_a_segment_ends(end: bytes, is_full: bool, tmp_path: Path) -> None:
    """Zeros, or the shortest blank of a broker, are the end of a whole segment."""
    (tmp_path / f"{0:020d}").write_bytes(b"x" * 100 + end)
    assert log_ends_full(row_of([tmp_path])) == is_full
