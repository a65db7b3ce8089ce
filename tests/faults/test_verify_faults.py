"""G13: one fault at a time in a store of any size; the command, as a user starts it, finds and names each.

``REPUT_PROOF_VERIFY=3000000 pytest -m slow -rP tests/faults/test_verify_faults.py`` with this many messages, and the
findings in words; 700 bytes of disk a message.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.make_log import make_log
from benchmarks.shapes import STANDARD
from pyspark.sql import SparkSession
from support.proof_counts import Proof

from reput.sinks.formats.consume_queue import ENTRY
from reput.sinks.formats.index_file import ENTRY as INDEX_ENTRY
from reput.sinks.formats.index_file import HEADER_SIZE, SLOT_SIZE

pytestmark = pytest.mark.slow

MESSAGES = int(os.environ.get("REPUT_PROOF_VERIFY", "20000"))
LIMIT_SECONDS = 1800
SLOTS = 10_007
#: Three full index files of the two keys a message, and one that is not; about four files a queue; three segments.
INDEX_MAX = MESSAGES * 2 // 7 * 2
UNITS = MESSAGES // STANDARD.queues * 2 // 7
SEGMENT_BYTES = MESSAGES * 250


@dataclass(frozen=True)
class Made:
    """A log, what a rebuild made of it, its table, and a manifest of all files."""

    root: Path

    @property
    def store(self) -> Path:
        return self.root / "store"

    @property
    def out(self) -> Path:
        return self.root / "out"

    @property
    def manifest(self) -> Path:
        return self.root / "manifest"

    def reput(self, command: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """A command of reput in a process of its own."""
        sizes = (f"mappedFileSizeConsumeQueue={20 * UNITS}", f"maxHashSlotNum={SLOTS}", f"maxIndexNum={INDEX_MAX}")
        options = [word for size in sizes for word in ("-o", size)]
        paths = ["--store", self.store, "--broker-conf", self.store / "broker.conf", "--output", self.out]
        code = "from reput.streaming.cli.main import main; main()"
        words = [sys.executable, "-c", code, command, *map(str, paths), *options, *map(str, arguments)]
        return subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)

    def queue(self, number: int = 3) -> list[Path]:
        """The files of a queue, oldest first."""
        return sorted(sorted((self.out / "consumequeue").glob("*/*"))[number].iterdir())

    def index(self, number: int) -> Path:
        return sorted((self.out / "index").iterdir())[number]

    def segment(self, number: int = 0) -> Path:
        return sorted((self.store / "commitlog").iterdir())[number]

    def entry(self, file: int = 1, number: int = UNITS // 2) -> tuple[Path, int, np.ndarray[Any, Any]]:
        """An entry of a queue: its file, the byte, itself."""
        path, at = self.queue()[file], ENTRY.itemsize * number
        return path, at, np.frombuffer(read(path, at, ENTRY.itemsize), ENTRY)

    def end_of_queue(self) -> tuple[Path, int]:
        """The last file and the byte behind its last entry."""
        path = self.queue()[-1]
        return path, ENTRY.itemsize * int(np.count_nonzero(np.frombuffer(path.read_bytes(), ENTRY)["msg_size"]))

    def index_entry(self, file: int = 1) -> tuple[Path, int]:
        """An index entry: its file and the byte."""
        return self.index(file), HEADER_SIZE + SLOT_SIZE * SLOTS + INDEX_ENTRY.itemsize * (INDEX_MAX // 2)

    def record(self) -> tuple[Path, int]:
        """A record in the middle of the log: its segment, and the byte where it begins."""
        offset = int(self.entry()[2]["physical_offset"][0])
        path = max(path for path in (self.store / "commitlog").iterdir() if int(path.name) <= offset)
        return path, offset - int(path.name)


def read(path: Path, at: int, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(at)
        return file.read(size)


class Spoiler:
    """Changes files, and puts them back."""

    def __init__(self, aside: Path) -> None:
        self._aside = aside
        self._undo: list[Callable[[], object]] = []

    def __enter__(self) -> Spoiler:
        return self

    def __exit__(self, *_: object) -> None:
        for undo in reversed(self._undo):
            undo()

    def put(self, path: Path, at: int, data: bytes) -> tuple[Path, int]:
        before = read(path, at, len(data))
        assert data != before
        self._undo.append(lambda: _write(path, at, before))
        return _write(path, at, data)

    def flip(self, path: Path, at: int, mask: int = 1) -> tuple[Path, int]:
        return self.put(path, at, bytes([read(path, at, 1)[0] ^ mask]))

    def remove(self, path: Path) -> tuple[Path, None]:
        shutil.move(path, self._aside)
        self._undo.append(lambda: shutil.move(self._aside, path))
        return path, None

    def cut(self, path: Path, size: int) -> tuple[Path, None]:
        shutil.copy2(path, self._aside)
        self._undo.append(lambda: shutil.move(self._aside, path))
        os.truncate(path, size)
        return path, None

    def add(self, path: Path, data: bytes) -> tuple[Path, None]:
        self._undo.append(path.unlink)
        path.write_bytes(data)
        return path, None


def _write(path: Path, at: int, data: bytes) -> tuple[Path, int]:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)
    return path, at


Place = tuple[Path, "int | None"]


@dataclass(frozen=True)
class Fault:
    """How it is planted (gives file and byte), and what `verify` calls it, or the `error` of a log it cannot read."""

    name: str
    plant: Callable[[Spoiler, Made], Place]
    part: str
    kind: str
    error: str = ""
    options: tuple[str, ...] = ()
    names_file: bool = True


def entry_byte(at: int) -> Callable[[Spoiler, Made], Place]:
    """Flip a byte of an entry in the middle of a queue."""

    def plant(spoil: Spoiler, made: Made) -> Place:
        path, begin, _ = made.entry()
        spoil.flip(path, begin + at)
        return path, begin

    return plant


def missing_entry(spoil: Spoiler, made: Made) -> Place:
    return spoil.put(*made.entry()[:2], bytes(20))


def entry_twice(spoil: Spoiler, made: Made) -> Place:
    """The entry appears again in the place of its successor."""
    path, at, entry = made.entry()
    return spoil.put(path, at + 20, entry.tobytes())


def swapped(spoil: Spoiler, made: Made) -> Place:
    path, at, entry = made.entry()
    after = read(path, at + 20, 20)
    spoil.put(path, at, after + entry.tobytes())
    return path, at


def of_another_queue(spoil: Spoiler, made: Made) -> Place:
    return spoil.put(*made.entry()[:2], read(made.queue(4)[1], 400, 20))


def stale_tail(spoil: Spoiler, made: Made) -> Place:
    """Behind the queue's end, an entry of a record that the log has: a broker's recovery would take it."""
    return spoil.put(*made.end_of_queue(), made.entry()[2].tobytes())


def bytes_behind(spoil: Spoiler, made: Made) -> Place:
    path, at = made.end_of_queue()
    return spoil.put(path, at + 16, b"\1")


def index_byte(at: int) -> Callable[[Spoiler, Made], Place]:
    """Flip a byte of an index entry."""

    def plant(spoil: Spoiler, made: Made) -> Place:
        path, begin = made.index_entry()
        return spoil.flip(path, begin + at)

    return plant


def header_byte(at: int) -> Callable[[Spoiler, Made], Place]:
    """Flip a byte of an index header."""
    return lambda spoil, made: spoil.flip(made.index(1), at)


def slot_to_nowhere(spoil: Spoiler, made: Made) -> Place:
    return spoil.put(made.index(1), HEADER_SIZE + SLOT_SIZE * 77, (INDEX_MAX + 5).to_bytes(4, "big"))


def log_byte(at: int) -> Callable[[Spoiler, Made], Place]:
    """Flip a byte of a record in the middle of the log."""

    def plant(spoil: Spoiler, made: Made) -> Place:
        path, begin = made.record()
        return spoil.flip(path, begin + at)[0], None

    return plant


def queue_offset_again(spoil: Spoiler, made: Made) -> Place:
    """A record has the queue offset of the one before it: a broker takes its entry for already built."""
    path, begin = made.record()
    before = int.from_bytes(read(path, begin + 20, 8), "big")
    return spoil.put(path, begin + 20, (before - 1).to_bytes(8, "big"))


ALL_CRCS = ("-o", "checkCrc=all")
FAULTS = [
    Fault("a byte of an entry's offset", entry_byte(7), "queues", "entry_changed"),
    Fault("a byte of an entry's size", entry_byte(11), "queues", "entry_changed"),
    Fault("a byte of an entry's tags code", entry_byte(15), "queues", "entry_changed"),
    Fault("an entry is missing", missing_entry, "queues", "entry_missing"),
    Fault("an entry twice", entry_twice, "queues", "entry_changed"),
    Fault("two entries swapped", swapped, "queues", "entry_changed"),
    Fault("an entry of another queue", of_another_queue, "queues", "entry_changed"),
    Fault("a stale entry behind a queue's end", stale_tail, "queues", "entry_without_record"),
    Fault("a byte behind a queue's end", bytes_behind, "queues", "bytes_behind_the_end"),
    Fault("a queue file is missing", lambda spoil, made: spoil.remove(made.queue()[1]), "queues", "file_missing"),
    Fault(
        "a queue file is cut",
        lambda spoil, made: spoil.cut(made.queue()[1], 20 * UNITS - 7),
        "queues",
        "file_size",
    ),
    Fault(
        "a file too many in a queue",
        lambda spoil, made: spoil.add(made.queue()[0].with_name("notes.txt"), b"x"),
        "queues",
        "stray_file",
    ),
    Fault("a wrong key hash", index_byte(3), "index", "index_entry"),
    Fault("a wrong place of a key", index_byte(11), "index", "index_entry"),
    Fault("a wrong time of a key", index_byte(15), "index", "index_time"),
    Fault("a broken chain", index_byte(19), "index", "chain"),
    Fault("a slot that points nowhere", slot_to_nowhere, "index", "slot"),
    Fault("a wrong count in an index header", header_byte(39), "index", "index_header"),
    Fault("a wrong begin time in an index header", header_byte(7), "index", "index_header"),
    Fault("a wrong end place in an index header", header_byte(31), "index", "index_header"),
    Fault("an index file is missing", lambda spoil, made: spoil.remove(made.index(1)), "manifest", "file_missing"),
    Fault(
        "a checkpoint that is ahead",
        lambda spoil, made: spoil.flip(made.out / "checkpoint", 2, 2),
        "checkpoint",
        "checkpoint_ahead",
    ),
    Fault("a byte of a body, against the manifest", log_byte(100), "manifest", "file_changed"),
    Fault("a byte of a body, with checkCrc=all", log_byte(100), "", "", "BAD_CRC", ALL_CRCS),
    Fault("a record's CRC, against the manifest", log_byte(11), "manifest", "file_changed"),
    Fault("a record's CRC, with checkCrc=all", log_byte(11), "", "", "BAD_CRC", ALL_CRCS),
    Fault("a record's queue offset", queue_offset_again, "queues", "entry_changed", names_file=False),
    Fault("a record's magic code", log_byte(4), "", "", "BAD_MAGIC"),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    """A sound store, which tests change only for a moment."""
    made = Made(tmp_path_factory.mktemp("verify"))
    make_log(made.store, replace(STANDARD, messages=MESSAGES, mapped_file_size=SEGMENT_BYTES))
    rebuilt = made.reput("rebuild", "--table", made.root / "table")
    assert rebuilt.returncode == 0, rebuilt.stderr
    assert len(list((made.out / "index").iterdir())) == 4
    assert min(len(list(path.iterdir())) for path in (made.out / "consumequeue").glob("*/*")) > 2
    sound = made.reput("verify", "--json", "--write-manifest", made.manifest)
    assert (sound.returncode, json.loads(sound.stdout)["differences"]) == (0, 0)
    yield made
    again = made.reput("verify", "--json", "--manifest", made.manifest)
    assert (again.returncode, json.loads(again.stdout)["differences"]) == (0, 0)
    shutil.rmtree(made.root)


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_a_planted_fault_is_found_and_named(fault: Fault, made: Made, tmp_path: Path, proof: Proof) -> None:
    """Exit code 1, and a line with the file, and with the byte where one is meant."""
    with Spoiler(tmp_path / "aside") as spoil:
        path, at = fault.plant(spoil, made)
        result = made.reput("verify", "--json", "--manifest", made.manifest, *fault.options)
    assert result.returncode == 1, result.stderr
    if fault.error:
        print(result.stderr)
        (line,) = result.stderr.splitlines()
        assert fault.error in line
        assert str(path) in line
        proof("G13 faults planted, found by `reput verify`")
        return
    part = json.loads(result.stdout)["parts"][fault.part]
    assert fault.kind in part["by_kind"], part
    for one in part["first"][:2]:
        print(one["kind"], one["file"], one["byte_offset"], one["text"], sep=", ")
    if fault.names_file:
        root = made.out if path.is_relative_to(made.out) else made.store
        name = str(path.relative_to(root))
        # The byte of the unit, or of a field of it.
        assert any(one["file"] == name and (at is None or 0 <= at - one["byte_offset"] < 20) for one in part["first"])
    proof("G13 faults planted, found by `reput verify`")


ROWS = {
    "row_twice": "INSERT INTO {table} SELECT * FROM {table} WHERE physical_offset = {at}",
    "row_missing": "DELETE FROM {table} WHERE physical_offset = {at}",
    "row_changed": "UPDATE {table} SET queue_offset = queue_offset + 1 WHERE physical_offset = {at}",
}


@pytest.mark.spark
@pytest.mark.parametrize("kind", ROWS)
def test_a_row_of_the_table(kind: str, made: Made, spark: SparkSession, tmp_path: Path, proof: Proof) -> None:
    """Spoilt by Delta itself, in a copy."""
    table = tmp_path / "table"
    shutil.copytree(made.root / "table", table)
    offset = int(made.entry()[2]["physical_offset"][0])
    spark.sql(ROWS[kind].format(table=f"delta.`{table}`", at=offset))
    result = made.reput("verify", "--json", "--table", table)
    assert (result.returncode, result.stderr) == (1, "")
    part = json.loads(result.stdout)["parts"]["table"]
    print(kind, part["first"][0]["text"], sep=", ")
    assert part["by_kind"] == {kind: 1}
    assert part["first"][0]["physical_offset"] == offset
    proof("G13 faults planted, found by `reput verify`")
