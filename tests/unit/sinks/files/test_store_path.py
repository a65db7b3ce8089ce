"""Names from producers: a directory for those that a broker accepts, an error for all others, nothing outside."""

from __future__ import annotations

import string
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.record_writer import Message, write_log
from support.sink_runner import (
    MEMORY,
    SMALL,
    LogBatches,
    SinkRun,
    batch_of,
    files_below,
    no_fsync,
    queue_files,
    record_bounds,
)

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.store_path import consume_queue_directory, index_file
from reput.sinks.queue.consume_queue import ConsumeQueueSink
from reput.source.errors import SinkError

#: The characters of a topic that a producer may send to.
LEGAL = set((string.ascii_letters + string.digits + "%|-_").encode())
HOSTILE = {
    "up": b"../x",
    "far up": b"../../../../tmp/x",
    "a slash": b"a/b",
    "rooted": b"/x",
    "here": b".",
    "parent": b"..",
    "NUL": b"a\0b",
    "a line": b"a\nb",
    "a line's end": b"a\n",
    "no UTF-8": b"\xff\xfe",
    "empty": b"",
    "a retry topic too long": b"%RETRY%" + b"x" * 255,
    "a dead-letter topic too long": b"%DLQ%" + b"x" * 251,
    "256 bytes": b"x" * 256,
    "a tab": b"a\tb",
    "a line separator": "a\u2028b".encode(),
    "a light queue with a slash": b"%LMQ%a/1",
    "a light queue with a line's end": b"%LMQ%a\n",
    "a light queue of 256 bytes": b"%LMQ%" + "灯".encode() * 83 + b"xx",
    "a light queue that is no UTF-8": b"%LMQ%\xff",
}
ACCEPTED = {
    "127 bytes": b"x" * 127,
    "every kind of character": b"Odd%|Name_-1",
    "a retry topic of 255": b"%RETRY%" + b"x" * 248,
    "a dead-letter topic of 255": b"%DLQ%" + b"x" * 250,
    "a light queue of 255 bytes": b"%LMQ%" + "灯".encode() * 83 + b"x",
    "a light queue's points and spaces": b"%LMQ%.. .",
    "a blank before": b" %LMQ%b",
    "a blank behind": b"%LMQ%b ",
    "a blank alone": b" ",
    "hidden": b".x",
    "three points": b"...",
    "255 bytes": b"x" * 255,
    "not ASCII": "é".encode(),
    "looks like an escape": b"\\xff",
}


def is_accepted(topic: bytes) -> bool:
    """Whether the broker's dispatch makes a directory of the name, a single one, and it is printable."""
    try:
        text = topic.decode()
    except UnicodeDecodeError:
        return False
    return text.isprintable() and "/" not in text and text not in {"", ".", ".."} and len(topic) <= 255


PIECES = [b"..", b"/", b".", b"\0", b"a", b"%", b"|", b"~", b"\\", b"\n"]
names = st.one_of(
    st.binary(max_size=140),
    st.text(max_size=40).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.lists(st.sampled_from(PIECES), max_size=8).map(b"".join),
    st.from_regex(rb"\A(%RETRY%|%DLQ%|%LMQ%|)[%|a-zA-Z0-9_\-]{0,260}\Z").map(bytes),
    st.sampled_from([*HOSTILE.values(), *ACCEPTED.values()]),
)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Path]:
    """A folder with the output in it and something beside it, to be looked at after each name."""
    with TemporaryDirectory(dir=MEMORY) as directory:
        folder = Path(directory)
        (folder / "out").mkdir()
        (folder / "x").write_bytes(b"beside")
        yield folder
        assert files_below(folder) == {"x": b"beside"}


def dispatch(folder: Path, topic: bytes, queue_id: int) -> None:
    """Write one entry of this queue, look for its one file, and take it away again."""
    expected: set[str] = set()
    with no_fsync(), closing(DurableFiles(folder / "out")) as files:
        sink = ConsumeQueueSink(files, 20)
        sink.recover(0)
        if is_accepted(topic) and queue_id >= 0:
            sink.write(batch_of(topic, queue_id, [(0, 0)]))
            expected = {f"out/consumequeue/{topic.decode()}/{queue_id}/{0:020d}"}
        else:
            with pytest.raises(SinkError, match="no queue is made of it"):
                sink.write(batch_of(topic, queue_id, [(0, 0)]))
        ConsumeQueueSink(files, 20).recover(0)  # what was written is found again
    found = {path for path in folder.rglob("*") if not path.is_dir()}
    assert {str(path.relative_to(folder)) for path in found} == {
        "x",
        "out/reput/progress/consumequeue.json",
        *expected,
    }
    for path in sorted(folder.joinpath("out").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()


@settings(max_examples=800)
@given(topic=names, queue_id=st.sampled_from([0, 0, 0, 2**31 - 1, -1, -(2**31)]))
def test_any_name_is_accepted_or_refused_and_stays_inside(sandbox: Path, topic: bytes, queue_id: int) -> None:
    """G10: a name makes exactly its own file below the root, or an error and no file at all."""
    dispatch(sandbox, topic, queue_id)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_topic_is_refused(name: str, sandbox: Path) -> None:
    """The error shows the topic as Python spells it, so that it can do no harm in a terminal or a log either."""
    assert not is_accepted(HOSTILE[name])
    with pytest.raises(SinkError) as caught:
        consume_queue_directory(HOSTILE[name], 0)
    assert (
        str(caught.value)
        == f"topic {HOSTILE[name]!r} is not the printable name of one directory: no queue is made of it"
    )
    dispatch(sandbox, HOSTILE[name], 0)


@pytest.mark.parametrize("name", ACCEPTED)
def test_longest_and_oddest_names_are_accepted(name: str, sandbox: Path) -> None:
    """A name that a broker accepts becomes a directory of the same name."""
    assert consume_queue_directory(ACCEPTED[name], 7) == ("consumequeue", ACCEPTED[name].decode(), "7")
    dispatch(sandbox, ACCEPTED[name], 7)


@pytest.mark.parametrize("queue_id", [-1, -(2**31)])
def test_negative_queue_id_is_refused(queue_id: int) -> None:
    """A queue id becomes a directory's name only when it is one."""
    with pytest.raises(SinkError, match=f"queue id {queue_id} of topic 'T' is negative"):
        consume_queue_directory(b"T", queue_id)


@pytest.mark.parametrize("name", ["", "2023111422132000", "202311142213200000", "2023111422132000x", "../1", "٣" * 17])
def test_an_index_files_name_has_17_digits(name: str) -> None:
    """Nothing else is taken for an index file's name."""
    with pytest.raises(SinkError, match="17 digits wanted"):
        index_file(name)


def test_a_hostile_record_in_the_log_leaves_its_neighbours_bytes(tmp_path: Path) -> None:
    """A batch with a hostile topic is refused as a whole: nothing of it counts as done."""
    records = write_log(tmp_path / "log", [Message(topic=topic) for topic in ("A", "../../x", "A")])
    with SinkRun(tmp_path / "out", SMALL) as run:
        run.write(LogBatches(tmp_path / "log")(0, records[1].physical_offset))
        before = files_below(tmp_path / "out")
        with pytest.raises(SinkError, match=r"topic b'\.\./\.\./x' is not the printable name"):
            run.write(LogBatches(tmp_path / "log")(records[1].physical_offset, record_bounds(records)[-1]))
    with SinkRun(tmp_path / "out", SMALL) as run:
        assert run.end == records[1].physical_offset
    assert queue_files(tmp_path / "out") == {path: before[path] for path in before if path.startswith("consumequeue")}
