"""The driver judges an executor's answer, in one line; the executor's task runs here as it does there."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from reput import __version__
from reput.source.errors import EnvironmentSetupError, MayPassError
from reput.source.log.mapped_file_queue import MappedFile, MappedFileQueue
from reput.streaming.tasks.executors import Said, _check_said, _look, _of_python, files_to_look_at

TOKEN = "0123456789abcdef"


def said(read: list[Path], probes: list[Path], token: str = TOKEN) -> Said:
    """Return a task's answer on an executor that shares everything."""
    look = pickle.loads(cloudpickle.dumps(_look(list(map(str, read)), list(map(str, probes)), token)))
    (words,) = look(iter([1]))
    return dict(words)


def check(words: Said, read: list[Path], written: list[Path]) -> None:
    here = said(read, [])["read"]
    _check_said(words, TOKEN, list(zip(read, here, here, strict=True)), written)


@pytest.fixture
def shared(tmp_path: Path) -> tuple[Path, Path]:
    """A segment of the log, and a directory with the driver's file."""
    directory = tmp_path / "scratch"
    segment = tmp_path / "00000000000000000000"
    segment.write_bytes(b"record" * 100)
    directory.mkdir()
    (directory / "probe").write_bytes(TOKEN.encode())
    return segment, directory


def test_what_is_shared_passes(shared: tuple[Path, Path]) -> None:
    """The task leaves its file for the driver to see."""
    segment, directory = shared
    words = said([segment], [directory / "probe"])
    check(words, [segment], [directory])
    (path, problem) = words["written"][0]
    assert (Path(path).read_bytes(), problem) == (TOKEN.encode(), "")


def test_a_log_of_another_machine_is_none(shared: tuple[Path, Path], tmp_path: Path) -> None:
    """Missing, or with other bytes: the segment is named."""
    segment, directory = shared
    words = said([segment], [directory / "probe"])
    for theirs, why in ((tmp_path / "missing", "No such file"), (directory / "probe", "it has other bytes")):
        with pytest.raises(MayPassError, match=rf"does not see {segment} of this machine: {why}") as raised:
            check(words | {"read": said([theirs], [])["read"]}, [segment], [directory])
        assert raised.value.file == str(segment)


def test_a_segment_that_was_begun_meanwhile_is_the_same_log(shared: tuple[Path, Path]) -> None:
    """A task that looks a moment later than the driver may see the first record."""
    segment, directory = shared
    words = said([segment], [directory / "probe"])
    _check_said(words, TOKEN, [(segment, "bytes 00", words["read"][0])], [directory])


def test_a_directory_of_another_machine_is_none(shared: tuple[Path, Path], tmp_path: Path) -> None:
    """There the driver's file is missing or another one, and nothing is written."""
    segment, directory = shared
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    other = said([segment], [theirs / "probe"])
    with pytest.raises(MayPassError, match=f"does not share {directory} with this machine: No such file"):
        check(other, [segment], [directory])
    assert list(theirs.iterdir()) == []
    assert said([segment], [directory / "probe"], "another token")["written"][0][0] == ""


def test_what_an_executor_writes_must_arrive(shared: tuple[Path, Path]) -> None:
    """Whole."""
    segment, directory = shared
    words = said([segment], [directory / "probe"])
    Path(words["written"][0][0]).write_bytes(b"0123")
    with pytest.raises(MayPassError, match=f"does not see all that the executor on .* writes into {directory}"):
        check(words, [segment], [directory])
    Path(words["written"][0][0]).unlink()
    with pytest.raises(MayPassError, match=f"writes into {directory}: No such file"):
        check(words, [segment], [directory])


def test_another_release_is_refused(shared: tuple[Path, Path]) -> None:
    """Before anything else, and without escapes of a terminal."""
    words = said([shared[0]], []) | {"reput": "0.0.1\x1b[2J"}
    with pytest.raises(EnvironmentSetupError, match=f"has reput 0.0.1.*, and this machine {__version__}") as raised:
        check(words, [shared[0]], [])
    assert "\x1b" not in str(raised.value)


TASK = "Lost task 1.3 in stage 0.0 (TID 7) (10.0.0.7 executor 1): "


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{TASK}/opt/python: No module named reput", "the Python of the executor on 10.0.0.7 has no module reput"),
        (
            "ModuleNotFoundError: No module named 'reput.streaming.tail'",
            "the Python of an executor has no module reput.streaming.tail",
        ),
        (
            f'{TASK}java.io.IOException: Cannot run program "/opt/python3": error=2',
            "the executor on 10.0.0.7 has no /opt/python3",
        ),
        (
            f"{TASK}[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in driver: 3.11, ",
            "the executor on 10.0.0.7 has Python 3.12, and this machine 3.11",
        ),
    ],
)
def test_a_python_that_tasks_cannot_use(text: str, expected: str) -> None:
    """Spark's text names it, among a hundred lines."""
    error: Any = _of_python(f"Job aborted due to stage failure:\n{text}\n\tat org.apache.spark.Some.java")
    assert isinstance(error, EnvironmentSetupError)
    assert error.cause == expected


def test_other_errors_are_none_of_python() -> None:
    assert _of_python("ExecutorLostFailure (executor 1 exited)") is None


def test_a_file_of_each_directory_of_the_log_is_looked_at(tmp_path: Path) -> None:
    """The first segment in it, or the directory itself as long as it has none."""
    one, two, empty = tmp_path / "one", tmp_path / "two", tmp_path / "empty"
    files = tuple(
        MappedFile(number * 100, 100, str(directory / f"{number * 100:020d}"))
        for number, directory in enumerate([one, two, one])
    )
    found = files_to_look_at(MappedFileQueue(files, (one, two, empty)))
    assert found == [Path(files[0].path), Path(files[1].path), empty]
