"""`reput doctor` on the command line; `test_doctor_broker.py` compares what it predicts with real stores."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.advice import execute_advice
from support.broker_stores import unpack
from support.command_line import invoke, run_reput
from support.paths import ROOT
from support.sink_runner import files_below
from support.store_compare import differing_bytes
from support.store_damage import LIGHT, further_queues_home, write
from typer.testing import Result

from reput.streaming.doctor.doctor import Diagnosis, Examination, as_text
from reput.streaming.doctor.predict import recovery_seconds
from reput.streaming.doctor.prediction import Prediction, Recovery

SEGMENT = "00000000000003145728"
# Bytes of a record in the middle of that segment, its lengths among them.
DAMAGED_AT, DAMAGED_BYTES = 300_010, 400


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A store of a killed 4.9.3 broker, with its abort file."""
    return unpack("v4-killed", tmp_path)


def doctor(home: Path, *more: str) -> Result:
    paths = ["--store", str(home / "store"), "--broker-conf", str(home / "broker.conf")]
    return invoke(["doctor", *paths, *more])


def told(home: Path, release: str) -> dict[str, Any]:
    done = doctor(home, "--release", release, "--json")
    found = json.loads(done.stdout)["releases"]
    assert list(found) == [release]
    assert done.exit_code == (0 if found[release]["harmless"] else 1)
    return dict(found[release])


def damage_the_log(home: Path) -> None:
    write(home / "store" / "commitlog" / SEGMENT, DAMAGED_AT, bytes(DAMAGED_BYTES))


def follow(advice: list[dict[str, str]]) -> None:
    """Run the commands of an advice, in order, but those that only ask or look."""
    for step in advice:
        words = shlex.split(step["command"] or "")
        if words[:1] == ["reput"] and words[1] in ("doctor", "query"):
            continue
        if words[:1] == ["reput"]:
            run_reput(words[1:])
        elif words:
            subprocess.run(words, check=True)


def test_a_store_that_loses_nothing(home: Path) -> None:
    """Both releases, one verdict each, exit code 0, and not a byte is written."""
    before = files_below(home)
    done = doctor(home)
    assert done.exit_code == 0
    assert (
        "4.9.3 starts, and nothing is lost\n  recovery  abnormal (there is an abort file), from commitlog/"
        in done.output
    )
    assert "5.5.0 starts, and nothing is lost\n" in done.output
    assert "what to do" not in done.output
    assert files_below(home) == before


def test_messages_behind_a_damaged_record(home: Path) -> None:
    """4.9.3 cuts the log at the damage that its abnormal recovery meets; without abort it does not look there."""
    damage_the_log(home)
    done = doctor(home, "--release", "4.9.3")
    assert done.exit_code == 1
    assert (
        f"4.9.3 starts, and loses 15020 good messages after damage at offset 3445659 of commitlog/{SEGMENT}"
        in done.output
    )
    found = told(home, "4.9.3")
    assert found["cut"]["lost"]["topics"] == {"Flood": 10026, "Flood2": 4994}
    assert found["log_end"] == found["cut"]["offset"] == 3445659
    assert len(found["cut"]["removed"]) == 5
    follow(found["advice"])
    assert (home / "store.copy" / "commitlog").is_dir()
    after = told(home, "4.9.3")
    assert not after["cut"]["lost"]["count"]
    assert after["damaged_ranges"] == 1


def test_the_page_shows_what_it_says(home: Path) -> None:
    page = (ROOT / "docs" / "commands" / "doctor.md").read_text(encoding="utf-8")
    shown = "4.9.3" + page.partition("```\n4.9.3")[2].partition("```")[0]
    damage_the_log(home)
    assert doctor(home).output.replace(str(home), "/data") == shown


def test_how_long_recovery_takes(home: Path) -> None:
    """By the bytes and records that it reads, and those of them that it dispatches."""
    assert recovery_seconds(0, 0, 0) == 0.15
    assert recovery_seconds(10**9, 0, 0) == 0.75
    assert recovery_seconds(10**9, 10**6, 0) == 1.55
    assert recovery_seconds(10**9, 10**6, 10**6) == 2.55
    found = told(home, "5.5.0")
    assert found["recovery_seconds"] == recovery_seconds(found["recovered_bytes"], 2784, found["dispatched"])
    prediction = Prediction("5.5.0", Recovery.NORMAL, recovered_bytes=10**9, recovery_seconds=2.55)
    examined = Examination((Diagnosis(prediction, ()),), (), (), "", None, None, is_tried=False)
    assert "  recovery  reads 1000000000 bytes, about 3 s (an estimate)\n" in as_text(home / "store", examined) + "\n"


def test_messages_that_no_recovery_keeps(home: Path) -> None:
    """Where normal recovery meets the damage, too, the copy keeps the messages, and can be read."""
    (home / "store" / "abort").unlink()
    write(home / "store" / "commitlog" / "00000000000006291456", DAMAGED_AT, bytes(DAMAGED_BYTES))
    found = told(home, "4.9.3")
    assert found["cut"]["lost"]["count"] > 0
    follow(found["advice"])
    entries = list((home / "store.copy" / "consumequeue").rglob("0*"))
    assert entries
    assert (home / "store.copy" / "reput" / "quarantine.jsonl").read_text()


def remove_queues(store: Path) -> None:
    shutil.rmtree(store / "consumequeue" / "Flood")


def remove_first_index_file(store: Path) -> None:
    min((store / "index").iterdir()).unlink()


def remove_index_after_a_clean_stop(store: Path) -> None:
    (store / "abort").unlink()
    shutil.rmtree(store / "index")


def cut_a_queue_file(store: Path) -> None:
    path = next(path for path in sorted((store / "consumequeue").rglob("0*")) if path.is_file())
    path.write_bytes(path.read_bytes()[:100])


def add_a_stray_file(store: Path) -> None:
    (store / "commitlog" / "notes.txt").write_text("mine")


HARMS: list[tuple[Callable[[Path], None], str, str]] = [
    # The places for the short form, and the messages there.
    (remove_queues, "5.5.0", "messages out of 4 queues"),
    (remove_first_index_file, "", "messages out of the index"),
    (remove_index_after_a_clean_stop, "4.9.3", "messages out of the index"),
    (cut_a_queue_file, "", "does not start: "),
    (add_a_stray_file, "4.9.3", "does not start: "),
]


@pytest.mark.parametrize(
    ("harm", "verdict", "release"),
    [
        pytest.param(harm, verdict, release, marks=[] if release == short else pytest.mark.slow)
        for harm, short, verdict in HARMS
        for release in ("4.9.3", "5.5.0")
    ],
)
def test_the_advice_helps(harm: Callable[[Path], None], verdict: str, release: str, home: Path) -> None:
    """The advised commands, run unchanged, leave a store that loses nothing."""
    harm(home / "store")
    found = told(home, release)
    assert verdict in found["verdict"]
    follow(found["advice"])
    assert told(home, release)["harmless"]


def test_a_cut_queue_file_beside_damage_in_the_log(home: Path) -> None:
    """The start ends at the queue file; the rebuild that is advised gets over the damage that no start has met."""
    damage_the_log(home)
    cut_a_queue_file(home / "store")
    assert "does not start: " in told(home, "5.5.0")["verdict"]
    execute_advice(home, "5.5.0")
    assert told(home, "5.5.0")["harmless"]


def test_an_empty_last_segment_is_deleted(home: Path) -> None:
    """By 5.5.0, as it loads the log; to 4.9.3 it is a segment of a wrong size."""
    segments = sorted((home / "store" / "commitlog").iterdir())
    empty = segments[-1].with_name(f"{2 * int(segments[-1].name) - int(segments[-2].name):020}")
    empty.touch()
    found = told(home, "5.5.0")
    assert found["cut"]["removed"][-1:] == [str(empty)]
    assert "0 bytes" in told(home, "4.9.3")["verdict"]


def test_an_empty_only_segment_is_deleted(tmp_path: Path) -> None:
    """Then there is no log to be cut, but the file goes all the same."""
    home = unpack("v5-config-v2-batchcq", tmp_path)
    (segment,) = (home / "store" / "commitlog").iterdir()
    segment.write_bytes(b"")
    assert told(home, "5.5.0")["removed_segments"] == [str(segment)]
    assert f"1 file is deleted without a message: commitlog/{segment.name}" in doctor(home, "--release", "5.5.0").output


def test_empty_last_queue_files_are_deleted(tmp_path: Path) -> None:
    """By 5.5.0, with the files of ConsumeQueueExt; they hold nothing, so that nothing is lost."""
    home = unpack("v4-sql92", tmp_path)
    empty = []
    for top, size in (("consumequeue", 10_000), ("consumequeue_ext", 8192)):
        queue = home / "store" / top / "NoFilter" / "0"
        empty.append(queue / f"{int(max(queue.iterdir()).name) + size:020}")
        empty[-1].touch()
    assert told(home, "5.5.0")["removed_queue_files"] == [str(path) for path in empty]


def test_a_last_segment_that_was_cut_gets_its_size_again(home: Path) -> None:
    """The log ends at the zeros after the rest; the records that were cut off are gone."""
    path = home / "store" / "commitlog" / "00000000000007340032"
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(700_000)
    found = told(home, "5.5.0")
    assert found["obstacle"]["part"] == "log"
    follow(found["advice"])
    assert path.stat().st_size == size
    assert told(home, "5.5.0")["starts"]


def test_names_are_harmless_on_a_terminal(home: Path) -> None:
    """A queue's directory may have any name."""
    evil = home / "store" / "consumequeue" / "\x1b[31mRed" / "0"
    evil.mkdir(parents=True)
    (evil / "00000000000000000000").write_bytes(b"x")
    done = doctor(home)
    assert done.exit_code == 1
    assert "\x1b" not in done.output
    assert "\x1b" not in doctor(home, "--json").output


def test_what_is_not_known_is_refused(home: Path) -> None:
    """No guess where a release starts in another way; 4.9.3 does not know that setting."""
    with (home / "broker.conf").open("a") as conf:
        conf.write("enableControllerMode=true\n")
    assert doctor(home, "--release", "4.9.3").exit_code == 0
    done = doctor(home, "--release", "5.5.0")
    assert done.exit_code == 2
    assert "reput doctor does not know what 5.5.0 does at its start with enableControllerMode=true" in done.stderr


def test_a_directory_without_anything_of_a_store_was_not_meant(home: Path, tmp_path: Path) -> None:
    """A store that has only lost its log was; what is left of it would go."""
    shutil.rmtree(home / "store" / "commitlog")
    assert "consumequeue" in doctor(home).stdout
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").touch()
    done = invoke(["doctor", "--store", str(tmp_path / "docs")])
    assert (done.exit_code, done.stdout) == (1, "")
    assert "give the store root that holds commitlog/" in done.stderr


@pytest.mark.parametrize(
    ("kind", "light", "release", "why"),
    [
        ("no number", LIGHT, "4.9.3", "INNER_MULTI_QUEUE_OFFSET holds 'x', which is not a number): the replay tries"),
        ("no number", {}, "4.9.3", "INNER_MULTI_QUEUE_OFFSET holds 'x', which is not a number): the replay tries"),
        ("no number", LIGHT, "5.5.0", "INNER_MULTI_QUEUE_OFFSET holds 'x', which is not a number): its recovery ends"),
        ("no offset", LIGHT, "5.5.0", "INNER_MULTI_QUEUE_OFFSET holds '', which is not a number): its recovery ends"),
        ("no number", {}, "5.5.0", None),
        ("nothing", LIGHT, "4.9.3", "(it has no properties): the replay tries"),
        ("nothing", LIGHT, "5.5.0", None),
        ("other counts", LIGHT, "4.9.3", None),
        ("a retry", LIGHT, "5.5.0", None),
        ("a path", LIGHT, "5.5.0", None),
        ("a path", LIGHT, "4.9.3", "INNER_MULTI_QUEUE_OFFSET holds 'x', which is not a number): the replay tries"),
    ],
)
def test_a_whole_record_that_no_dispatch_gets_over(
    kind: str, light: dict[str, str], release: str, why: str | None, tmp_path: Path
) -> None:
    """Where the broker's own dispatch throws, it does not start; a rebuild leaves it nothing to dispatch."""
    home = further_queues_home(tmp_path / "home", kind, light, has_abort=False)
    found = told(home, release)
    if why is None:
        assert found["harmless"]
        return
    assert found["obstacle"]["part"] == "dispatch"
    assert f"the record at offset 545 fails ({why.removeprefix('(')}" in found["obstacle"]["why"]
    assert found["dispatched"] == 5
    assert [command.split()[:2] for command in execute_advice(home, release)] == [["reput", "rebuild"]]
    assert told(home, release)["harmless"]


def test_a_bad_record_that_is_not_dispatched_again_stops_nothing(tmp_path: Path) -> None:
    """5.5.0 dispatches only what begins behind its queues' end, though recovery reads what lies before it."""
    home = further_queues_home(tmp_path / "home", "no number", LIGHT, has_abort=False)
    execute_advice(home, "5.5.0")
    queue = home / "store" / "consumequeue" / "T" / "0" / "00000000000000000000"
    write(queue, 7 * 20, bytes(40))
    assert told(home, "5.5.0")["starts"]
    # The record's entry in its first light queue says that it was dispatched, too.
    shutil.rmtree(home / "store" / "consumequeue" / "%LMQ%a")
    write(queue, 4 * 20, bytes(100))
    found = told(home, "5.5.0")
    assert found["obstacle"] is not None
    assert found["obstacle"]["part"] == "dispatch"


@pytest.mark.parametrize("name", ["v5-batchcq", "v5-config-v2-batchcq"])
def test_queues_of_the_wrong_kind(name: str, tmp_path: Path) -> None:
    """5.5.0 does not start with an empty directory of one; the advised rebuild leaves the broker's files.

    A sound store with a BatchConsumeQueue is one to 5.5.0; 4.9.3 has no such queues, and is not asked unless named.
    """
    home = unpack(name, tmp_path)
    before = differing_bytes(home / "store", home / "store")
    for release in ("both", "5.5.0"):
        done = doctor(home, "--release", release)
        assert done.exit_code == 0
        assert done.output.startswith("5.5.0 starts, and nothing is lost\n")
    done = doctor(home, "--release", "4.9.3")
    assert done.exit_code == 1
    assert "gives the messages of 1 topic other queue offsets (it does not know a BatchConsumeQueue)" in done.output
    assert "reput rebuild" not in done.output
    topic = "Bq" if "v2" in name else "BatchQ"
    shutil.copytree(home / "store", tmp_path / "copy")
    (home / "store" / "consumequeue" / topic / "0").mkdir(parents=True)
    done = doctor(home, "--json")
    (found,) = json.loads(done.output)["releases"].values()
    assert (done.exit_code, found["starts"]) == (1, False)
    follow(found["advice"])
    assert differing_bytes(tmp_path / "copy", home / "store") == before == {}
    assert not (home / "store" / "consumequeue" / topic).exists()


def test_queues_in_both_that_have_lost_their_files(tmp_path: Path) -> None:
    """RocksDB has the queues, too: the setting tells that files should be there, and a rebuild makes them again."""
    home = unpack("v5-double-write-lite", tmp_path)
    shutil.rmtree(home / "store" / "consumequeue" / "T")
    found = told(home, "5.5.0")
    assert not found["harmless"]
    execute_advice(home, "5.5.0")
    assert told(home, "5.5.0")["harmless"]
    with (home / "broker.conf").open("a") as conf:
        conf.write("rocksdbCQDoubleWriteEnable=false\n")
    shutil.rmtree(home / "store" / "consumequeue" / "T")
    assert not told(home, "5.5.0")["harmless"]
    (home / "broker.conf").write_text((home / "broker.conf").read_text().replace("storeType=default\n", ""))
    assert "with queues in RocksDB alone" in doctor(home).stderr


def test_files_that_end_before_the_rocksdb_that_is_read(tmp_path: Path) -> None:
    """The broker compares both and does not start; where it reads the files, and where a queue is gone, it does."""
    home = unpack("v5-double-write-lite", tmp_path)
    assert told(home, "5.5.0")["harmless"]
    queue = home / "store" / "consumequeue" / "T" / "0"
    (file,) = queue.iterdir()
    write(file, 100, bytes(file.stat().st_size - 100))
    found = told(home, "5.5.0")
    assert found["obstacle"]["part"] == "queues"
    assert "the files of the queue T-0 end before RocksDB" in found["verdict"]
    conf = home / "broker.conf"
    text = conf.read_text()
    conf.write_text(text.replace("combineCQPreferCQType=defaultRocksDB\n", ""))
    assert told(home, "5.5.0")["starts"]
    conf.write_text(text)
    execute_advice(home, "5.5.0")
    assert told(home, "5.5.0")["harmless"]
    shutil.rmtree(queue)
    found = told(home, "5.5.0")
    assert found["starts"]
    assert not found["harmless"]


def test_queues_of_an_unknown_kind_are_refused(tmp_path: Path) -> None:
    """Topics that are gone: no advice, which would make plain queues."""
    home = unpack("v5-batchcq", tmp_path)
    for path in (home / "store" / "config").glob("topics.json*"):
        path.unlink()
    done = doctor(home)
    assert done.exit_code == 1
    assert "has queues of the topic BatchQ, which" in done.stderr
    assert "rebuild" not in done.output
