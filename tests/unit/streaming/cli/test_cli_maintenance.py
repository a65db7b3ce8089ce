"""`reput recover` and `reput expire` on the command line: text, JSON, exit codes, and the ways to refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from conftest import BrokerStore
from support.command_line import invoke, run_reput
from support.outputs import Output, lost_index_file, lost_page
from support.sink_runner import files_below
from typer.testing import Result

from reput.sinks.files.sink_progress import RecordFingerprint
from reput.source.errors import CommitLogRewoundError
from reput.source.log.log_reader import LogReader
from reput.source.options import SourceOptions
from reput.streaming.output.logic_sinks import check_fingerprint

CONF = "mappedFileSizeConsumeQueue=100\nmaxHashSlotNum=7\nmaxIndexNum=10\n"


@pytest.fixture
def output(tmp_path: Path) -> Output:
    made = Output.make(tmp_path, Random(3))
    (tmp_path / "broker.conf").write_text(CONF)
    return made


def run(command: str, output: Output, *more: str) -> Result:
    paths = ["--store", str(output.store), "--output", str(output.out)]
    return invoke([command, *paths, "--broker-conf", str(output.root / "broker.conf"), *more])


def test_recover_tells_what_it_does(output: Output) -> None:
    """The dry run in the conditional, the run in the past, and nothing to do after it."""
    lost_page(output, Random(1))
    lost_index_file(output, Random(2))
    before = files_below(output.out)
    planned = run("recover", output, "--dry-run")
    assert planned.exit_code == 0
    assert files_below(output.out) == before
    assert "a broker's recovery would be normal, from" in planned.output
    assert "would remove index/" in planned.output
    assert "would continue at" in planned.output
    log_end = output.records[-1].physical_offset + output.records[-1].msg_size
    assert f"log [0, {log_end})" in planned.output
    rest = f", the log at {log_end}; 'reput tail --available-now' with the same --store and --output writes the rest\n"
    assert "would end at " in planned.output
    assert planned.output.endswith(rest)
    done = run("recover", output)
    assert done.exit_code == 0
    assert "\nremoved index/" in done.output
    assert "entries dropped" in done.output
    again = run("recover", output)
    assert "queues and index agree with the log: nothing to do" in again.output
    assert " ends at " in again.output
    assert again.output.endswith(rest)
    output.go_on()
    output.check()
    whole = run("recover", output).output
    assert "A-0: min 0, max " in whole
    assert whole.endswith("nothing to do\n")


def test_recover_as_json(output: Output) -> None:
    """Every field of the report."""
    lost_page(output, Random(1))
    report = json.loads(run("recover", output, "--json").output)
    assert report["is_changed"]
    assert {sink["name"] for sink in report["sinks"]} == {"consumequeue", "index"}
    assert all({"topic", "queue_id", "min_offset", "max_offset"} == set(queue) for queue in report["queues"])
    assert not json.loads(run("recover", output, "--json").output)["is_changed"]


def test_expire_tells_what_it_does(output: Output) -> None:
    """As text and as JSON."""
    said = run("expire", output).output
    assert said.startswith("A-0: min 0")
    assert said.endswith("the log begins at 0\nnothing has expired\n")
    for segment in sorted(output.log.iterdir())[:3]:
        segment.unlink()
    planned = run("expire", output, "--dry-run")
    assert "the log begins at 6000\nwould remove consumequeue/" in planned.output
    report = json.loads(run("expire", output, "--json").output)
    assert report["min_physic_offset"] == 6000
    assert [f"would remove {path}" for path in report["removed"]] == [
        line for line in planned.output.splitlines() if line.startswith("would")
    ]


def test_a_light_queue_has_any_name(broker_store: Callable[[str], BrokerStore]) -> None:
    """Clients choose it, in any letters; both commands tell it."""
    store = broker_store("v4-lmq")
    paths = ["--store", str(store.root), "--output", str(store.root), "--broker-conf", str(store.broker_conf)]
    names = {path.name for path in (store.root / "consumequeue").iterdir() if not path.name.isascii()}
    assert names
    for command in ("recover", "expire"):
        result = run_reput([command, *paths, "--dry-run"])
        assert all(f"\n{name}-0: min 0" in result.output for name in names)


def test_a_log_that_is_gone_needs_a_word(output: Output) -> None:
    """Without a segment a broker removes every queue; reput asks first, and then begins again."""
    for segment in output.log.iterdir():
        segment.unlink()
    before = files_below(output.out)
    refused = run("recover", output)
    assert refused.exit_code == 1
    assert "has no record, and" in refused.output
    assert "or --yes to go by this log" in refused.output
    planned = run("recover", output, "--dry-run")
    assert planned.exit_code == 0
    assert "would be done with --yes only: the log in" in planned.output
    assert files_below(output.out).keys() - {"lock"} == before.keys()
    (output.out / "reput" / "spark-checkpoint" / "logic" / "commits").mkdir(parents=True)
    done = run("recover", output, "--yes")
    assert done.exit_code == 0
    assert files_below(output.out).keys() == {"checkpoint", "lock"}
    assert not (output.out / "reput" / "spark-checkpoint").exists()
    output.write_log([record.message for record in output.records])
    output.go_on()
    output.check()


def test_a_missing_commitlog_is_not_a_log_that_is_gone(output: Output) -> None:
    """A wrong --store must not cost the queues."""
    output.log.rename(output.root / "elsewhere")
    before = files_below(output.out)
    result = run("recover", output, "--yes")
    assert result.exit_code == 1
    assert "the directory does not exist" in result.output
    assert files_below(output.out) == before


def test_a_missing_output_is_told(output: Output) -> None:
    """And not made."""
    output.out = output.root / "nothing"
    for command in ("recover", "expire"):
        result = run(command, output)
        assert result.exit_code == 1
        assert f"no output at {output.out}: the directory does not exist" in result.output
    assert not output.out.exists()


def test_an_output_inside_the_log_is_refused(output: Output) -> None:
    """Nothing is ever written there."""
    output.out = output.log
    result = run("recover", output)
    assert result.exit_code == 1
    assert "is inside the commitlog" in result.output
    assert not (output.log / "lock").exists()


def test_a_held_lock(output: Output, hold_lock: Callable[[Path], int]) -> None:
    """One line, exit code 1."""
    process = hold_lock(output.out / "lock")
    result = run("recover", output)
    assert result.exit_code == 1
    assert f"is locked by process {process}" in result.output


@pytest.mark.parametrize(
    ("sink", "way_out"),
    [
        ("consumequeue", "reput recover"),
        ("batchconsumequeue", "reput recover"),
        ("index", "reput recover"),
        ("messages", "rebuild --only table"),
        ("another", "an empty --output"),
    ],
)
def test_a_log_that_was_written_anew_names_the_way_out(sink: str, way_out: str, output: Output) -> None:
    """Queues, index and table can be brought back."""
    log = LogReader(SourceOptions.parse({"path": str(output.log)}))
    with pytest.raises(CommitLogRewoundError, match=way_out):
        check_fingerprint(log, sink, RecordFingerprint(0, 100, 1, 2))


def test_spark_checkpoint_ahead_of_the_log_is_forgotten(output: Output) -> None:
    """It would continue after a record that no longer exists; one that is not ahead stays."""
    directory = output.out / "reput" / "spark-checkpoint" / "logic"
    (directory / "commits").mkdir(parents=True)
    (directory / "offsets").mkdir()
    (directory / "commits" / "0").write_text("v1\n{}")
    end = output.records[-1].physical_offset + output.records[-1].msg_size
    (directory / "offsets" / "0").write_text(f'v1\n{{}}\n{{"version": 1, "physicOffset": {end}}}')
    assert "queues and index agree with the log: nothing to do" in run("recover", output).output
    output.write_log([record.message for record in output.records[:-1]])
    assert "would remove Spark's checkpoint of the logic query" in run("recover", output, "--dry-run").output
    assert directory.is_dir()
    assert "removed Spark's checkpoint of the logic query" in run("recover", output).output
    assert not directory.exists()


def test_a_spark_checkpoint_that_cannot_be_read_is_forgotten(output: Output) -> None:
    """As one of which half was removed."""
    commits = output.out / "reput" / "spark-checkpoint" / "logic" / "commits"
    commits.mkdir(parents=True)
    (commits / "0").write_text("v1\n{}")
    run("recover", output)
    assert not commits.exists()
