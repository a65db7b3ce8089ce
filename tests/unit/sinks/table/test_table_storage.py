"""A table's files on a local disk and on S3: the same promises; and servers that do not keep theirs."""

from __future__ import annotations

import os
import pickle
import stat
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faults.fault_files import Stopped
from support.s3_server import BUCKET, WRONG_KEY, S3Server, s3_server

from reput.sinks.table import storage as storage_module
from reput.sinks.table.location import S3Location, beside, logged_name, parse_location
from reput.sinks.table.storage import LOG, PROBE, LocalStorage, S3Place, S3Storage, TableStorage, table_storage
from reput.source.errors import OptionError, OutputError, OutputFailingError

FIRST = f"{LOG}/{0:020d}.json"
HOUR_S = 3600


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


def use(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_module, "_tried", set())
    monkeypatch.setattr(storage_module, "_PAUSES_S", (0.0, 0.0))
    for name in ("AWS_PROFILE", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL_S3", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)


def on_s3() -> S3Storage:
    return S3Storage(S3Location(BUCKET, f"tables/{uuid.uuid4()}"))


@pytest.fixture(params=["local", "s3"])
def storage(
    request: pytest.FixtureRequest, tmp_path: Path, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> TableStorage:
    if request.param == "local":
        (tmp_path / "table" / LOG).mkdir(parents=True)
        return table_storage(tmp_path / "table")
    use(server, monkeypatch)
    return on_s3()


class TestTableStorage:
    """The promises on which every module of the table relies."""

    def test_what_is_put_is_read(self, storage: TableStorage) -> None:
        data = bytes(range(256)) * 40
        before = time.time()
        storage.put("a/b c.bin", pa.py_buffer(data), durable=False)
        storage.make_durable(["a/b c.bin"])
        assert storage.read("a/b c.bin") == data
        with storage.open("a/b c.bin") as file:
            assert (file.size(), bytes(file.read_at(5, 250))) == (len(data), data[250:255])
        status = storage.status("a/b c.bin")
        assert status is not None
        assert (status.name, status.size_bytes) == ("a/b c.bin", len(data))
        assert before - 2 < status.modified_s < time.time() + 2
        storage.put("a/b c.bin", b"other", durable=True)
        assert storage.read("a/b c.bin") == b"other"

    def test_a_new_file_is_there_whole_or_not_at_all(self, storage: TableStorage) -> None:
        """It is written piece by piece; an error leaves no file."""
        with storage.new("a.bin") as file:
            for _ in range(3):
                file.write(b"12345")
            assert file.tell() == 15
        assert storage.read("a.bin") == b"12345" * 3
        with suppress(Stopped), storage.new("b.bin") as file:
            file.write(b"12345")
            raise Stopped
        assert [each.name for each in storage.files()] == ["a.bin"]

    def test_what_is_missing(self, storage: TableStorage) -> None:
        assert storage.status("none") is None
        assert storage.files("none") == []
        storage.remove(["none", "none/below"], durable=True)
        for action in (storage.read, storage.open):
            with pytest.raises(FileNotFoundError):
                action("none")

    def test_lists(self, storage: TableStorage) -> None:
        names = ["a.parquet", "_keys/a.parquet.bloom", "_keys/day=1/b.parquet.bloom", FIRST]
        for name in names:
            storage.put(name, name.encode(), durable=True)
        assert {file.name for file in storage.files()} == {"a.parquet"}
        assert {file.name for file in storage.files("_keys")} == {names[1]}
        assert {file.name: file.size_bytes for file in storage.files(deep=True)} == {name: len(name) for name in names}
        storage.remove(names[1:])
        assert [file.name for file in storage.files(deep=True)] == ["a.parquet"]
        assert storage.statuses(["a.parquet", *names[1:]])[1:] == [None] * 3

    def test_the_status_of_many(self, storage: TableStorage) -> None:
        storage.put("day=1/a.parquet", b"x", durable=True)
        found = storage.statuses(["day=1/a.parquet", *(f"{number}.parquet" for number in range(100))])
        assert [None if each is None else each.size_bytes for each in found] == [1, *[None] * 100]

    def test_one_is_first(self, storage: TableStorage) -> None:
        assert storage.put_if_absent(FIRST, b"one")
        assert not storage.put_if_absent(FIRST, b"two")
        assert storage.read(FIRST) == b"one"
        storage.put(FIRST, b"six", durable=True)
        assert storage.read(FIRST) == b"six"
        assert {file.name for file in storage.files(deep=True)} == {FIRST}

    def test_of_many_one_is_first(self, storage: TableStorage) -> None:
        """Each name has one winner, and the winner's bytes."""
        won: list[tuple[str, bytes]] = []

        def race(writer: int) -> None:
            for number in range(20):
                name, data = f"{LOG}/{number:020d}.json", b"%d" % writer
                if storage.put_if_absent(name, data):
                    won.append((name, data))

        writers = [threading.Thread(target=race, args=(writer,)) for writer in range(4)]
        for each in writers:
            each.start()
        for each in writers:
            each.join()
        assert len(won) == len(dict(won)) == 20
        assert all(storage.read(name) == data for name, data in won)

    def test_parquet(self, storage: TableStorage) -> None:
        rows, buffer = pa.table({"a": list(range(1000))}), pa.BufferOutputStream()
        pq.write_table(rows, buffer, row_group_size=100)
        storage.put("x.parquet", buffer.getvalue(), durable=False)
        with storage.parquet("x.parquet") as file:
            assert file.read_row_group(3).equals(rows.slice(300, 100))
        storage.put("x.parquet", b"PAR1 torn", durable=False)
        with pytest.raises(pa.ArrowException), storage.parquet("x.parquet"):
            pass

    def test_tasks_get_it(self, storage: TableStorage) -> None:
        copied = pickle.loads(pickle.dumps(storage))
        copied.put("x", b"1", durable=True)
        assert storage.read("x") == b"1"

    def test_names_in_the_log(self, storage: TableStorage) -> None:
        assert logged_name(storage.location, "day=1/a%20b.parquet") == "day=1/a b.parquet"
        assert logged_name(storage.location, f"{storage.uri}/a%20b.parquet") == "a b.parquet"
        elsewhere = f"{beside(storage.location, '-other')}/a.parquet"
        assert logged_name(storage.location, elsewhere) == elsewhere


def test_a_file_of_another_table(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a shallow clone has it."""
    use(server, monkeypatch)
    here, there = on_s3(), on_s3()
    there.put("a b.parquet", b"x", durable=True)
    name = logged_name(here.location, f"{there.uri}/a%20b.parquet")
    assert here.read(name) == b"x"
    assert here.statuses([name, *map(str, range(99))])[0] is not None


KINDS = {
    "lossy": None,
    "conflict": None,
    "ignores": "ignores If-None-Match, so writers",
    "refuses": "cannot write to s3a://",
}


@pytest.mark.parametrize("kind", KINDS)
def test_bad_servers(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that lose an answer or want the put again are served; those that would lose commits are refused."""
    with s3_server(kind) as bad:
        use(bad, monkeypatch)
        storage = on_s3()
        if (refusal := KINDS[kind]) is None:
            storage.check()
            assert storage.put_if_absent(FIRST, b"one")
            assert not storage.put_if_absent(FIRST, b"two")
            assert storage.read(FIRST) == b"one"
        else:
            with pytest.raises(OutputError, match=refusal):
                storage.check()
            with pytest.raises(OutputError, match=refusal):
                storage.put_if_absent(FIRST, b"one")
        assert not [file for file in storage.files(deep=True) if PROBE in file.name]


def test_the_server_is_tried_once(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    use(server, monkeypatch)
    storage = on_s3()
    for _ in range(2):
        storage.check()
    assert (
        sum(PROBE in each and each.startswith("PUT") for each in server.requests if storage.location.key in each) == 2
    )


def failed(action: Callable[[], object]) -> str:
    with pytest.raises(OSError) as raised:
        action()
    return str(raised.value)


def test_errors_in_words(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which bucket, which server; and no word of the credentials."""
    use(server, monkeypatch)
    nowhere = S3Storage(S3Location("nowhere", "t"))
    assert failed(nowhere.files) == "there is no bucket nowhere"
    with pytest.raises(OutputError, match="cannot write s3a://nowhere/t/x: there is no bucket nowhere"):
        nowhere.put("x", b"1", durable=True)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", WRONG_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret")
    refused = S3Storage(S3Location(BUCKET, "t"))
    for action in (refused.files, lambda: refused.read("x"), lambda: refused.status("x")):
        said = failed(action)
        assert said == f"{server.url} refuses the credentials, or they do not allow this"
        assert "very-secret" not in said
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    down = S3Storage(S3Location(BUCKET, "t"))
    assert failed(down.files) == "http://127.0.0.1:9 does not answer"
    for action in (lambda: down.put("x", b"1", durable=True), lambda: down.remove(["x"])):
        with pytest.raises(OutputFailingError, match="does not answer"):  # a run waits for it
            action()


def test_where_s3_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment beats the profile, and what is for S3 alone what is for all of AWS."""
    config = tmp_path / "config"
    config.write_text(
        "[default]\nregion = eu-west-1\n[profile p]\nregion = eu-west-2\nendpoint_url = http://127.0.0.1:1\n"
    )
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    assert S3Place.of("b") == S3Place(None, "eu-west-1")
    monkeypatch.setenv("AWS_PROFILE", "p")
    assert S3Place.of("b") == S3Place("http://127.0.0.1:1", "eu-west-2")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://127.0.0.1:2")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "x")
    assert S3Place.of("b") == S3Place("https://127.0.0.1:2", "x")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:3")
    monkeypatch.setenv("AWS_REGION", "y")
    assert S3Place.of("b") == S3Place("http://127.0.0.1:3", "y")
    config.write_text("no configuration")
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    assert S3Place.of("b") == S3Place("http://127.0.0.1:3", "us-east-1")


def test_locations() -> None:
    assert parse_location("/data/t") == Path("/data/t")
    assert parse_location("a:/b") == Path("a:/b")
    found = parse_location("s3a://bucket/a/b/")
    assert found == parse_location("s3://bucket/a/b") == S3Location("bucket", "a/b")
    assert (str(found), str(found / "c"), found.name) == ("s3a://bucket/a/b", "s3a://bucket/a/b/c", "b")
    assert str(beside(found, "-quarantine")) == "s3a://bucket/a/b-quarantine"
    assert beside(Path("/data/t"), "-q") == Path("/data/t-q")
    assert isinstance(table_storage(Path("/data/t")), LocalStorage)
    for text in (
        "s3a://",
        "s3a://bucket",
        "s3a:///a",
        "s3a://b/a//c",
        "s3a://b/../c",
        "s3a://b/a b",
        "s3a:/b/a",
        "s3:b",
    ):
        with pytest.raises(OptionError):
            parse_location(text)


def test_credentials_in_a_name_are_refused_unseen() -> None:
    with pytest.raises(OptionError, match="no credentials in its name; leave them to AWS_ACCESS_KEY_ID") as error:
        parse_location("s3a://AKIAKEY:very-secret@bucket/t")
    assert "AKIAKEY" not in str(error.value)
    assert "very-secret" not in str(error.value)


def test_a_commit_is_as_private_as_other_files(tmp_path: Path) -> None:
    """Its statistics have topics: who may read it is left to the process' umask."""
    (tmp_path / LOG).mkdir()
    before = os.umask(0o077)
    try:
        assert table_storage(tmp_path).put_if_absent(FIRST, b"{}")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / FIRST).stat().st_mode) == 0o600


@pytest.mark.parametrize("kind", ["json", "crc"])
def test_what_a_dead_process_left_of_a_commit_goes_after_an_hour(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checksum goes, too; a living process has it for moments, and files that are not reput's stay."""
    storage, log = LocalStorage(tmp_path), tmp_path / LOG
    log.mkdir()
    others = {f".{0:020d}.{kind}.tmp", f"{0:020d}.{kind}.reput-1.tmp", ".notes.reput-1.tmp"}
    for name in others:
        (log / name).write_text("x")
    with monkeypatch.context() as dying:
        dying.setattr(os, "link", mock.Mock(side_effect=Stopped))
        dying.setattr(os, "unlink", mock.Mock())
        with pytest.raises(Stopped):
            storage.put_if_absent(f"{LOG}/{0:020d}.{kind}", b"x")
    found = {path.name for path in log.iterdir()}
    assert len(found - others) == 1
    storage = LocalStorage(tmp_path)
    assert storage.put_if_absent(f"{LOG}/new", b"x")
    assert {path.name for path in log.iterdir()} == found | {"new"}
    for path in log.iterdir():
        os.utime(path, (time.time() - HOUR_S - 1,) * 2)
    assert not LocalStorage(tmp_path).put_if_absent(f"{LOG}/new", b"x")
    assert {path.name for path in log.iterdir()} == others | {"new"}
