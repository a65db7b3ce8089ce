"""A stream whose questions another process answers: with the same answers and errors, and without compiled code."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes
from pyspark.sql.types import StructType
from support.logs import end_of, varied_messages
from support.record_writer import write_log

from reput.source.data_source import AskingStreamReader, CommitLogDataSource, CommitLogStreamReader, RangePartition
from reput.source.errors import CommitLogRewoundError, TransientError, remote_error
from reput.source.options import SourceOptions
from reput.source.stream_answers import StreamAnswers, StreamQuestions

SIZE = 4096
# Spark's questions, in a process that gets the place to ask: it prints the answers, and the modules it has loaded.
ASKS = """
import json, sys
from pyspark.sql.streaming.datasource import ReadMaxBytes
from pyspark.sql.types import StructType
from reput.source.data_source import CommitLogDataSource
reader = CommitLogDataSource(json.loads(sys.argv[1])).streamReader(StructType())
reader.prepareForTriggerAvailableNow()
begin = reader.initialOffset()
limit = reader.getDefaultReadLimit()
end = reader.latestOffset(begin, limit)
spans = [(each.range.start, each.range.end) for each in reader.partitions(begin, end)]
loaded = [name for name in sys.modules if name.split(".")[0] == "numba"]
print(json.dumps([begin, limit == ReadMaxBytes(9000), end, reader.reportLatestOffset(), spans, loaded]))
"""


@pytest.fixture
def log(tmp_path: Path) -> dict[str, str]:
    """A log of several segments, as the options of a stream of its ranges."""
    path = tmp_path / "log"
    write_log(path, varied_messages(60), SIZE)
    return {"path": str(path), "rows": "ranges", "tailGuardMs": "0", "maxBytesPerTrigger": "9000"}


@pytest.fixture
def answered(log: dict[str, str], tmp_path: Path) -> Iterator[tuple[StreamAnswers, dict[str, str]]]:
    """Answers for the log, at a path that is longer than the address of a socket may be."""
    directory = tmp_path / ("d" * 120)
    directory.mkdir()
    answers = StreamAnswers(directory / "socket", partial(CommitLogStreamReader, SourceOptions.parse(log)))
    yield answers, log | {"answersAt": str(directory / "socket")}
    answers.close()


def asking(options: dict[str, str]) -> AskingStreamReader:
    reader = CommitLogDataSource(options).streamReader(StructType())
    assert isinstance(reader, AskingStreamReader)
    return reader


def test_another_process_gets_the_same_answers_and_loads_no_compiled_code(
    answered: tuple[StreamAnswers, dict[str, str]], log: dict[str, str]
) -> None:
    """It gets what a reader of its own would have told it."""
    reader = CommitLogStreamReader(SourceOptions.parse(log))
    reader.prepareForTriggerAvailableNow()
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, reader.getDefaultReadLimit())
    spans = [
        [each.range.start, each.range.end] for each in reader.partitions(begin, end) if isinstance(each, RangePartition)
    ]
    assert len(spans) > 1
    asked = subprocess.run(
        [sys.executable, "-c", ASKS, json.dumps(answered[1])], capture_output=True, text=True, check=True
    )
    assert json.loads(asked.stdout) == [begin, True, end, reader.reportLatestOffset(), spans, []]


def test_an_error_is_raised_where_it_was_asked(
    answered: tuple[StreamAnswers, dict[str, str]], log: dict[str, str], tmp_path: Path
) -> None:
    """The error is the one that the reader itself raises, with the fields that it carries through Spark."""
    reader = asking(answered[1])
    begin = reader.initialOffset()
    offset = reader.latestOffset(begin, ReadMaxBytes(9000))
    other = write_log(tmp_path / "other", varied_messages(60, seed=2), SIZE)
    assert end_of(other) > offset["physicOffset"]
    for name in (path.name for path in (tmp_path / "other").iterdir()):
        Path(log["path"], name).write_bytes((tmp_path / "other" / name).read_bytes())
    errors = []
    for each in (reader, CommitLogStreamReader(SourceOptions.parse(log))):
        with pytest.raises(CommitLogRewoundError) as raised:
            each.latestOffset(offset, ReadAllAvailable())
        found = remote_error(str(raised.value))
        assert found is not None
        errors.append(found.to_json())
    assert errors[0] == errors[1]
    # The next question is answered.
    assert reader.initialOffset() == begin


def test_nobody_answers(answered: tuple[StreamAnswers, dict[str, str]]) -> None:
    """A process that asked before is answered after the end, and no other is; no socket is left."""
    answers, options = answered
    before, after = asking(options), asking(options)
    begin = before.initialOffset()
    answers.close()
    answers.close()
    assert before.initialOffset() == begin
    with pytest.raises(TransientError, match="the driver does not answer what Spark asks of the log"):
        after.initialOffset()
    assert not Path(options["answersAt"]).exists()


def test_the_threads_know_for_whom_they_work(tmp_path: Path) -> None:
    """Each answering thread works for the same broker as the thread that begins to answer."""
    name = ContextVar[str]("name")
    name.set("logic")

    class Reader:
        def initialOffset(self) -> str:  # noqa: N802
            return name.get()

    answers = StreamAnswers(tmp_path / "socket", Reader)
    ask: Callable[..., Any] = StreamQuestions(tmp_path / "socket").ask
    assert ask(Reader.initialOffset) == "logic"
    answers.close()
