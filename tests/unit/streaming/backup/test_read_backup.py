"""Commands that look into a store say the same of its backup, and read no more of it than they need."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.backups import OPTIONS, SEGMENT, GrowingStore
from support.command_line import invoke, run_reput
from support.logs import put_bytes
from support.rebuild_runner import rebuild
from support.s3_server import BUCKET, s3_server
from support.sink_runner import files_below, no_fsync

from reput.sinks.backup import backup_log, backup_writer
from reput.sinks.backup.backup_store import Backup
from reput.sinks.table.location import S3Location

SET = [word for option in OPTIONS for word in ("-o", option)]
FRAME = 512


@pytest.fixture(scope="module", autouse=True)
def small_frames() -> Iterator[None]:
    """Frames that are smaller than many records: several in each part."""
    with pytest.MonkeyPatch.context() as patch, no_fsync():
        for module in (backup_log, backup_writer):
            patch.setattr(module, "FRAME_BYTES", FRAME)
        yield


def grown(root: Path, location: S3Location | None = None) -> GrowingStore:
    """A store whose queues and index are whole, and whose newest restore point has all of its log."""
    growing = GrowingStore(root, seed=5, location=location)
    growing.grow(8)
    rebuild(growing.config(), growing.store)
    return growing


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> GrowingStore:
    return grown(tmp_path_factory.mktemp("growing"))


@pytest.fixture(scope="module")
def on_s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GrowingStore]:
    with s3_server() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        yield grown(tmp_path_factory.mktemp("on_s3"), S3Location(BUCKET, "backups/a"))


def of_backup(growing: GrowingStore) -> str:
    return str(growing.backup.location).replace("s3a://", "s3://")


def questions(growing: GrowingStore) -> Iterator[list[str]]:
    """Dumps and queries of a store, by what is in its log."""
    records = growing.log.records
    later = [record for record in records if record.physical_offset >= SEGMENT]
    last, middle = later[-1], later[len(later) // 2]
    rows = [
        json.loads(line)
        for line in run_reput(["dump", "--json", "--store", str(growing.store), *SET]).stdout.splitlines()
    ]
    keyed = next(row for row in reversed(rows) if row.get("keys"))
    unique = next(row for row in reversed(rows) if row.get("uniq_key"))
    queued = next(record.message for record in reversed(later) if record.message.is_queued)
    queue = ["--topic", queued.topic, "--queue-id", str(queued.queue_id)]
    yield ["dump"]
    yield ["dump", "--json", "--properties", "--body", "hex"]
    yield ["dump", "--from", str(last.physical_offset)]
    yield ["dump", "--from", str(middle.physical_offset + 1), "--to", str(last.physical_offset), "--json"]
    yield ["dump", "--topic", queued.topic, "--limit", "2"]
    yield ["dump", "--since", str(growing.now_ms - 150), "--until", str(growing.now_ms - 40)]
    yield ["query", *queue, "--queue-offset", str(queued.queue_offset), "--body"]
    yield ["query", *queue, "--queue-offset", "0", "--limit", "100", "--json"]
    yield ["query", *queue, "--time", str(growing.now_ms - 100), "--json"]
    yield ["query", "--topic", keyed["topic"], "--key", keyed["keys"][0], "--json", "--body"]
    yield ["query", "--topic", unique["topic"], "--uniq-key", unique["uniq_key"]]
    yield ["query", "--topic", "no such topic", "--key", "none"]


def answer(words: list[str], store: object) -> tuple[int, str]:
    """Exit code and output of a command; of a segment's path only its name, for a backup has none at its path."""
    done = invoke([*words, "--store", str(store), *SET])
    root = str(store).replace("s3://", "s3a://").partition("/points/")[0]
    return done.exit_code, done.stdout.replace(f"{root}/commitlog/", "")


def check_same(growing: GrowingStore, backup: str, *, each: int = 1) -> None:
    answers = []
    for words in [*questions(growing)][::each]:
        answers.append(answer(words, growing.store))
        assert answer(words, backup) == answers[-1], words
    assert sum(bool(text) for _, text in answers) > len(answers) // 2


def test_a_backup_answers_as_its_store(growing: GrowingStore) -> None:
    """Byte for byte; nothing is written into the backup."""
    root = growing.root / "backup"
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}, files_below(root)
    check_same(growing, of_backup(growing))
    assert ({path: path.stat().st_mtime_ns for path in root.rglob("*")}, files_below(root)) == before


def test_on_s3(on_s3: GrowingStore) -> None:
    """As on a disk."""
    assert of_backup(on_s3) == "s3://bucket/backups/a"
    check_same(on_s3, of_backup(on_s3), each=5)


def test_a_message_by_its_id(growing: GrowingStore) -> None:
    """Look-ups by id need neither queues nor index, and say nothing of them."""
    shown = run_reput(["query", "--topic", "x", "--queue-id", "0", "--queue-offset", "0", "--store", "/none"], 1)
    assert "no store at /none" in shown.stderr
    text = run_reput(["dump", "--store", str(growing.store), *SET]).stdout
    header, *lines = text.splitlines()
    column = header.index("msg_id")
    for msg_id in (lines[0][column:].split()[0], lines[-4][column:].split()[0]):
        words = ["query", "--msg-id", msg_id, "--json", *SET]
        done = run_reput([*words, "--store", of_backup(growing)])
        assert done.stdout == run_reput([*words, "--store", str(growing.store)]).stdout
        assert done.stderr == "reput: 1 message found\n"


def test_after_expiry(tmp_path: Path) -> None:
    """A log whose first segments have expired."""
    growing = grown(tmp_path)
    for path in sorted((growing.store / "commitlog").iterdir())[:2]:
        path.unlink()
    growing.append(3)
    assert growing.step() is not None
    growing.backup.expire(growing.now_ms, keep_points=1, keep_ms=None, is_alone=True)
    for folder in ("consumequeue", "index"):
        shutil.rmtree(growing.store / folder)
    (growing.store / "checkpoint").unlink()
    rebuild(growing.config(), growing.store)
    assert run_reput(["dump", "--store", str(growing.store), *SET]).stdout
    check_same(growing, of_backup(growing), each=3)


def test_an_earlier_restore_point(growing: GrowingStore, tmp_path: Path) -> None:
    """The file of a restore point names it."""
    growing.restore(tmp_path / "restored", point=3)
    words = ["dump", "--json"]
    point = f"{of_backup(growing)}/points/0000000003.json"
    assert answer(words, point) == answer(words, tmp_path / "restored")
    absent = invoke([*words, "--store", f"{of_backup(growing)}/points/0000000033.json"])
    assert (absent.exit_code, absent.stderr.count("\n")) == (2, 1)
    assert "0000000033.json is not a restore point: there are 1 to 8" in absent.stderr


def test_only_what_is_needed_is_read(growing: GrowingStore, tmp_path: Path) -> None:
    """With all other frames damaged, a look at the last segment is as before; anything else is one line."""
    shutil.copytree(growing.root / "backup", tmp_path / "b")
    point = Backup(tmp_path / "b").last_point()
    assert point is not None
    last = point.end - point.end % SEGMENT
    for part in point.parts:
        if part.end <= last:
            put_bytes(tmp_path / "b" / part.name, 8, b"damaged")
    begin = str(next(each.physical_offset for each in growing.log.records if each.physical_offset >= last))
    words = ["dump", "--from", begin, *SET]
    done = run_reput([*words, "--store", str(tmp_path / "b")])
    assert done.stdout == run_reput([*words, "--store", str(growing.store)]).stdout
    done = invoke(["dump", "--store", str(tmp_path / "b"), *SET])
    first = point.parts[0]
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert f"{first.name} is damaged at offset 0 of the log: its frame at byte 0 " in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["verify", "--output", "OUT"],
        ["recover", "--output", "OUT"],
        ["expire", "--output", "OUT"],
        ["tail", "--output", "OUT", "--available-now"],
        ["doctor"],
        ["resurrect"],
        ["backup", "--to", "OUT"],
        ["queues", "--to", "files"],
    ],
)
@pytest.mark.parametrize("of_s3", [False, True])
def test_what_needs_a_store(growing: GrowingStore, tmp_path: Path, words: list[str], *, of_s3: bool) -> None:
    """One line that says how to get one."""
    backup = "s3://bucket/a/b" if of_s3 else of_backup(growing)
    done = invoke([*(str(tmp_path / "out") if word == "OUT" else word for word in words), "--store", backup])
    assert done.exit_code not in (0, None), done.output
    assert f"{backup} is a backup, and this needs a store; 'reput restore --from {backup} --to DIR'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_no_output_in_a_backup(growing: GrowingStore, tmp_path: Path) -> None:
    """A rebuild reads a backup, and never writes there; a question about files of a store is refused."""
    backup = of_backup(growing)
    done = invoke(["rebuild", "--store", backup, "--output", f"{backup}/out", *SET])
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert not (growing.root / "backup" / "out").exists()
    run_reput(["rebuild", "--store", backup, "--output", str(tmp_path / "made"), *SET])
    for folder in ("consumequeue", "index"):
        made, kept = files_below(tmp_path / "made" / folder), files_below(growing.store / folder)
        assert [*made.values()] == [*kept.values()]
    Backup(tmp_path / "empty").prepare()
    assert "has no restore point" in run_reput(["dump", "--store", str(tmp_path / "empty")], code=2).stderr
