"""A sink's progress record: what is stored is loaded again, and nothing else is taken for one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.sink_runner import files_below, no_fsync

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.sink_progress import ProgressFile, RecordFingerprint, SinkProgress
from reput.source.errors import SinkError

PROGRESS = SinkProgress(4096, 8192, RecordFingerprint(8000, 192, 1_700_000_000_000, -5), {"queue_ends": 7})


@pytest.fixture
def record(tmp_path: Path) -> Iterator[ProgressFile]:
    with closing(DurableFiles(tmp_path)) as files:
        yield ProgressFile(files, "index")


@pytest.fixture(scope="module")
def shared_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("progress")


def test_no_record_is_none(record: ProgressFile, tmp_path: Path) -> None:
    """Looking for a record makes no file."""
    assert record.load() is None
    assert files_below(tmp_path) == {}


def test_its_place_and_form(record: ProgressFile, tmp_path: Path) -> None:
    """One JSON file a sink, which a person can read, and nothing beside it."""
    record.store(PROGRESS)
    (path,) = files_below(tmp_path)
    assert path == "reput/progress/index.json"
    assert record.path == tmp_path / path
    assert json.loads(record.path.read_text()) == {"version": 1, **asdict(PROGRESS)}


longs = st.integers(-(2**63), 2**63 - 1)
plain = longs | st.text(max_size=5) | st.none()
states = st.dictionaries(st.text(max_size=5), plain | st.dictionaries(st.text(max_size=5), plain), max_size=3)


@settings(max_examples=60)
@given(start=longs, end=longs, last=st.none() | st.builds(RecordFingerprint, longs, longs, longs, longs), state=states)
def test_round_trip(
    shared_root: Path, start: int, end: int, last: RecordFingerprint | None, state: dict[str, Any]
) -> None:
    """Any progress is loaded as it was stored, whatever record it replaced."""
    with closing(DurableFiles(shared_root)) as files, no_fsync():
        ProgressFile(files, "any").store(SinkProgress(start, end, last, state))
        assert ProgressFile(files, "any").load() == SinkProgress(start, end, last, state)


WHOLE = {"version": 1, **asdict(PROGRESS)}
DAMAGED = {
    "empty": b"",
    "zeros": bytes(300),
    "cut": json.dumps(WHOLE).encode()[:-10],
    "two": json.dumps(WHOLE).encode() * 2,
    "a list": b"[]",
    "a number": b"7",
    "null": b"null",
    "no version": json.dumps(asdict(PROGRESS)).encode(),
    "no last record": json.dumps({k: v for k, v in WHOLE.items() if k != "last_record"}).encode(),
    "no end": json.dumps({k: v for k, v in WHOLE.items() if k != "end_offset"}).encode(),
    "one field more": json.dumps({**WHOLE, "more": 1}).encode(),
    "half a fingerprint": json.dumps({**WHOLE, "last_record": {"offset": 1}}).encode(),
    "a fingerprint of text": json.dumps({**WHOLE, "last_record": "x"}).encode(),
    "an end of text": json.dumps({**WHOLE, "end_offset": "8192"}).encode(),
    "no UTF-8": b'{"version": "\xff"}',
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_record_is_refused(damage: str, record: ProgressFile) -> None:
    """Bytes that are not a record are an error with the path and the way out, and stay as they are."""
    record.store(PROGRESS)
    record.path.write_bytes(DAMAGED[damage])
    with pytest.raises(SinkError) as caught:
        record.load()
    assert str(caught.value).startswith(f"{record.path} is not a progress record of reput (")
    assert str(caught.value).endswith("); remove it to derive the sink from the log again")
    assert (caught.value.file, caught.value.advice) == (
        str(record.path),
        "remove it to derive the sink from the log again",
    )
    assert record.path.read_bytes() == DAMAGED[damage]


@pytest.mark.parametrize("version", [0, "1", None])
def test_what_is_no_version_is_refused(version: object, record: ProgressFile) -> None:
    """It is not guessed at; ``test_format_versions`` has that of a later release."""
    record.store(PROGRESS)
    record.path.write_text(json.dumps({**WHOLE, "version": version}))
    with pytest.raises(SinkError, match=rf"{record.path} is not a progress record of reput .*its version is "):
        record.load()
