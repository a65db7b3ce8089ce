"""A forgotten ``--broker-conf``, or another broker's: commands that read go by the files, commands that write stop."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from support.broker_stores import unpack
from support.command_line import invoke, run_reput
from support.sink_runner import files_below

from reput.sinks.index.index_reader import deduced_sizes
from reput.source.errors import ForeignSettingsError
from reput.streaming.config.broker_conf import broker_conf_of
from reput.streaming.config.pipeline import load_config
from reput.streaming.config.stored_sizes import Kind, check_fits_files, misfits

V4 = (4, 9, 3)


@pytest.fixture
def home(plain_home: Path) -> Path:
    return plain_home


def conf(home: Path, *changes: tuple[str, str]) -> Path:
    """The store's broker.conf with other values, where no reput looks for one."""
    text = (home / "broker.conf").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (home / "given").mkdir(exist_ok=True)
    (home / "given" / "other.conf").write_text(text)
    return home / "given" / "other.conf"


TWICE = {
    "segments": (("mappedFileSizeCommitLog=1048576", "mappedFileSizeCommitLog=2097152"),),
    "queues": (("mappedFileSizeConsumeQueue=10000", "mappedFileSizeConsumeQueue=20000"),),
    "index": (("maxIndexNum=5000", "maxIndexNum=10000"),),
}
HALF = {
    "segments": (("mappedFileSizeCommitLog=1048576", "mappedFileSizeCommitLog=524288"),),
    "queues": (("mappedFileSizeConsumeQueue=10000", "mappedFileSizeConsumeQueue=5000"),),
    "index": (("maxHashSlotNum=1000", "maxHashSlotNum=500"),),
}
IN_PLACE: Sequence[Sequence[str]] = (
    ("rebuild",),
    ("rebuild", "--only", "index"),
    ("rebuild", "--topic", "TopicA"),
    ("recover",),
    ("recover", "--dry-run"),
    ("expire",),
    ("tail", "--available-now"),
)


@pytest.mark.parametrize("given", ["nothing", *TWICE])
def test_nothing_is_written_in_place(given: str, home: Path) -> None:
    """Whatever command it is; the line names the setting, its value, the files' size, what fits and the right file."""
    words = [] if given == "nothing" else ["--broker-conf", str(conf(home, *TWICE[given]))]
    before = files_below(home)
    for command in IN_PLACE:
        store = str(home / "store")
        done = invoke(
            [*command, "--store", store, "--output", store, *words, *([] if "tail" in command else ["--json"])]
        )
        if "tail" not in command:
            error = json.loads(done.stderr)["error"]
            assert (error["code"], error["exitCode"]) == ("foreign-settings", 2)
            assert error["advice"] == f"give --broker-conf {home}/broker.conf"
        assert done.exit_code == 2, done.output
        assert "nothing was changed: " in done.stderr
    assert files_below(home) == before
    name, value, found, fits = {
        "nothing": ("mappedFileSizeConsumeQueue", 6000000, "all 71 queue files have 10000", 10000),
        "segments": ("mappedFileSizeCommitLog", 2097152, "all 10 segments have 1048576", 1048576),
        "queues": ("mappedFileSizeConsumeQueue", 20000, "all 71 queue files have 10000", 10000),
        "index": ("maxIndexNum", 10000, "all 12 index files have 104040", 5000),
    }[given]
    origin = "the default" if given == "nothing" else f"{home}/given/other.conf, line "
    assert f"{name}={value} ({origin}" in done.stderr
    assert f"{found} bytes, as " in done.stderr
    assert f"{name}={fits} make" in done.stderr


@pytest.mark.parametrize("given", ["nothing", *TWICE, *(f"half {name}" for name in HALF)])
def test_what_only_reads_goes_by_the_files(given: str, home: Path) -> None:
    """With one line that says so, and the same result as with the right settings."""
    changes = HALF.get(given.removeprefix("half "), ()) if given.startswith("half") else TWICE.get(given, ())
    wrong = [] if given == "nothing" else ["--broker-conf", str(conf(home, *changes))]
    right = ["--broker-conf", str(home / "broker.conf")]
    store = ["--store", str(home / "store")]
    index = min((home / "store" / "index").iterdir())
    for command in (
        ("verify", *store),
        ("query", *store, "--topic", "TopicA", "--key", "wZwaha7"),
        ("dump", *store, "--limit", "3"),
        ("dump", "--file", str(index), "--limit", "3"),
    ):
        expected, done = invoke([*command, *right]), invoke([*command, *wrong])
        assert (done.exit_code, done.stdout) == (expected.exit_code, expected.stdout) == (0, done.stdout)


def test_the_line_that_says_so(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert invoke(["query", "--store", str(home / "store"), "--topic", "TopicA", "--key", "wZwaha7"]).exit_code == 0
    (line,) = (record.getMessage() for record in caplog.records)
    assert line == (
        "maxHashSlotNum=5000000 and maxIndexNum=20000000 (the default, for files of 420000040 bytes) do not fit "
        f"{home}/store/index: all 12 index files have 104040 bytes, as maxHashSlotNum=1000 and maxIndexNum=5000 make "
        f"them; the files are read by the size they have; give --broker-conf {home}/broker.conf"
    )


def test_damage_stays_damage(home: Path) -> None:
    """One file of another size does not mean another setting, whether the right settings are given or wrong ones."""
    queue = home / "store" / "consumequeue" / "TopicA" / "0"
    path = max(queue.iterdir())
    os.truncate(path, 120)
    right = load_config(home / "store", broker_conf=home / "broker.conf")
    assert misfits(right, home / "store") == []
    done = run_reput(
        ["verify", "--store", str(home / "store"), "--broker-conf", str(home / "broker.conf"), "--json"], code=1
    )
    assert json.loads(done.stdout)["parts"]["queues"]["by_kind"]["file_size"] == 1
    found = {each.kind: each for each in misfits(load_config(home / "store"), home / "store")}
    assert found[Kind.QUEUE].found.words("queue file") == "70 of 71 queue files have 10000 bytes"
    assert invoke(["verify", "--store", str(home / "store")]).exit_code == 1


def keep_one_queue_file(store: Path) -> Path:
    """Leave one queue in all, with one file."""
    queues = store / "consumequeue"
    for topic in queues.iterdir():
        if topic.name != "Auto":
            shutil.rmtree(topic)
    for queue_id in "123":
        shutil.rmtree(queues / "Auto" / queue_id)
    return queues / "Auto" / "0" / f"{0:020d}"


def test_the_only_queue_file(home: Path) -> None:
    """It is damaged if its size was stated, or if it ends in an entry; otherwise its right size is unknown."""
    path = keep_one_queue_file(home / "store")

    def of_queues(*words: str, broker_conf: Path | None = None) -> list[str]:
        config = load_config(home / "store", broker_conf=broker_conf, overrides=words)
        return [each.found.words("file") for each in misfits(config, home / "store", (Kind.QUEUE,))]

    stated = "mappedFileSizeConsumeQueue=20000"
    assert of_queues() == ["the only file has 10000 bytes"]
    assert of_queues(broker_conf=home / "broker.conf") == []
    assert of_queues(stated) == []
    assert of_queues("mappedFileSizeConsumeQueue=5000") == ["the only file has 10000 bytes"]
    for size, is_misfit in ((120, False), (125, False)):  # entries up to the end; half an entry
        os.truncate(path, size)
        assert bool(of_queues()) == is_misfit


def test_a_batch_queue_with_other_files_and_ext_files(tmp_path: Path) -> None:
    """Every kind of queue is looked at."""
    batch = unpack("v5-batchcq", tmp_path)
    text = (batch / "broker.conf").read_text().replace("BatchConsumeQueue=4600", "BatchConsumeQueue=9200")
    (batch / "other.conf").write_text(text)
    found = misfits(load_config(batch / "store", broker_conf=batch / "other.conf"), batch / "store")
    assert [(each.kind, each.fits) for each in found] == [(Kind.BATCH, {"mapperFileSizeBatchConsumeQueue": 4600})]
    ext = unpack("v4-sql92", tmp_path)
    text = (ext / "broker.conf").read_text().replace("ConsumeQueueExt=8192", "ConsumeQueueExt=16384")
    (ext / "other.conf").write_text(text)
    found = misfits(load_config(ext / "store", broker_conf=ext / "other.conf"), ext / "store")
    assert [(each.kind, each.fits) for each in found] == [(Kind.EXT, {"mappedFileSizeConsumeQueueExt": 8192})]


def test_sizes_of_an_index_that_tells_nothing(home: Path) -> None:
    """A header without a key does not show how many slots there are: the message says that this is not known."""
    index = home / "store" / "index"
    for path in index.iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    assert {deduced_sizes(path) for path in index.iterdir()} == {None}
    (found,) = misfits(load_config(home / "store"), home / "store", (Kind.INDEX,))
    assert found.fits is None
    assert str(found).endswith("all 12 index files have 104040 bytes, which settings make them is not known")


def test_sizes_of_an_index_file_that_is_not_full(home: Path) -> None:
    """The newest one's entries show them, and one that was cut does not mean another setting."""
    path = max((home / "store" / "index").iterdir())
    assert deduced_sizes(path) == (1000, 5000)
    for other in (home / "store" / "index").iterdir():
        if other != path:
            other.unlink()
    os.truncate(path, 84040)
    right = load_config(home / "store", broker_conf=home / "broker.conf")
    assert misfits(right, home / "store", (Kind.INDEX,)) == []


def nothing_left(store: Path) -> None:
    shutil.rmtree(store / "consumequeue")
    shutil.rmtree(store / "index")


@pytest.mark.parametrize("command", [("rebuild",), ("tail", "--available-now")])
def test_settings_that_no_file_contradicts_and_the_stores_own_file_does(command: Sequence[str], home: Path) -> None:
    """Queues and index are lost, and ``--broker-conf`` is forgotten: the broker's own file is beside the store."""
    nothing_left(home / "store")
    store = str(home / "store")
    done = run_reput([*command, "--store", store, "--output", store], code=2)
    assert (
        f"nothing was changed: {home}/broker.conf names the store {store} and was not given: it sets "
        "mappedFileSizeConsumeQueue, maxHashSlotNum, maxIndexNum, which have other values here; give --broker-conf "
        f"{home}/broker.conf, or say with --option which values are right"
    ) in done.stderr
    assert not (home / "store" / "consumequeue").exists()


def test_light_queues_are_not_lost_with_a_forgotten_file(tmp_path: Path) -> None:
    """Whatever of the broker's settings shapes its files, not sizes alone."""
    home = unpack("v4-lmq", tmp_path)
    sizes = [line for line in (home / "broker.conf").read_text().splitlines() if line.startswith(("mapped", "max"))]
    config = load_config(home / "store", overrides=sizes)
    with pytest.raises(ForeignSettingsError, match="it sets enableMultiDispatch, enableLmq, which have other values"):
        check_fits_files(config, home / "store")


def test_the_right_settings_are_taken(home: Path) -> None:
    """In place, and with the words of the command line in place of the file's."""
    store = str(home / "store")
    run_reput(["rebuild", "--store", store, "--output", store, "--broker-conf", str(home / "broker.conf")])
    sizes = [line for line in (home / "broker.conf").read_text().splitlines() if line.startswith(("mapped", "max"))]
    words = [word for line in sizes for word in ("-o", line)]
    assert invoke(["recover", "--store", store, "--output", store, *words]).exit_code == 0


def test_an_output_elsewhere_is_told_what_the_store_has(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its files may have sizes of their own; an output that was made for others continues as it was."""
    config = load_config(home / "store")
    check_fits_files(config, home / "out", replaces=True)
    assert [
        f"{home}/out gets files of the set size; give --broker-conf {home}/broker.conf" in text
        for text in (record.getMessage() for record in caplog.records)
    ] == [True, True]
    copy = shutil.copytree(home / "store" / "consumequeue", home / "out" / "consumequeue")
    with pytest.raises(ForeignSettingsError, match="all 71 queue files have 10000 bytes"):
        check_fits_files(config, copy.parent)


def names_the_store(home: Path, path: Path, text: str = "storePathRootDir={store}\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.format(store=home / "store"))
    return path


def found(home: Path) -> Path | None:
    known = broker_conf_of(home / "store", V4, lambda _: True)
    return None if known is None else known.path


PLACES: Sequence[Callable[[Path], Path]] = (
    lambda home: home / "broker.conf",
    lambda home: home / "conf" / "broker.conf",
    lambda home: home.parent / "conf" / "broker-a.conf",
    lambda home: home / "store" / "broker.conf",
    lambda home: home / "store" / "conf" / "broker.properties",
)


@pytest.mark.parametrize("place", PLACES)
def test_where_brokers_keep_their_settings(place: Callable[[Path], Path], home: Path) -> None:
    """A file counts if it names the store, with an absolute path or one from near it; one without a path, beside it."""
    (home / "broker.conf").unlink()
    assert found(home) is None
    path = names_the_store(home, place(home))
    assert found(home) == path
    names_the_store(home, path, "storePathRootDir=/data/another\n")
    assert found(home) is None
    names_the_store(home, path, "brokerName=b\n")
    is_beside = path.parent.name == "store" or path.parent.parent in (home, home / "store")
    assert (found(home) == path) == (is_beside or path.parent == home)


def test_rocketmq_home(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "broker.conf").unlink()
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path / "rocketmq"))
    path = names_the_store(home, tmp_path / "rocketmq" / "conf" / "broker.conf")
    assert found(home) == path
    names_the_store(home, path, "brokerName=b\n")
    assert found(home) is None


@pytest.mark.parametrize("words", [("-c", "mine.txt"), ("--configFile=mine.txt",), ("--configFile", "mine.txt")])
def test_a_running_brokers_command_line(words: Sequence[str], home: Path, tmp_path: Path) -> None:
    """It comes first, and a path in it is one from where the broker was started."""
    path = names_the_store(home, tmp_path / "started" / "mine.txt", "storePathRootDir=../home/store\n")
    (tmp_path / "wait.py").write_text("import sys\nprint('started', flush=True)\nsys.stdin.read()\n")
    command = [sys.executable, str(tmp_path / "wait.py"), "org.apache.rocketmq.broker.BrokerStartup", *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=path.parent, stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        process.stdout.readline()  # its command line exists only then
        assert found(home) == path
        process.communicate()
    assert found(home) == home / "broker.conf"


def test_a_file_that_cannot_be_read_is_passed_over(home: Path) -> None:
    (home / "broker-bad.conf").write_bytes(b"name=\\uZZZZ\n")
    (home / "broker-pipe.conf").mkdir()
    assert found(home) == home / "broker.conf"
