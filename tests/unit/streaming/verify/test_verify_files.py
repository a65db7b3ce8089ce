"""`reput verify` as a command, manifests of a store, and two stores side by side."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from random import Random

import numpy as np
import pytest
from support.command_line import run_reput
from support.outputs import Output, overwrite
from support.verified import ENTRIES_AT, SIZES, index_of, queue_of, run_verify, state_of

from reput.sinks.findings import Findings
from reput.sinks.store_comparison import Pair, compare_pair
from reput.sinks.table.comparison import COLUMNS, STRETCH_BYTES, StretchSums, compare_rows
from reput.streaming.tasks.tasks import ProcessTasks
from reput.streaming.verify import verify as verify_command
from reput.streaming.verify.store_verification import StoreVerification
from reput.streaming.verify.verify import records_between


@pytest.fixture
def output(tmp_path: Path) -> Output:
    return Output.make(tmp_path / "made", Random(5), 50)


def test_the_report(output: Output) -> None:
    """A line for each part, what differs in words, and the exit code."""
    before = state_of(output.root)
    result = run_verify(output)
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert re.fullmatch(r"log \[0, \d+\): 50 messages", lines[0])
    assert re.fullmatch(r"queues +\d+ queues, \d+ entries: agrees", lines[2])
    assert lines[-1] == "nothing differs"
    assert state_of(output.root) == before
    path, at = queue_of(output).file(1)
    overwrite(path, at + 11, b"\x07")
    result = run_verify(output)
    assert result.exit_code == 1
    assert re.search(r"consumequeue/\S+, byte 20: \S+, entry 1: size \d+ expected, 7 found", result.output)
    assert result.output.splitlines()[-1] == "1 difference"


@pytest.mark.parametrize("part", ["consumequeue", "index"])
def test_the_command_that_it_names_mends_what_differs(part: str, output: Output) -> None:
    shutil.rmtree(output.out / part)
    result = run_verify(output)
    assert result.exit_code == 1
    (command,) = re.findall(r"'reput (.*)' with the same --store and options", result.output)
    words = [*shlex.split(command), "--store", output.store, "-o", "sparkMaster=local[1]", *SIZES]
    rebuilt = run_reput([str(word) for word in words])
    assert (" queues in " in rebuilt.output, " index file" in rebuilt.output) == (part != "index", part == "index")
    assert run_verify(output).output.splitlines()[-1] == "nothing differs"


def test_the_report_as_json(output: Output) -> None:
    overwrite(index_of(output), ENTRIES_AT + 20 * 2 + 19, b"\x01")
    result = run_verify(output, "--json")
    assert result.exit_code == 1
    report = json.loads(result.output)
    assert report["differences"] == 1
    index = report["parts"]["index"]
    assert index["by_kind"] == {"chain": 1}
    assert index["first"][0]["byte_offset"] == ENTRIES_AT + 40 + 16
    assert set(report["parts"]) == {"log", "queues", "index", "checkpoint"}
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in report["sha256"].values())
    assert {name.split("/")[0] for name in report["sha256"]} == {"commitlog", "consumequeue", "index", "checkpoint"}


def test_in_processes_as_alone(output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small ranges, a planted fault: the same report, byte for byte; nothing is written."""
    overwrite(index_of(output), ENTRIES_AT + 20 * 2 + 19, b"\x01")
    path, at = queue_of(output).file(3)
    overwrite(path, at + 11, b"\x07")
    before = state_of(output.root)
    small = ["-o", "maxBytesPerPartition=600", "-o", "sparkMaster=local[2]"]
    alone = run_verify(output, "--json", *small)
    monkeypatch.setattr(verify_command, "_PROCESSES_FROM_BYTES", 0)
    made: list[int] = []
    start = ProcessTasks.__init__
    monkeypatch.setattr(ProcessTasks, "__init__", lambda self, count: (made.append(count), start(self, count))[1])
    side_by_side = run_verify(output, "--json", *small)
    assert made == [2]
    assert (side_by_side.exit_code, side_by_side.output) == (alone.exit_code, alone.output)
    assert json.loads(alone.output)["differences"] == 2
    assert state_of(output.root) == before


@pytest.mark.parametrize("from_bytes", [0, 1 << 40])
def test_an_error_of_a_task_is_one_line(from_bytes: int, output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a bad record in the middle of the log: where, and what was found; wherever the task ran."""
    monkeypatch.setattr(verify_command, "_PROCESSES_FROM_BYTES", from_bytes)
    segment = sorted(output.log.iterdir())[1]
    overwrite(segment, 4, b"\0\0\0\0")
    result = run_verify(output, "-o", "sparkMaster=local[2]")
    assert result.exit_code == 1
    assert re.fullmatch(rf"reput: .*offset {int(segment.name)}\b.*BAD_MAGIC.*\n", result.stderr)


@pytest.mark.parametrize(
    "arguments",
    [
        ["-o", "noSuchOption=1"],
        ["--manifest", "no/such/file"],
        ["--manifest", "a", "--write-manifest", "b"],
        ["--against", "no/such/store"],
        ["--write-manifest", "no/such/directory/file"],
    ],
)
def test_wrong_usage(arguments: list[str], output: Output) -> None:
    result = run_verify(output, *arguments)
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1


def test_no_output(output: Output) -> None:
    shutil.rmtree(output.out)
    assert run_verify(output).exit_code == 1


# --- manifests ---------------------------------------------------------------------------------------------


def test_a_manifest(output: Output, tmp_path: Path) -> None:
    """Written once; the same state agrees with it, and nothing else was written."""
    before = state_of(output.root)
    assert run_verify(output, "--write-manifest", tmp_path / "manifest").exit_code == 0
    assert state_of(output.root) == before
    lines = [json.loads(line) for line in (tmp_path / "manifest").read_text().splitlines()]
    assert lines[0] == {"reput_manifest": 1}
    files = [path for path in [*output.out.rglob("*"), *output.log.rglob("*")] if path.is_file()]
    assert len(lines) - 1 == sum("reput" not in path.parts and path.name != "lock" for path in files)
    result = run_verify(output, "--manifest", tmp_path / "manifest")
    assert result.exit_code == 0
    assert f"manifest   {len(lines) - 1} files: agrees ({len(lines) - 1} same_files)" in result.output


def test_a_store_that_went_on(tmp_path: Path) -> None:
    """Files that grew at their end, and new ones, do not differ; a byte that was known does."""
    output = Output.make(tmp_path / "made", Random(6), 60, done=0.5)
    manifest = tmp_path / "manifest"
    assert run_verify(output, "--write-manifest", manifest).exit_code == 0
    output.go_on()
    result = run_verify(output, "--manifest", manifest)
    assert result.exit_code == 0, result.output
    assert re.search(r"manifest .*agrees \(.*files_that_grew.*new_files", result.output)
    assert "checkpoint_went_on" in result.output
    segment = min(output.log.iterdir())
    overwrite(segment, 88, bytes([segment.read_bytes()[88] ^ 1]))
    result = run_verify(output, "--manifest", manifest)
    assert result.exit_code == 1
    assert f"commitlog/{segment.name}: bytes that the manifest knows have changed" in result.output


def test_files_that_are_gone(output: Output, tmp_path: Path) -> None:
    """The oldest of a directory may have expired, others may not."""
    manifest = tmp_path / "manifest"
    assert run_verify(output, "--write-manifest", manifest).exit_code == 0
    index_of(output, 0).unlink()
    index_of(output, 0).unlink()
    report = json.loads(run_verify(output, "--manifest", manifest, "--json").output)["parts"]["manifest"]
    assert (report["by_kind"], report["notes"]["expired_files"]) == ({}, 2)
    index_of(output, 1).unlink()
    report = json.loads(run_verify(output, "--manifest", manifest, "--json").output)["parts"]["manifest"]
    assert report["by_kind"] == {"file_missing": 1}


@pytest.mark.parametrize(
    "text", ["", "{}\n", '{"reput_manifest": 0}\n', "nonsense", '{"reput_manifest": 1}\n{"name": 3}\n']
)
def test_no_manifest(text: str, output: Output, tmp_path: Path) -> None:
    (tmp_path / "manifest").write_text(text)
    result = run_verify(output, "--manifest", tmp_path / "manifest")
    assert result.exit_code == 2 or text == "{}\n"


def test_a_manifest_of_a_later_release(output: Output, tmp_path: Path) -> None:
    """It is not guessed at."""
    (tmp_path / "manifest").write_text('{"reput_manifest": 2}\n')
    result = run_verify(output, "--manifest", tmp_path / "manifest")
    assert (result.exit_code, "manifest has format 2, which a later release" in result.output) == (1, True)


def test_a_manifest_is_never_written_into_the_log(output: Output) -> None:
    assert run_verify(output, "--write-manifest", output.log / "manifest").exit_code == 1


# --- two stores --------------------------------------------------------------------------------------------


def test_against_itself(output: Output, tmp_path: Path) -> None:
    """Names of index files are times, so they are compared in order."""
    other = tmp_path / "other"
    shutil.copytree(output.out, other)
    for path in sorted((other / "index").iterdir()):
        path.rename(path.with_name(f"{int(path.name) + 10**9:017d}"))
    result = run_verify(output, "--against", other)
    assert result.exit_code == 0, result.output
    assert "equal_files" in result.output


def test_against_another(output: Output, tmp_path: Path) -> None:
    """The first difference of each file, in words, and files of one side only."""
    other = tmp_path / "other"
    shutil.copytree(output.out, other)
    queue = queue_of(output)
    path, at = queue.file(1)
    there = other / path.relative_to(output.out)
    overwrite(there, at + 8, (519).to_bytes(4, "big"))
    index = other / index_of(output, 0).relative_to(output.out)
    overwrite(index, ENTRIES_AT + 20 * 3 + 4, (77).to_bytes(8, "big"))
    second = other / index_of(output, 1).relative_to(output.out)
    overwrite(second, 36, (3).to_bytes(4, "big"))
    queue.file(5)[0].unlink()
    (other / "consumequeue" / "A" / "9").mkdir()
    (other / "consumequeue" / "A" / "9" / f"{0:020d}").write_bytes(bytes(100))
    report = json.loads(run_verify(output, "--against", other, "--json").output)["parts"]["against"]
    texts = {found["file"]: found["text"] for found in report["first"]}
    size = int(queue.entries["msg_size"][1])
    topic, queue_id = path.parts[-3:-1]
    assert texts[str(path.relative_to(output.out))] == f"queue {topic}-{queue_id}, entry 1: size {size} here, 519 there"
    assert re.fullmatch(r"index entry 3: physical offset \d+ here, 77 there", texts[f"index/{index.name}"])
    assert texts[f"index/{second.name}"] == "header, indexCount 10 here, 3 there"
    assert texts[str(queue.file(5)[0].relative_to(output.out))] == "only there"
    assert report["notes"]["empty_file_only_there"] == 1


def test_against_a_store_with_a_log(output: Output, tmp_path: Path) -> None:
    """Master and slave: the logs are compared, too."""
    other = tmp_path / "slave"
    shutil.copytree(output.store, other)
    shutil.copytree(output.out, other, dirs_exist_ok=True)
    assert run_verify(output, "--against", other).exit_code == 0
    segment = sorted((other / "commitlog").iterdir())[1]
    overwrite(segment, 90, b"\xee")
    result = run_verify(output, "--against", other)
    assert result.exit_code == 1
    offset = int(segment.name) + 90
    assert f"the log at physical offset {offset}: byte 0x" in result.output


@pytest.mark.parametrize(
    ("name", "at", "words"),
    [
        ("checkpoint", 9, "logicsMsgTimestamp 0 here, 281474976710656 there"),
        ("checkpoint", 40, "byte 40: byte 0x00 here, 0x01 there"),
        ("index/20260101000000000", 41, "slot 0: entry 0 here, 65536 there"),
        ("consumequeue_ext/A/0/00000000000000000000", 3, "byte 3: byte 0x00 here, 0x01 there"),
        ("batchconsumequeue/A/0/00000000000000000046", 46 + 36, "queue A-0, entry 2: batch size 0 here, 256 there"),
    ],
)
def test_differences_in_words(name: str, at: int, words: str, tmp_path: Path) -> None:
    (tmp_path / "here").write_bytes(bytes(5000))
    (tmp_path / "there").write_bytes(bytes(at) + b"\x01" + bytes(4999 - at))
    findings = Findings()
    compare_pair(Pair(name, tmp_path / "here", tmp_path / "there"), 7, findings)
    assert findings.first[0].text == words


# --- the table's sums --------------------------------------------------------------------------------------


def rows(rng: np.random.Generator, count: int) -> list[np.ndarray]:
    columns = [rng.integers(0, 2**40, count) for _ in range(4)]
    columns[-1][:] = 0  # no row is of an earlier version
    columns[0] = np.sort(rng.choice(np.arange(20 * STRETCH_BYTES), count, replace=False))
    return columns


def test_sums_do_not_depend_on_order_or_files() -> None:
    rng = np.random.default_rng(1)
    columns = rows(rng, 1000)
    one, parts = StretchSums(), StretchSums()
    one.take(columns)
    order = rng.permutation(1000)
    for part in np.array_split(order, 7):
        some = StretchSums()
        some.take([column[part] for column in columns])
        parts.add_all(StretchSums.of_rows(some.to_batch().to_pylist()))
    assert one == parts
    assert one.differing(parts) == []
    assert sum(each.rows for each in one.sums.values()) == 1000


@pytest.mark.parametrize("column", range(1, 3))
def test_sums_tell_one_changed_value(column: int) -> None:
    rng = np.random.default_rng(2)
    columns = rows(rng, 500)
    changed = [values.copy() for values in columns]
    changed[column][250] ^= 1
    one, other = StretchSums(), StretchSums()
    one.take(columns)
    other.take(changed)
    assert one.differing(other) == [int(columns[0][250]) // STRETCH_BYTES]


@pytest.mark.parametrize("seed", range(3))
def test_records_of_a_stretch(seed: int, tmp_path: Path) -> None:
    """Whichever bytes it begins and ends at: in a record, in a segment's blank, where a segment begins."""
    rng = Random(seed)
    output = Output.make(tmp_path, rng, 60)
    verification = StoreVerification(output.config, output.out)
    offsets = [record.physical_offset for record in output.records]
    end = verification.log_end
    ends = [*offsets, *range(0, end, 2000), end, *rng.choices(range(end), k=40)]
    for _ in range(150):
        low, high = sorted((rng.choice(ends), rng.choice(ends)))
        found = records_between(verification, (0, end), low, high)
        assert [row["physical_offset"] for row in found] == [offset for offset in offsets if low <= offset < high]


def test_rows_in_words() -> None:
    """Missing, twice, changed, without a record."""
    record = dict.fromkeys(COLUMNS) | {"kind": "normal", "msg_size": 4}
    records = [record | {"physical_offset": offset} for offset in (10, 20, 30, 40)]
    found = [record | {"physical_offset": offset} for offset in (10, 20, 20, 40, 50)]
    found[3]["msg_size"] = 9
    findings = Findings()
    compare_rows(records, found, findings)
    assert findings.counts == {"row_missing": 1, "row_twice": 1, "row_changed": 1, "row_without_record": 1}
    assert [difference.physical_offset for difference in findings.first] == [20, 30, 40, 50]
    assert "msg_size 4 expected, 9 found" in findings.first[2].text
