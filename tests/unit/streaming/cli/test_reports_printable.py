"""Topics and files that producers named reach no terminal raw, whichever report has them."""

from __future__ import annotations

import io
import json
import logging
import unicodedata
from dataclasses import asdict
from pathlib import Path

import pytest
from rich.console import Console
from support.command_line import run_reput
from support.record_writer import Message, write_log

from reput.sinks.findings import Difference, Findings
from reput.sinks.quarantine import QuarantinedRange
from reput.sinks.retention import QueueRetention
from reput.streaming.cli.app import set_up_logging
from reput.streaming.recover import recover
from reput.streaming.recover.recover import RetentionReport
from reput.streaming.verify import verify as verify_report
from reput.streaming.verify.store_verification import StoreSection, VerifyReport

HOSTILE = "T\x1b]0;x\x07\x9b31m\u202eb\u2028\x7f"


def is_harmless(text: str) -> bool:
    lines = text.removesuffix("\n").split("\n")
    return not any(unicodedata.category(one) in {"Cc", "Cf", "Zl", "Zp"} for line in lines for one in line)


def test_expire() -> None:
    """Queues and the files that were removed."""
    queue = QueueRetention(HOSTILE, 0, 0, 1, ())
    told = RetentionReport(0, (queue,), (), (f"consumequeue/{HOSTILE}/0/0",))
    text = recover.retention_text(told, dry_run=True)
    assert text.count("T\\x1b]0;x") == 2
    assert is_harmless(text)
    assert is_harmless(recover.as_json(told))
    assert json.loads(recover.as_json(told))["queues"][0]["topic"] == HOSTILE


def test_verify() -> None:
    """A difference's file and its description."""
    findings = Findings()
    findings.differ(Difference("size", f"{HOSTILE}-0, entry 1", file=f"consumequeue/{HOSTILE}/0/0"))
    told = VerifyReport(Path("s"), Path("o"), 0, 1, 1, 1, (StoreSection("queues", {"queues": 1}, findings),))
    out = io.StringIO()
    verify_report.print_report(told, Console(file=out, width=500))
    assert out.getvalue().count("T\\x1b]0;x") == 2
    assert "queues     1 queue: 1 size\n" in out.getvalue()
    assert is_harmless(out.getvalue())
    assert is_harmless(verify_report.as_json(told))


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_quarantine_list(tmp_path: Path, options: list[str]) -> None:
    """Texts that others wrote into the file are also made harmless."""
    line = QuarantinedRange("b", 1, 2, HOSTILE, HOSTILE, 3, "00", HOSTILE, "quarantine")
    (tmp_path / "reput").mkdir()
    (tmp_path / "reput" / "quarantine.jsonl").write_text(json.dumps(asdict(line)) + "\n")
    result = run_reput(["quarantine", "list", "--output", str(tmp_path), *options])
    assert "T\\" in result.stdout
    assert is_harmless(result.stdout)


@pytest.mark.parametrize("output_format", ["table", "json"])
def test_query(tmp_path: Path, output_format: str) -> None:
    """Tags, properties and the body; JSON has the same values."""
    write_log(
        tmp_path / "store" / "commitlog",
        [Message(topic="T", properties={"TAGS": HOSTILE}, body=HOSTILE.encode())],
        4096,
    )
    msg_id = "7F00000100002A9F" + "0" * 16
    given = ["query", "--store", str(tmp_path / "store"), "--msg-id", msg_id, "--format", output_format, "--body"]
    result = run_reput(given)
    assert is_harmless(result.stdout)
    if output_format == "json":
        found = json.loads(result.stdout)
        assert (found["tags"], found["body"]) == (HOSTILE, HOSTILE)
    else:
        assert result.stdout.count("T\\x1b]0;x") == 2


def test_a_log_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever name is in it, it is one line."""
    logger = logging.getLogger("reput")
    before = (logger.handlers, logger.level, logger.propagate)
    try:
        set_up_logging()
        logger.warning("queue %s", f"{HOSTILE}\nforged line")
    finally:
        logger.handlers, logger.level, logger.propagate = before
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert told.endswith(" WARNING queue T\\x1b]0;x\\x07\\x9b31m\\u202eb\\u2028\\x7f\\nforged line\n")
    assert is_harmless(told)
