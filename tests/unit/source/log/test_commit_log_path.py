"""A path that is not a commitlog: the right one is taken, or one line says what to give; it never has no rows."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest
from pyspark.sql.types import StructType
from support.command_line import run_reput
from support.logs import varied_messages
from support.record_writer import write_log

from reput.source.data_source import CommitLogDataSource
from reput.source.errors import OptionError, ReputError, StoreError
from reput.source.log.mapped_file_queue import MappedFileQueue
from reput.source.log.store_layout import given_commit_logs

SIZE = 1 << 16
MESSAGES = 10

COMMANDS: dict[str, tuple[str, ...]] = {
    "tail": ("tail", "--output", "O", "--available-now"),
    "rebuild": ("rebuild", "--output", "O"),
    "verify": ("verify", "--output", "O"),
    "recover": ("recover", "--output", "O"),
    "expire": ("expire", "--output", "O"),
    "query": ("query", "--msg-id", "7F0000010000771000000000001193BF"),
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Make a directory with a store, and with everything that might be taken for one."""
    data = tmp_path / "data"
    write_log(data / "store" / "commitlog", varied_messages(MESSAGES), SIZE)
    (data / "store" / "consumequeue" / "T" / "0").mkdir(parents=True)
    (data / "empty").mkdir()
    (data / "other").mkdir()
    (data / "other" / "x\x1b.txt").touch()
    (data / "link").symlink_to("nowhere")
    (data / "file").touch()
    write_log(data / "disks" / "log", varied_messages(MESSAGES), SIZE)
    (data / "half" / "commitlog" / "commitlog").mkdir(parents=True)
    write_log(tmp_path / "d" / "dledger-n0" / "data", varied_messages(MESSAGES), SIZE, dledger=True)
    return data


HOLDS_ONE = "; {data}/store/commitlog is one, in the store root {data}/store"
MISSING = "no commitlog at {path}/commitlog: the directory does not exist"
HOLDS = "no commitlog at {{path}}/commitlog: the directory holds {}, and no file of a commitlog (a name of 20 digits)"
NONE = "; give the store root that holds commitlog/"

#: The value of --store, and the error after "no store at" or "no commitlog at" and the path.
WRONG_STORES = [
    ("store/commitlog", MISSING + HOLDS_ONE),
    ("", MISSING + HOLDS_ONE),
    ("store/consumequeue", MISSING + HOLDS_ONE),
    (f"store/commitlog/{0:020d}", "no store at {path}: it is not a directory" + HOLDS_ONE),
    ("nothing", "no store at {path}: the directory does not exist" + NONE),
    ("nothing/there", "no store at {path}: the directory does not exist" + NONE),
    ("empty", MISSING + NONE),
    ("other", MISSING + NONE),
    ("link", "no store at {path}: it is a link to nowhere, which does not exist" + NONE),
    ("file", "no store at {path}: it is not a directory" + NONE),
    ("n" * 300, "no store at {path}: it cannot be looked at (File name too long)" + NONE),
    ("disks/log", MISSING + "; {path} holds one, which a broker.conf with storePathCommitLog={path} would name"),
    ("half", HOLDS.format("commitlog") + NONE),
    ("../d/dledger-n0", MISSING + "; {path}/data is a DLedger commitlog, in the store root {data}/../d"),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_wrong_store_is_never_an_empty_one(command: str, data: Path, tmp_path: Path) -> None:
    """Each command, with each wrong path: one line on the store, nothing made, exit code 1."""
    for given, words in WRONG_STORES:
        path = data / given if given else data
        arguments = [str(tmp_path / "out") if word == "O" else word for word in COMMANDS[command]]
        if command in ("verify", "recover", "expire"):
            (tmp_path / "out").mkdir(exist_ok=True)
        logging.getLogger("reput").handlers = []  # of the command before, whose terminal is gone
        result = run_reput([arguments[0], "--store", str(path), *arguments[1:]], code=1)
        assert result.stderr.splitlines() == ["reput: " + words.format(path=path, data=data)], given
        assert not (tmp_path / "out").exists() or not list((tmp_path / "out").glob("*/*"))


def test_a_dledger_store(data: Path, tmp_path: Path) -> None:
    """Its root is not that of a plain store, and the directory above is not a store either."""
    for command, words in COMMANDS.items():
        arguments = [str(tmp_path / "out") if word == "O" else word for word in words]
        result = run_reput([command, "--store", str(tmp_path / "d"), *arguments[1:]], code=2)
        assert f"{tmp_path}/d/dledger-n0 holds a DLedger commitlog: set enableDLegerCommitLog=true" in result.stderr


# --- the data source -------------------------------------------------------------------------------------


def count(path: str, **options: str) -> int:
    """The rows of a batch read, as Spark reads them."""
    given = {"path": path, "tailGuardMs": "0", **options}
    reader = CommitLogDataSource(given).reader(StructType())
    return sum(batch.num_rows for partition in reader.partitions() for batch in reader.read(partition))


def test_the_data_source_finds_the_log_in_a_store(data: Path, tmp_path: Path) -> None:
    """A store root, its commitlog, several directories, and DLedger's root with the option."""
    store = data / "store"
    assert count(f"{store}") == count(f"{store}/commitlog") == count(f"{store},{store}/commitlog") == MESSAGES
    assert count(f"{store}/commitlog,{data}/empty") == MESSAGES  # one of a broker's disks, not yet used
    for path in ("d", "d/dledger-n0/data"):
        assert count(str(tmp_path / path), enableDLegerCommitLog="true") == MESSAGES
    (data / "empty" / "commitlog").mkdir()
    assert count(f"{data}/empty") == count(f"{data}/empty/commitlog") == 0  # a new broker's


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("{data}", "no commitlog at {data}: the directory holds disks, empty, file, ..., and no file of a commitlog"),
        ("{data}/empty", "no commitlog at {data}/empty: the directory is empty" + NONE),
        ("{data}/other", r"no commitlog at {data}/other: the directory holds x\x1b.txt, and no file of a commitlog"),
        ("{data}/link", "no commitlog at {data}/link: it is a link to nowhere, which does not exist" + NONE),
        ("{data}/file", "no commitlog at {data}/file: it is not a directory" + NONE),
        ("{data}/nothing", "no commitlog at {data}/nothing: the directory does not exist" + NONE),
        ("{data}/store/consumequeue", "no commitlog at {data}/store/consumequeue: the directory holds T, and no file"),
        ("{data}/half", "no commitlog at {data}/half/commitlog: the directory holds commitlog, and no file of a"),
        ("{data}/store/commitlog,{data}/nothing", "no commitlog at {data}/nothing: the directory does not exist"),
        ("{data}/store/commitlog,{data}/other", "no commitlog at {data}/other: the directory holds"),
        ("{data}/../d", "{data}/../d/dledger-n0 holds a DLedger commitlog: set enableDLegerCommitLog=true to read it"),
        ("{data}/../d/dledger-n0/data", "{data}/../d/dledger-n0/data is a DLedger commitlog: set"),
    ],
)
def test_the_data_source_never_reads_nothing_from_a_wrong_path(given: str, words: str, data: Path) -> None:
    """Batch and stream refuse it with the store that is near."""
    options = {"path": given.format(data=data), "tailGuardMs": "0"}
    calls: list[Callable[[], object]] = [
        lambda: count(options["path"]),
        lambda: CommitLogDataSource(options).streamReader(StructType()).initialOffset(),
    ]
    for call in calls:
        with pytest.raises((StoreError, OptionError)) as raised:
            call()
        message, _ = str(raised.value).splitlines()  # and its fields
        assert message.startswith(words.format(data=data))
        assert message.isprintable()
        assert isinstance(raised.value, ReputError)


@pytest.mark.parametrize(
    "look", [lambda log: MappedFileQueue.load([log]), lambda log: given_commit_logs([log], dledger=False)]
)
def test_a_first_segment_that_comes_between_two_looks(
    look: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker makes its first segment at any time; the directory is a commitlog before and after."""
    log = tmp_path / "commitlog"
    log.mkdir()
    scandir = os.scandir

    def then_the_broker(path: Path) -> AbstractContextManager[object]:
        listed = list(scandir(path))
        if Path(path) == log:
            (log / f"{0:020d}").touch()
        return nullcontext(iter(listed))

    monkeypatch.setattr(os, "scandir", then_the_broker)
    assert look(log)
