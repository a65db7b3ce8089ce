"""The snippets of README.md and docs/commands/, run unchanged, with a store of a real broker for /data."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import BrokerStore
from pyspark.sql import SparkSession
from rich.console import Console
from support.pages import PAGES, blocks, name_of
from support.paths import ROOT
from support.tail_runs import run_tail

from reput.streaming.tail.tail import Tail

# The Chinese README has the code of the English one; a test of the pages compares them.
WITH_PYTHON = [page for page in PAGES if any(blocks(page, "python")) and page.name != "README.zh.md"]
REPUT = [sys.executable, "-m", "reput.streaming.cli.main"]

pytestmark = [pytest.mark.spark, pytest.mark.long]


def prepared(text: str, store: BrokerStore, work: Path) -> str:
    """A snippet with a real broker's store for the one in it."""
    text = re.sub(r"/(data|tmp/v4-plain)/store", str(store.root), text)
    text = re.sub(r"/(data|tmp/v4-plain)/broker.conf", str(store.broker_conf), text)
    return (
        text.replace("/data/", f"{work}/")
        .replace("/tmp/reput", f"{work}/reput")
        .replace("'orders'", "'TopicA'")
        .replace('"orders"', '"TopicA"')
        .replace("--topic orders", "--topic TopicA")
    )


def run_block(page: Path, word: str, store: BrokerStore, work: Path) -> list[str]:
    """Run the commands of the console block of a page that has this word; returns what each prints."""
    (console,) = (block for block in blocks(page, "console") if word in block)
    said = []
    for line in re.findall(r"^\$ reput (.+)$", prepared(console, store, work), re.MULTILINE):
        done = subprocess.run([*REPUT, *shlex.split(line)], capture_output=True, text=True, check=False, timeout=300)
        # No message of this store has the key 123; that is an answer too.
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
        said.append(done.stdout + done.stderr)
    return said


def test_the_first_result(broker_store: Callable[[str], BrokerStore], tmp_path: Path) -> None:
    """README's first commands, one after the other, print what README shows."""
    readme = ROOT / "README.md"
    store = broker_store("v4-plain")
    _, verify, query = run_block(readme, "reput rebuild", store, tmp_path)
    (shown,) = (block for block in blocks(readme, "") if block.startswith("log ["))
    assert verify == shown
    assert re.search(r"^reput: [1-9]\d* messages? found", query, re.MULTILINE)


def test_the_first_table(broker_store: Callable[[str], BrokerStore], tmp_path: Path) -> None:
    """README's commands for a store of your own, one after the other, print what they promise."""
    store = broker_store("v4-plain")
    tail, verify, of_table, sql = run_block(ROOT / "README.md", "--available-now", store, tmp_path)
    messages = store.facts["totalMessages"]
    assert f"table: {messages} messages in " in tail
    assert f"table      {messages} rows, 35 columns: agrees" in verify
    assert "0 of 1 data files opened" in of_table
    assert "0 messages found" in of_table
    assert "TopicA" in sql


@pytest.mark.parametrize("page", WITH_PYTHON, ids=name_of)
def test_the_python_of_a_page(
    page: Path,
    spark: SparkSession,
    broker_store: Callable[[str], BrokerStore],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It runs unchanged; a tail in it is stopped at the log's end, and a table that it reads exists."""
    store = broker_store("v4-plain")
    if any('"/data/messages"' in code for code in blocks(page, "python")):
        only_table = ("consumeQueueEnable=false", "messageIndexEnable=false")
        run_tail(spark, store.root, tmp_path / "kept", *only_table, table=tmp_path / "messages", conf=store.broker_conf)
    run = Tail.run
    monkeypatch.setattr(Tail, "run", lambda tail, spark, *, available_now: run(tail, spark, available_now=True))
    for code in blocks(page, "python"):
        exec(compile(prepared(code, store, tmp_path), str(page), "exec"), {"spark": spark, "console": Console()})
        said = capsys.readouterr().out
        assert "TopicA" in said
