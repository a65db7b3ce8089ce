"""`reput doctor` with a forgotten ``--broker-conf`` or another broker's, and on the store of a running broker."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.broker_stores import unpack
from support.command_line import invoke
from support.sink_runner import files_below
from support.store_damage import write
from typer.testing import Result

from reput.source.releases import CHANGING_RELEASES, version_text

SEGMENT, QUEUE = "mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue"
DESTROYS = ("truncate", "rebuild", "mv ", "rm ")


@pytest.fixture
def home(plain_home: Path) -> Path:
    return plain_home


def doctor(home: Path, *words: str) -> Result:
    return invoke(["doctor", "--store", str(home / "store"), *words])


def other_conf(home: Path, name: str, value: int) -> list[str]:
    """The broker's settings with another value of one."""
    lines = (home / "broker.conf").read_text().splitlines()
    text = "\n".join(f"{name}={value}" if line.startswith(f"{name}=") else line for line in lines)
    path = home.parent / "other.txt"
    path.write_text(text)
    return ["--broker-conf", str(path)]


def test_a_forgotten_broker_conf(home: Path) -> None:
    """The files tell the sizes, and the predictions are those with the broker's settings; the file is named."""
    before = files_below(home)
    right, done = doctor(home, "--broker-conf", str(home / "broker.conf")), doctor(home)
    assert (right.exit_code, done.exit_code) == (0, 0)
    lines = done.stdout.splitlines()
    assert lines[0] == (
        f"settings  {QUEUE}=6000000 (the default) does not fit {home}/store/consumequeue: all 71 queue files have "
        f"10000 bytes, as {QUEUE}=10000 makes them; the files are taken at the size they have; give --broker-conf "
        f"{home}/broker.conf"
    )
    assert "maxHashSlotNum=1000 and maxIndexNum=5000 make them" in lines[1]
    assert lines[2:] == right.stdout.splitlines()
    assert files_below(home) == before
    found = json.loads(doctor(home, "--json").stdout)
    assert [each["fits"] for each in found["settings"]] == [
        {QUEUE: 10000},
        {"maxHashSlotNum": 1000, "maxIndexNum": 5000},
    ]


@pytest.mark.parametrize(
    ("name", "value", "verdict"),
    [
        (SEGMENT, 2097152, "does not start"),
        (SEGMENT, 524288, "does not start"),
        (QUEUE, 20000, "does not start"),
        (QUEUE, 5000, "does not start"),
        ("maxIndexNum", 2500, "starts, and misreads the index"),
    ],
)
def test_another_brokers_conf(name: str, value: int, verdict: str, home: Path) -> None:
    """The setting is named, and the file that has the right one; nothing is advised that changes the store."""
    for found_beside in (True, False):
        words = other_conf(home, name, value)
        if not found_beside:
            (home / "broker.conf").unlink()
        done = doctor(home, *words)
        assert done.exit_code == 1
        for release in ("4.9.3", "5.5.0"):
            assert f"{release} {verdict}: " in done.stdout
        assert f"{name}={value} (" in done.stdout
        assert f"{words[1]}, line " in done.stdout
        assert not [word for word in DESTROYS if word in done.stdout]
        if found_beside:
            advised = f"reput doctor --store {home}/store --broker-conf {home}/broker.conf"
            assert f"       {advised}\n" in done.stdout
            assert invoke(advised.split()[1:]).exit_code == 0
        else:
            assert "or set " in done.stdout


@pytest.mark.parametrize(
    ("change", "code", "told"),
    [
        ("mappedFileSizeConsumeQueue=20000", 1, "5.5.1 does not start: mappedFileSizeConsumeQueue=20000 (--set "),
        ("maxIndexNum=10000", 0, "5.5.1 starts, and nothing is lost"),
        ("maxIndexNum=2500", 1, "5.5.1 starts, and misreads the index: "),
        ("maxHashSlotNum=2000", 1, "5.5.1 starts, and misreads the index: "),
        ("forceVerifyPropCRC=true", 1, "(no checksum in the properties)"),
        ("messageIndexEnable=false", 0, "5.5.1 starts, and nothing is lost"),
    ],
)
def test_a_setting_is_tried(change: str, code: int, told: str, home: Path) -> None:
    """As if broker.conf had it; nothing is written, and nothing is advised."""
    before, conf = files_below(home), str(home / "broker.conf")
    done = doctor(home, "--broker-conf", conf, "--release", "5.5.1", "--set", change)
    assert (done.exit_code, told in done.stdout) == (code, True)
    assert "what to do" not in done.stdout
    assert ("  way back  " in done.stdout) == ("does not start" in told or code == 0)
    assert files_below(home) == before


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("maxIndexNum", "--set maxIndexNum: name=value wanted"),
        ("storePathRootDir=/x", "reput doctor does not know what this setting changes at a start"),
        ("maxindexnum=5", "reput doctor does not know what this setting changes at a start"),
    ],
)
def test_settings_that_are_not_tried(change: str, why: str, home: Path) -> None:
    done = doctor(home, "--broker-conf", str(home / "broker.conf"), "--set", change)
    assert (done.exit_code, why in done.output) == (2, True)


def test_an_upgrade_path(home: Path) -> None:
    """A line for each release from which on something is different."""
    words = ["--broker-conf", str(home / "broker.conf"), "--release", "all"]
    done = doctor(home, *words)
    assert done.exit_code == 0
    heads, *rows = done.stdout.splitlines()
    assert heads.split("  ")[0] == "release"
    assert [row.split()[:6] for row in rows] == [
        [version_text(version), "yes", "0", "0", "0", "0"] for version in CHANGING_RELEASES
    ]
    done = doctor(home, *words, "--set", "mappedFileSizeCommitLog=4096")
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert [row.split()[1] for row in lines[1:12]] == ["no"] * 11
    assert lines[12].startswith("4.9.3 does not start: mappedFileSizeCommitLog=4096 (--set ")
    assert doctor(home, "--release", "5.6.0").exit_code == 2


def test_an_upgrade_path_of_queues_in_rocksdb(tmp_path: Path) -> None:
    """Releases that look for files, and those that read the database."""
    home = unpack("v5-rocksdb", tmp_path)
    done = doctor(home, "--broker-conf", str(home / "broker.conf"), "--release", "all")
    rows = [line.split() for line in done.stdout.splitlines()[1:]]
    assert [(row[0], row[3], row[6]) for row in rows] == [
        ("4.9.3", "0", "293"),
        *[(version, "498", "0") for version in ("5.0.0", "5.1.0", "5.1.1", "5.1.2", "5.1.3")],
        # The earliest has no light queues there.
        ("5.2.0", "0", "0"),
        *[(version, "0", "0") for version in ("5.3.2", "5.4.0", "5.5.0", "5.5.1")],
    ]


@pytest.mark.parametrize(
    ("has_abort", "judged", "refused", "short", "beyond"),
    [
        # The broker's search for the end of one queue stops at its first look: 38 messages are left out. It leaves the
        # queues alone all of whose messages are cut off.
        (False, "5.5.0", "5.2.0", 38, 296),
        # Another thread writes what is dispatched, from 5.3.2 on; before, nothing is cut.
        (True, "5.2.0", "5.5.0", 0, 338),
    ],
)
def test_queues_in_rocksdb_that_reach_past_the_logs_end(
    has_abort: bool, judged: str, refused: str, short: int, beyond: int, tmp_path: Path
) -> None:
    """Zeros where the 40th of 80 half messages begins; with `abort`, the queues without a later message stay."""
    home = unpack("v5-rocksdb", tmp_path)
    if has_abort:
        (home / "store" / "abort").touch()
    write(home / "store" / "commitlog" / f"{0:020d}", 53_314, bytes(8))
    words = ("--broker-conf", str(home / "broker.conf"), "--release")
    done = doctor(home, *words, judged, "--json")
    found = json.loads(done.stdout)["releases"][judged]
    assert (done.exit_code, found["log_end"]) == (1, 53_314)
    assert (sum(queue["missing"] for queue in found["queues"]), found["beyond_end"]) == (short, beyond)
    assert f"{beyond} entries lead behind the log's end and stay" in doctor(home, *words, judged).stdout
    assert doctor(home, *words, refused).exit_code == 2


def test_a_conf_without_sizes_is_one_with_the_defaults(home: Path) -> None:
    """A broker with it makes segments of 1 GiB."""
    (home / "other.txt").write_text(f"storePathRootDir={home}/store\n")
    done = doctor(home, "--broker-conf", str(home / "other.txt"))
    assert done.exit_code == 1
    assert (
        f"{SEGMENT}=1073741824 (the default) does not fit commitlog: all 10 segments have 1048576 bytes" in done.stdout
    )
    assert not [word for word in DESTROYS if word in done.stdout]


def test_damage_with_a_forgotten_conf_is_asked_about_again_first(home: Path) -> None:
    """A rebuild in place without the broker's settings would be refused."""
    shutil.rmtree(home / "store" / "consumequeue" / "TopicA")
    done = doctor(home)
    assert done.exit_code == 1
    assert not [word for word in DESTROYS if word in done.stdout]
    assert f"reput doctor --store {home}/store --broker-conf {home}/broker.conf" in done.stdout
    assert "reput rebuild" in doctor(home, "--broker-conf", str(home / "broker.conf")).stdout


def test_a_conf_of_the_store_that_was_not_given(home: Path) -> None:
    """Queues and index are lost, so that no file contradicts the defaults."""
    for name in ("consumequeue", "index"):
        shutil.rmtree(home / "store" / name)
    done = doctor(home)
    assert (
        f"settings  {home}/broker.conf names the store {home}/store and was not given: it sets {QUEUE}, " in done.stdout
    )
    assert not [word for word in DESTROYS if word in done.stdout]


def keep_one_segment(store: Path) -> Path:
    """Leave a log of one segment whose last record is whole."""
    last = max((store / "commitlog").iterdir())
    for segment in (store / "commitlog").iterdir():
        if segment != last:
            segment.unlink()
    return last


def test_the_only_segment(home: Path) -> None:
    """Zeros at its end prove nothing: doctor advises no size before the user has stated it twice."""
    segment = keep_one_segment(home / "store")
    segment.rename(segment.with_name("0" * 20))
    words = other_conf(home, SEGMENT, 2097152)
    done = doctor(home, *words, "--release", "4.9.3")
    assert (
        "does not start: commitlog/00000000000000000000 has 1048576 bytes where files of 2097152 are set" in done.stdout
    )
    assert not [word for word in DESTROYS if word in done.stdout]
    said_twice = doctor(home, *words, "--release", "4.9.3", "--option", f"{SEGMENT}=2097152")
    assert "truncate -s 2097152 " in said_twice.stdout


def test_the_only_segment_is_cut_in_a_record(home: Path) -> None:
    """No broker leaves such an end: it was cut, and gets its size back."""
    segment = keep_one_segment(home / "store")
    os.truncate(segment, 100_000)
    done = doctor(home, "--broker-conf", str(home / "broker.conf"), "--release", "4.9.3")
    assert "has 100000 bytes where files of 1048576 are set" in done.stdout
    assert "truncate -s 1048576 " in done.stdout


HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX, 1, 0)
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("command", [("doctor",), ("verify",)])
def test_a_broker_runs_on_the_store(command: Sequence[str], home: Path) -> None:
    """It locks a byte of ``lock``, as does this process; the next look finds it free."""
    lock, pipe = home / "store" / "lock", subprocess.PIPE
    words = [*command, "--store", str(home / "store"), "--broker-conf", str(home / "broker.conf")]
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(lock)], stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        done, as_json = invoke(words), invoke([*words, "--json"])
        process.communicate()
    assert done.exit_code == 0
    holder = f"a broker or another reput (process {process.pid}) runs on "
    assert holder in done.output
    assert f"(process {process.pid})" in json.loads(as_json.stdout)["running"]
    after, as_json = invoke(words), invoke([*words, "--json"])
    assert "runs on" not in after.output
    assert json.loads(as_json.stdout)["running"] is None
