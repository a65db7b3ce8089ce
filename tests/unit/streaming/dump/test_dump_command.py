"""`reput dump` as a command: the table, hostile text, a terminal, a reader that goes, wrong usage."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from support.command_line import invoke
from support.record_writer import CommitLogWriter, Message, write_log
from typer.testing import Result
from unit.streaming.cli.test_reports_printable import HOSTILE, is_harmless

from reput.sinks.formats.consume_queue import ENTRY

REPUT = [sys.executable, "-m", "reput.streaming.cli.main"]
KEY = HOSTILE.replace(" ", "")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A log whose topics, tags, keys, properties and bodies are hostile; one record is damaged."""
    with CommitLogWriter(tmp_path / "store" / "commitlog", 4096) as writer:
        for number in range(5):
            properties = {"TAGS": HOSTILE, "KEYS": f"{KEY} k{number}", "UNIQ_KEY": KEY, HOSTILE: HOSTILE}
            writer.append(Message(topic=HOSTILE, properties=properties, body=f"{HOSTILE}\nforged".encode()))
        damaged = writer.records[2]
    path = tmp_path / "store" / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[damaged.physical_offset + 4 : damaged.physical_offset + 8] = b"\x1b]0;"
    path.write_bytes(data)
    return tmp_path / "store"


def dump(*words: str) -> Result:
    return invoke(["dump", "-o", "tailGuardMs=0", *words])


EVERYTHING = ["--properties", "--body", "text"]


def test_hostile_text_in_a_table(store: Path) -> None:
    """One line a record, whatever is in it; on standard error, too."""
    result = dump("--store", str(store), *EVERYTHING)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert len(lines) == 1 + 5
    assert is_harmless(result.stdout)
    assert is_harmless(result.stderr)
    # topic, tags, keys, unique key, four properties and a name, the body
    assert lines[1].count("T\\x1b]0;x") == 10
    assert "BAD_MAGIC" in lines[3]
    assert "1b5d303b" in lines[3]
    assert "topics: T\\x1b]0;x" in result.stderr


def test_hostile_text_in_json(store: Path) -> None:
    """The same values come out."""
    result = dump("--store", str(store), *EVERYTHING, "--json")
    assert is_harmless(result.stdout)
    first, *_, last = map(json.loads, result.stdout.splitlines())
    assert (first["topic"], first["tags"], first["keys"]) == (HOSTILE, HOSTILE, [KEY, "k0"])
    assert (first["properties"][HOSTILE], first["body"]) == (HOSTILE, f"{HOSTILE}\nforged")
    assert last["totals"]["topics"] == {HOSTILE: 4}
    assert result.stderr == ""


@pytest.mark.parametrize("as_json", [False, True])
def test_hostile_names_of_files(as_json: bool, tmp_path: Path) -> None:
    """A producer gave a queue's directory its name."""
    topic = "T\x1b]0;x\x07\u202e"
    path = tmp_path / "consumequeue" / topic / "0" / f"{0:020d}"
    path.parent.mkdir(parents=True)
    path.write_bytes(np.array([(5, 91, 7)], ENTRY).tobytes())
    result = dump("--file", str(path), *(["--json"] if as_json else []))
    assert result.exit_code == 0, result.output
    assert is_harmless(result.stdout)
    if as_json:
        assert json.loads(result.stdout.splitlines()[0])["header"]["topic"] == topic
    else:
        assert "topic: T\\x1b]0;x\\x07\\u202e" in result.stdout
    assert is_harmless(dump("--file", str(path.with_name(topic))).output)


def test_on_a_terminal(store: Path) -> None:
    """Only text reaches it: it shows the same as a file gets."""
    words = [*REPUT, "dump", "--store", str(store), *EVERYTHING, "-o", "tailGuardMs=0"]
    primary, secondary = pty.openpty()
    process = subprocess.Popen(words, stdout=secondary, stderr=secondary, stdin=subprocess.DEVNULL)
    os.close(secondary)
    said = b""
    while True:
        try:
            part = os.read(primary, 65536)
        except OSError:  # the terminal's other side is closed
            break
        if not part:
            break
        said += part
    os.close(primary)
    assert process.wait(timeout=60) == 0
    text = said.decode().replace("\r\n", "\n")
    assert "T\\x1b]0;x" in text
    assert not [one for one in text if one != "\n" and unicodedata.category(one) in {"Cc", "Cf", "Zl", "Zp"}]


def test_a_reader_that_goes(tmp_path: Path) -> None:
    """`head` closes the pipe before a thousand lines are written; nothing is printed, and nothing has failed."""
    write_log(tmp_path / "store" / "commitlog", (Message(body=b"x") for _ in range(4000)), 1 << 20)
    words = [*REPUT, "dump", "--store", str(tmp_path / "store"), "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b'{"physical_offset": 0,')
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "exactly one of --store and --file wanted"),
        (["--store", "{0}", "--file", "{0}"], "exactly one of --store and --file wanted"),
        (["--store", "{0}", "--file-kind", "index"], "--file-kind goes with --file"),
        (["--store", "{0}", "--body", "raw"], "--body raw: text or hex wanted"),
        (["--store", "{0}", "--since", "soon"], "time 'soon': milliseconds since 1970 wanted"),
        (["--store", "{0}/commitlog"], "no commitlog at"),
    ],
)
def test_wrong_usage(words: list[str], told: str, store: Path) -> None:
    """One line, in the words of what was given."""
    result = dump(*(word.format(store) for word in words))
    assert result.exit_code in (1, 2)
    assert told in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_the_settings_of_a_file(tmp_path: Path) -> None:
    """Of the command line, or of a broker.conf; a wrong one is refused as everywhere."""
    path = tmp_path / "index" / "20261120235443004"
    path.parent.mkdir()
    path.write_bytes(bytes(40 + 4 * 3 + 20 * 5))
    sizes = ["-o", "maxHashSlotNum=3", "-o", "maxIndexNum=5"]
    (tmp_path / "broker.conf").write_text("maxHashSlotNum=3\nmaxIndexNum=5\n")
    for words in (sizes, ["--broker-conf", str(tmp_path / "broker.conf")]):
        result = dump("--file", str(path), *words)
        assert result.exit_code == 0, result.output
        assert "max_hash_slot_num: 3" in result.stdout
    assert "maxHashSlotNum=x" in dump("--file", str(path), "-o", "maxHashSlotNum=x").stderr


def test_a_period_that_ends_before_it_begins(store: Path) -> None:
    """A usage error, where it showed no record and exit code 0."""
    result = dump("--store", str(store), "--since", "2024-01-02", "--until", "2024-01-01")
    assert result.exit_code == 2
    assert "--until is before --since: no time is between them" in result.stderr
