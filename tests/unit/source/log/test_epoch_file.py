"""The epochs of a replica: their file as ``CheckpointFile`` reads it, their ends, and where two logs are the same."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from reput.source.errors import StoreError
from reput.source.log.epoch_file import Epoch, consistent_point, ended, load_epochs


def epoch_text(*entries: tuple[int, int], crc: int | None = None) -> str:
    lines = "".join(f"{epoch}-{start}\n" for epoch, start in entries)
    return f"{len(entries)}\n{zlib.crc32(lines.encode()) & 0x7FFFFFFF if crc is None else crc}\n{lines}"


def test_the_example_of_the_source() -> None:
    """``CheckpointFile`` shows this file in its comment."""
    assert epoch_text((7, 7000), (8, 8000)) == "2\n773307083\n7-7000\n8-8000\n"


def test_a_file(tmp_path: Path) -> None:
    (tmp_path / "epochFileCheckpoint").write_text(epoch_text((7, 7000), (8, 8000)))
    assert load_epochs(tmp_path) == [Epoch(7, 7000, 8000), Epoch(8, 8000)]
    assert load_epochs(tmp_path / "none") == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "2\n773307083\n7-7000\n",
        "2\n773307083\n7-7000\n8-8001\n",
        "0\n0\n",
        "1\n5\n",
        "2\n773307083\n7-7000\n8-8000-9\n",
    ],
)
def test_a_backup(text: str, tmp_path: Path) -> None:
    """It is read where the file is missing, empty or damaged; two damaged ones are an error."""
    (tmp_path / "epochFileCheckpoint.bak").write_text(epoch_text((7, 7000)))
    assert load_epochs(tmp_path) == [Epoch(7, 7000)]
    (tmp_path / "epochFileCheckpoint").write_text(text)
    assert load_epochs(tmp_path) == [Epoch(7, 7000)]
    (tmp_path / "epochFileCheckpoint.bak").write_text("broken")
    with pytest.raises(StoreError, match="holds no epochs"):
        load_epochs(tmp_path)


def test_a_checksum_of_zero_is_not_compared(tmp_path: Path) -> None:
    (tmp_path / "epochFileCheckpoint").write_text(epoch_text((3, 30), crc=0))
    assert load_epochs(tmp_path) == [Epoch(3, 30)]


@pytest.mark.parametrize(
    ("here", "there", "expected"),
    [
        # ``EpochFileCacheTest#testFindConsistentPointSample1`` to 3: the ends of both logs, and their epochs.
        (([(1, 100), (2, 200), (3, 500)], 700), ([(1, 100), (2, 200), (3, 500)], 600), 600),
        (([(1, 100), (2, 200)], 300), ([(1, 100), (2, 200), (3, 400)], 700), 300),
        (([(1, 100), (2, 200)], 500), ([(1, 100), (2, 200), (3, 400)], 700), 400),
        (([(1, 100), (2, 250)], 500), ([(1, 100), (2, 200)], 700), 200),
        (([(1, 100)], 500), ([(2, 200)], 700), None),
        (([], 500), ([(2, 200)], 700), None),
        # The log was cut to before the last epoch's start: it keeps its end.
        (([(1, 0), (2, 200)], 150), ([(1, 0), (2, 200)], 700), 700),
    ],
)
def test_the_consistent_point(
    here: tuple[list[tuple[int, int]], int], there: tuple[list[tuple[int, int]], int], expected: int | None
) -> None:
    mine, other = (ended([Epoch(*entry) for entry in entries], end) for entries, end in (here, there))
    point = consistent_point(mine, other)
    assert (None if point is None else point[1]) == expected
    back = consistent_point(other, mine)
    assert (None if back is None else back[1]) == expected
