"""`reput status` of a tail that runs, has ended, was killed or hangs; the file is written seldom, and never astray."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.command_line import invoke

from reput.sinks.files.store_lock import StoreLock
from reput.streaming.status import status_document
from reput.streaming.status.batch_report import BatchReport, LogEnd
from reput.streaming.status.publisher import StatusPublisher
from reput.streaming.status.run_state import RunState
from reput.streaming.status.status_document import STATUS_FILE

HOSTILE = "topic \x1b[31mred\nrunning   all is well"


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


class At:
    """A log that ends there."""

    def __init__(self, end: int) -> None:
        self._end = end

    def look(self, start: int) -> LogEnd | None:
        return LogEnd(self._end)

    def store_timestamp_at(self, offset: int) -> int | None:
        return None


@pytest.fixture
def output(tmp_path: Path) -> Path:
    (tmp_path / "out" / "reput").mkdir(parents=True)
    return tmp_path / "out"


def run_state() -> RunState:
    state = RunState("a", {"store": "/data/store"})
    state.on_running("logic", 5)
    state.on_batch(BatchReport("logic", 5, 25, 2, 0.5))
    return state


@contextmanager
def locked_by_another(output: Path) -> Iterator[None]:
    """Hold the output's lock in another process, as a tail does."""
    code = (
        "import sys; from pathlib import Path; from reput.sinks.files.store_lock import StoreLock\n"
        "with StoreLock(Path(sys.argv[1])): print('locked', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(output)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield
        process.communicate()


def write(output: Path, state: RunState) -> None:
    publisher = StatusPublisher([(state, output)], {})
    publisher.write_files()
    publisher.turn()


def asked(output: Path, *options: str) -> tuple[int, str]:
    result = invoke(["status", "--output", str(output), *options])
    return result.exit_code, result.output


def test_running(output: Path) -> None:
    """The state, then how far each query is; the exit code is 0."""
    write(output, run_state())
    with locked_by_another(output):
        code, text = asked(output)
    assert code == 0
    assert text.splitlines()[0].startswith("running   ")
    assert "logic     running, 2 messages in this run, end offset 25" in text


def test_json_is_the_document(output: Path) -> None:
    """As the page gets it, but for the history of lags."""
    write(output, run_state())
    with locked_by_another(output):
        code, text = asked(output, "--json")
    told = json.loads(text)
    assert (code, told["state"], told["brokers"][0]["queries"][0]["commitOffset"]) == (0, "running", 25)
    assert told == json.loads(output.joinpath(*STATUS_FILE).read_bytes())


def test_killed(output: Path) -> None:
    """The lock is free, but the document says that the run works."""
    write(output, run_state())
    code, text = asked(output)
    assert code == 3
    assert text.startswith("stopped   it ended without a word, at most ")


def test_stopped_with_an_error(output: Path) -> None:
    """The run's last words in one line, whatever they contain."""
    state = run_state()
    with StatusPublisher([(state, output)], {}) as publisher:
        publisher.write_files()
        state.on_end(f"the log has {HOSTILE}", 1)
    code, text = asked(output)
    assert code == 3
    assert text.splitlines()[0].startswith("stopped   the log has topic ")
    assert "\x1b" not in text
    assert not any(line.startswith("running") for line in text.splitlines())


def test_hanging(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock is held, and the file has not been renewed for minutes."""
    write(output, run_state())
    real = time.monotonic
    monkeypatch.setattr(status_document.time, "monotonic", lambda: real() + 600.0)
    with locked_by_another(output):
        code, text = asked(output)
    assert code == 11
    assert text.startswith("waiting   no sign of life for 10.0 min")


@pytest.mark.parametrize("days", [-3, 3])
def test_the_time_of_day_is_set(days: int, output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It makes a status neither old nor new: the age of the file is measured by a clock that cannot be set."""
    write(output, run_state())
    real = time.time
    monkeypatch.setattr(status_document.time, "time", lambda: real() + days * 86_400)
    with locked_by_another(output):
        code, text = asked(output)
    assert (code, text.partition(" ")[0]) == (0, "running")
    assert re.search(r" as of 0\.\d s ago$", text.splitlines()[1])
    assert asked(output)[1].startswith("stopped   it ended without a word, at most 0.")


def test_after_a_start_of_the_machine_the_time_of_day_counts(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other clock began again."""
    write(output, run_state())
    path = output.joinpath(*STATUS_FILE)
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "boot": "another"}))
    real = time.time
    monkeypatch.setattr(status_document.time, "time", lambda: real() + 600)
    assert asked(output)[1].startswith("stopped   it ended without a word, at most 10.0 min ago")


def test_what_was_never_kept(tmp_path: Path, output: Path) -> None:
    """One line each: no output, no tail's output, a file of another kind, one of a later release."""
    assert asked(tmp_path / "none")[0] == 1
    assert f"no status at {output.joinpath(*STATUS_FILE)}" in asked(output)[1]
    for content, words in ((b"{", "is not a status of reput"), (b'{"formatVersion": 99}', "has format 99")):
        output.joinpath(*STATUS_FILE).write_bytes(content)
        code, text = asked(output)
        assert (code, text.count("\n")) == (1, 1)
        assert words in text


def test_the_file_is_written_seldom(output: Path) -> None:
    """At most every five seconds, and every minute while nothing changes."""
    clock, state, path = Clock(), run_state(), output.joinpath(*STATUS_FILE)
    publisher = StatusPublisher([(state, output)], {}, clock=clock)
    publisher.write_files()
    written = []
    for second in range(300):
        clock.now += 1.0
        if second < 20:
            state.on_batch(BatchReport("logic", 25 + second, 26 + second, 1, 0.1))
        path.unlink(missing_ok=True)
        publisher.turn()
        if path.exists():
            written.append(second)
    assert written[:5] == [0, 5, 10, 15, 20]
    assert [after - before for before, after in zip(written[4:], written[5:], strict=False)] == [60] * 4


def test_how_far_it_is_behind_is_written_when_that_is_known(output: Path) -> None:
    """Not a minute later, where the run found nothing new."""
    clock, state = Clock(), RunState("a", {"store": "/data/store"})
    state.on_running("logic", 25)
    publisher = StatusPublisher([(state, output)], {}, clock=clock)
    with locked_by_another(output):
        publisher.write_files()
        publisher.turn()
        assert "? and ? behind" in asked(output)[1]
        clock.now += 5.0
        state.look(At(25))
        publisher.turn()
        assert "0 B and 0.0 s behind" in asked(output)[1]


def test_nothing_is_written_before_the_output_is_locked_or_where_it_is_gone(output: Path) -> None:
    """Another tail's status stays, and an empty mount point stays empty."""
    with StatusPublisher([(run_state(), output)], {}) as publisher:
        publisher.turn()
    assert list(output.rglob("*.json")) == []
    with StatusPublisher([(run_state(), output)], {}) as publisher:
        publisher.write_files()
        (output / "reput").rmdir()
        publisher.turn()
    assert list(output.iterdir()) == []


def test_asking_leaves_the_lock_alone(output: Path) -> None:
    """A tail can still take it, and one that has it keeps it."""
    write(output, run_state())
    asked(output)
    with StoreLock(output):
        pass
