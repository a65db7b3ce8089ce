"""`--table s3a://...`: the commands, on a server of this machine, and what they say where it cannot work."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import deltalake
import pytest
from faults.tail_process import LogWriter, Oracle, TailProcess
from support.command_line import invoke
from support.kept_table import messages
from support.record_writer import write_log
from support.s3_server import BUCKET, WRONG_KEY, S3Server, s3_server

from reput.sinks.table.location import S3Location
from reput.sinks.table.storage import table_storage
from reput.source.log.log_reader import LogReader
from reput.source.options import SourceOptions

pytestmark = pytest.mark.spark

COUNT = 40
LIMIT_SECONDS = 120


def reput(environment: dict[str, str], *words: object, code: int = 0) -> str:
    """Run the command; return its standard output, or its standard error if it is to fail."""
    with mock.patch.dict(os.environ, environment):
        done = invoke([str(word) for word in words])
    assert done.exit_code == code, done.stderr
    return done.stderr if code else done.stdout


def process(environment: dict[str, str], *words: object, code: int = 0) -> str:
    """The same by a process of its own, for what starts Spark."""
    command = [sys.executable, "-m", "reput.streaming.cli.main", *map(str, words)]
    variables = {**os.environ, **environment, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


def tail(server: S3Server, root: Path, table: str, *options: str, code: int = 0) -> str:
    where = ("--store", root / "store", "--output", root / "out", "--table", table)
    words = ("tail", *where, "--available-now", "--option", "tailGuardMs=0", *options)
    return process(server.environment, *words, code=code)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write_log(tmp_path / "store" / "commitlog", messages(COUNT))
    return tmp_path


@pytest.mark.parametrize("all_commands", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_commands(all_commands: bool, store: Path) -> None:
    """A tail makes it, and the next has nothing to do; it is read with Spark and without."""
    table = f"s3a://{BUCKET}/{store.name}/messages"
    with s3_server() as server:
        environment, sources = server.environment, ("--store", store / "store")
        tail(server, store, table, "--option", "broker=b")
        said = reput(environment, "query", "--table", table, "--key", "k7", "--format", "json")
        assert [json.loads(line)["keys"] for line in said.splitlines()] == [["k7"]]
        told = json.loads(reput(environment, "table", "describe", "--table", table, "--json"))
        assert (told["rows"], [each["broker"] for each in told["brokers"]]) == (COUNT, ["b"])
        assert len(reput(environment, "table", "history", "--table", table, "--json").splitlines()) == 2
        reput(environment, "table", "vacuum", "--table", table)
        asked = reput(environment, "ask", "by-key", "--table", table, "--key", "k7", "--format", "json")
        found = [json.loads(line)["physical_offset"] for line in asked.splitlines()]
        assert found == [json.loads(said)["physical_offset"]]
        page = store / "report.html"
        assert f"{COUNT} messages" in reput(environment, "report", "--table", table, "--html", page)
        assert f"<bdi>{table}</bdi>" in page.read_text()
        if not all_commands:
            return
        assert "nothing new" in tail(server, store, table, "--option", "broker=b")
        sql = process(environment, "sql", "--table", table, "--format", "json", "SELECT count(*) AS n FROM messages")
        assert json.loads(sql) == {"n": COUNT}
        verify = ("verify", *sources, "--output", store / "out", "--option", "broker=b", "--table", table)
        assert "nothing differs" in process(environment, *verify)
        assert reput(environment, "ask", "left-out", "--table", table, *sources, "--format", "json") == ""
        with_spark = ("--engine", "spark", "--format", "json")
        assert process(environment, "ask", "by-key", "--table", table, "--key", "k7", *with_spark) == asked
        process(environment, "table", "optimize", "--table", table)
        process(environment, "table", "expire", "--table", table, "--option", "tableRetention=A=1d")
        told = json.loads(reput(environment, "table", "describe", "--table", table, "--json"))
        assert told["rows"] == COUNT // 2
        only = ("rebuild", *sources, "--output", store / "out", "--option", "broker=b", "--table", table)
        process(environment, *only, "--only", "table")
        told = json.loads(reput(environment, "table", "describe", "--table", table, "--json"))
        assert told["rows"] == COUNT
        process(environment, "table", "forget", "--table", table, "--key", "k7", "--yes")
        assert reput(environment, "query", "--table", table, "--key", "k7", "--format", "json") == ""
        process(environment, "rebuild", *sources, "--output", store / "other", "--table", f"{table}-2")
        told = json.loads(reput(environment, "table", "describe", "--table", f"{table}-2", "--json"))
        assert told["rows"] == COUNT


def test_a_server_that_ignores_the_condition_is_refused(store: Path) -> None:
    """In one line, before anything is written to the table."""
    with s3_server("ignores") as server:
        said = tail(server, store, f"s3a://{BUCKET}/{store.name}", code=1)
        assert "ignores If-None-Match, so writers could overwrite each other's commits; give a server" in said
        assert len(said.splitlines()) == 1
        assert not [each for each in server.requests if each.endswith(".json") and each.startswith("PUT")]


def test_where_it_cannot_be(store: Path) -> None:
    """One line before Spark is started, without the credentials."""
    with s3_server() as server:
        for table, changed, line in (
            ("s3a://nowhere/t", {}, "cannot read s3a://nowhere/t: there is no bucket nowhere"),
            (
                f"s3a://{BUCKET}/t",
                {"AWS_ACCESS_KEY_ID": WRONG_KEY, "AWS_SECRET_ACCESS_KEY": "very-secret"},
                f"cannot read s3a://{BUCKET}/t: {server.url} refuses the credentials, or they do not allow this",
            ),
            (
                f"s3a://{BUCKET}/t",
                {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"},
                f"cannot read s3a://{BUCKET}/t: http://127.0.0.1:9 does not answer",
            ),
        ):
            environment = {**server.environment, **changed}
            where = ("--store", store / "store", "--output", store / "out", "--table", table)
            for words in (("tail", *where), ("query", "--table", table, "--key", "k")):
                assert reput(environment, *words, code=1) == f"reput: {line}\n"
        said = reput(server.environment, "query", "--table", f"s3a://{BUCKET}/none", "--key", "k", code=1)
        assert said.startswith(f"reput: s3a://{BUCKET}/none does not exist: ")


@pytest.mark.slow
def test_a_server_that_is_down_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table waits for it and continues, with every row once; the queues do not wait."""
    with s3_server() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        writer = LogWriter(tmp_path / "store" / "commitlog", 50.0)
        table = S3Location(BUCKET, "t")
        tail = TailProcess(tmp_path, table=table)
        try:
            tail.wait_beyond(0)
            with server.down():
                waits = f"WARNING table waits 2 s and is opened again .*: .*{server.url} does not answer"
                wait_for(tail, lambda: re.search(waits, tail.said.read_text()) is not None)
                before = tail.end_offset("consumequeue")
                wait_for(tail, lambda: tail.end_offset("consumequeue") > before)
            wait_for(tail, lambda: "INFO table continues after" in tail.said.read_text())
            assert "WARNING logic waits" not in tail.said.read_text()
            tail.wait_beyond(tail.end_offset())
            written = writer.end()
            log = LogReader(SourceOptions.parse(Oracle(tmp_path).config.source_options()))
            wait_for(tail, lambda: tail.end_offset() >= log.settled_end(0))
            tail.process.terminate()
            assert tail.process.wait(LIMIT_SECONDS) == 0, tail.last_words()
        finally:
            tail.end()
            writer.kill()
        storage = table_storage(table)
        found = deltalake.DeltaTable(storage.uri, storage_options=storage.deltalake_options)
        offsets = found.to_pyarrow_table(columns=["physical_offset"])["physical_offset"].to_pylist()
        assert len(offsets) == len(set(offsets)) == written


def wait_for(tail: TailProcess, done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not done():
        assert tail.process.poll() is None, tail.last_words()
        assert time.monotonic() < deadline, tail.last_words()
        time.sleep(0.1)
