"""The form of a line of the log, for each reader; and warnings that repeat for years are few lines."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, cast

import pytest
from support.command_line import invoke
from support.live_log import Clock

from reput.streaming.cli.app import _lines, report_error, set_up_logging
from reput.streaming.cli.log_lines import FewOfAKind, LogFormat, LogLines
from reput.streaming.effects.range_task import RangeEffects
from reput.streaming.effects.waves import Waves
from reput.streaming.tail.query import BatchGate

HOSTILE = "T\x1b]0;x\x07\x9b31m\u202eb\u2028\x7f\nforged \ud800 line"
COMMANDS = ("tail", "rebuild", "verify", "recover", "expire")
#: A process that logs an information, a warning and its end.
LOGGING = """
import logging, sys
from reput.streaming.cli.app import report_error, set_up_logging
from reput.streaming.cli.log_lines import LogFormat
set_up_logging(LogFormat(sys.argv[1]))
logging.getLogger("reput").info("all %s", "well")
logging.getLogger("reput.source").warning("not\\nwell")
report_error("over")
"""


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """The logger of reput; what a test does to it is undone."""
    logger = logging.getLogger("reput")
    before = (logger.handlers, logger.level, logger.propagate)
    token = _lines.set(None)
    yield logger
    _lines.reset(token)
    logger.handlers, logger.level, logger.propagate = before
    logging.captureWarnings(False)
    logging.getLogger("py.warnings").handlers = []


def test_a_line_of_json(logger: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    """An object a line whatever is in it, from which a reader gets the same text; a time with its zone."""
    lines = set_up_logging(LogFormat.JSON)
    logger.warning("queue %s", HOSTILE)
    lines.broker = "broker-a"
    logging.getLogger("reput.source.log").info("a batch", extra={"query": "logic"})
    first, second = capsys.readouterr().err.splitlines()
    assert first.isprintable()
    assert list(json.loads(first)) == ["time", "level", "logger", "message"]
    assert json.loads(first)["message"] == f"queue {HOSTILE}"
    found = json.loads(second)
    written = datetime.strptime(found.pop("time"), "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc)
    assert abs(datetime.now(timezone.utc) - written) < timedelta(minutes=1)
    assert re.search(r'"time": "[^"]*\.\d{3}Z"', second)
    assert found == {
        "level": "INFO",
        "logger": "reput.source.log",
        "message": "a batch",
        "broker": "broker-a",
        "query": "logic",
    }


class Warns:
    """A dispatch that logs a warning in its own thread, in one that writes a wave, and beside a batch."""

    names = ("table", "logic")
    end_offset = 0
    is_writing = False

    def settle(self) -> None:
        """All is written."""

    def __call__(self, *_: object) -> None:
        _warn("in a batch")
        is_written = threading.Event()

        def write() -> None:
            for _ in waves:
                _warn("in a wave")
                is_written.set()

        waves = Waves(0, lambda: 0)
        with waves.written_beside(write):
            waves.put(RangeEffects(0, 1, is_whole=True))
            assert is_written.wait(60)

    def while_idle(self) -> None:
        _warn("while idle")


def _warn(words: str) -> None:
    logging.getLogger("reput").warning(words)


@pytest.mark.parametrize("broker", [None, "broker-b"])
def test_a_warning_says_whose_batch_it_is_from(
    logger: logging.Logger, capsys: pytest.CaptureFixture[str], broker: str | None
) -> None:
    """Of a process of one broker or of several; what comes later in the same thread is about no query."""
    lines = set_up_logging(LogFormat.JSON)
    lines.broker = "broker-a"
    gate = BatchGate(cast("Any", Warns()), lambda: None, broker)
    spark = threading.Thread(target=gate, args=(None, 0))
    spark.start()
    spark.join()
    gate.while_idle()
    logger.warning("afterwards")
    told = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    batch = {"broker": broker or "broker-a", "query": "table"}
    assert [{key: each[key] for key in ("message", "broker", "query") if key in each} for each in told] == [
        {"message": "in a batch", **batch},
        {"message": "in a wave", **batch},
        {"message": "while idle", **batch},
        {"message": "afterwards", "broker": "broker-a"},
    ]


def test_what_others_warn_of_is_json_too(logger: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    """Python's own warnings go to standard error, and would be lines that are not objects."""
    import warnings

    set_up_logging(LogFormat.JSON)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(False)
        logging.captureWarnings(True)  # the block has put back the earlier handler
        warnings.warn("deprecated\nin two lines", DeprecationWarning, stacklevel=1)
        logging.captureWarnings(False)
    (line,) = capsys.readouterr().err.splitlines()
    assert "deprecated\nin two lines" in json.loads(line)["message"]


@pytest.mark.parametrize(
    ("log_format", "in_journal", "expected"),
    [
        ("text", False, [r"\d{4}-\d\d-\d\d [\d:]{8},\d{3} INFO all well", r".* WARNING not\\nwell", "reput: over"]),
        ("text", True, ["<6>INFO all well", r"<4>WARNING not\\nwell", "<3>reput: over"]),
        ("json", False, [r'\{"time": .*"all well"\}', r'\{.*"not\\nwell"\}', r'\{.*"ERROR".*"over"\}']),
        ("json", True, [r'<6>\{"time": .*"all well"\}', r"<4>\{.*\}", r'<3>\{.*"over"\}']),
    ],
)
def test_the_journal_gets_priorities(tmp_path: Path, log_format: str, in_journal: bool, expected: list[str]) -> None:
    """Only where standard error is what ``JOURNAL_STREAM`` names: who redirects it hands the variable on."""
    with (tmp_path / "err").open("wb") as err:
        stream = os.fstat(err.fileno())
        named = f"{stream.st_dev}:{stream.st_ino if in_journal else stream.st_ino + 1}"
        command = [sys.executable, "-c", LOGGING, log_format]
        subprocess.run(command, stderr=err, check=True, env={**os.environ, "JOURNAL_STREAM": named})
    lines = (tmp_path / "err").read_text().splitlines()
    assert len(lines) == len(expected)
    for line, pattern in zip(lines, expected, strict=True):
        assert re.fullmatch(pattern, line), line


@pytest.mark.usefixtures("logger")
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_that_logs_has_the_option(command: str, tmp_path: Path) -> None:
    """The error that ends it is also a line of JSON; a word that is not a format is wrong usage."""
    given = [command, "--store", str(tmp_path / "missing"), "--output", str(tmp_path / "out")]
    result = invoke([*given, "--log-format", "json"])
    told = [json.loads(line) for line in result.stderr.splitlines()]
    assert (result.exit_code, [each["level"] for each in told]) == (1, ["ERROR"])
    assert str(tmp_path / "missing") in told[0]["message"]
    assert invoke([*given, "--log-format", "xml"]).exit_code == 2


def test_a_command_leaves_its_format_behind(logger: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    """The next command of the process, which sets no format, has lines of text."""
    invoke(["recover", "--store", "/none", "--output", "/none", "--log-format", "json"])
    report_error("over")
    assert capsys.readouterr().err == "reput: over\n"


def test_a_stopped_command_says_so_in_its_format() -> None:
    """A signal that interrupts a command leaves one line."""
    assert LogLines().stopped == "reput: stopped"
    told = json.loads(LogLines(LogFormat.JSON).stopped)
    assert (told["level"], told["message"]) == ("INFO", "stopped")


def test_a_warning_that_repeats_is_few_lines(logger: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    """Every second for a day: twenty at once, then one a minute, and no count is lost; others are not held back."""
    clock = Clock()
    set_up_logging(is_bounded=True)
    logger.handlers[0].filters = [FewOfAKind(clock)]

    def warn(number: int) -> None:
        logger.warning("queue %d is out of order", number)

    for number in range(86_400):
        clock.now += 1.0
        warn(number)
        if number % 600 == 0:
            logger.warning("another kind")
    logger.info("an information")
    lines = capsys.readouterr().err.splitlines()
    of_kind = [line for line in lines if "out of order" in line]
    assert 20 + 1438 <= len(of_kind) <= 20 + 1442
    assert sum("another kind" in line for line in lines) == 144
    assert lines[-1].endswith("INFO an information")
    untold = [int(found[1]) for line in of_kind if (found := re.search(r" \(and (\d+) more like it before\)$", line))]
    clock.now += 60.0
    warn(0)
    last = re.search(r"\(and (\d+) more", capsys.readouterr().err)
    assert last is not None
    assert len(of_kind) + sum(untold) + int(last[1]) == 86_400


def test_a_bound_holds_for_all_threads(logger: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    """Both queries' threads warn of the same place."""
    set_up_logging(is_bounded=True)

    def warn() -> None:
        for _ in range(500):
            logger.warning("again")

    threads = [threading.Thread(target=warn) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert capsys.readouterr().err.count("again") == 20


def test_each_query_has_its_own_count(logger: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    """The repeated warnings of one query do not hold back those of the other."""
    set_up_logging(is_bounded=True)
    logger.handlers[0].filters = [FewOfAKind(lambda: 0.0)]
    for number in range(30):
        for query in ("logic", "table") if number < 15 else ("logic",):
            logger.warning("%s waits", query, extra={"query": query})
    said = capsys.readouterr().err
    assert (said.count("logic waits"), said.count("table waits")) == (20, 15)


def test_without_a_bound_every_warning_is_told(logger: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    """A rebuild, or a tail to the log's end, lists each damaged record."""
    set_up_logging()
    for number in range(100):
        logger.warning("left out at %d", number)
    assert capsys.readouterr().err.count("left out") == 100
