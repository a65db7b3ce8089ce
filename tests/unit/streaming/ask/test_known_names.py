"""An empty answer to an unknown name differs from other empty answers: one line has the nearest names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.command_line import invoke
from support.record_writer import Message
from support.store_table import make_table

from reput.source.options import nearest
from reput.streaming.ask.known_names import GROUP, KnownNames

START = 1_700_000_000_000
MESSAGES = [
    *(Message("Orders", queue_id=number % 3, properties={"KEYS": f"k{number}"}) for number in range(9)),
    Message("Empty", queue_id=0),
    Message("%DLQ%billing"),
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with config/ and queues' directories, and its table."""
    path = tmp_path_factory.mktemp("known")
    make_table(path, MESSAGES)
    config = path / "store" / "config"
    config.mkdir()
    topics = {"Orders": {"readQueueNums": 3}, "Quiet": {"readQueueNums": 2}}
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    (config / "consumerOffset.json").write_text('{"offsetTable":{"Orders@billing":{0:99,1:99,2:99}}}')
    (config / "subscriptionGroup.json").write_text('{"subscriptionGroupTable":{"billing":{},"fresh":{}}}')
    (path / "store" / "consumequeue" / "OnDisk" / "0").mkdir(parents=True)
    (path / "store" / "index").mkdir()
    return path


def told(root: Path, *words: str) -> tuple[int, str]:
    """The exit code, and what is on standard error."""
    places = {"TABLE": str(root / "table"), "STORE": str(root / "store"), "PAGE": str(root / "page.html")}
    result = invoke([places.get(word, word) for word in words])
    assert "Traceback" not in result.output
    return result.exit_code, result.stderr.rstrip("\n").rsplit("\n", 1)[-1]


ASK = ("--table", "TABLE", "--store", "STORE")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["ask", "unconsumed", "--group", "biling", *ASK], "no consumer group is called biling in the table and "),
        (["ask", "unconsumed", "--group", "biling", *ASK], "; is billing meant?"),
        (["ask", "lag", "--group", "BILLING", *ASK], "is billing meant?"),
        (["ask", "dead-letters", "--group", "biling", "--table", "TABLE"], "in the table; is billing meant?"),
        (
            ["ask", "dead-letters", "--group", "xyz", "--table", "TABLE"],
            "give --store to look in the broker's configuration",
        ),
        (["ask", "retries", "--group", "xyz", *ASK], "no consumer group is called xyz"),
        (["ask", "gaps", "--topic", "Order", *ASK], "no topic is called Order in the table and"),
        (["ask", "lag", "--topic", "Order", *ASK], "is Orders meant?"),
        (["ask", "by-key", "--key", "k", "--topic", "order", *ASK], "is Orders meant?"),
        (["ask", "top-topics", "--broker", "c", "--table", "TABLE"], "no broker is called c in the table; known are b"),
        (["ask", "left-out", "--broker", "c", "--table", "TABLE"], "no broker is called c"),
        (["ask", "dead-letters", "--group", "biling", "--plan", "--table", "TABLE"], "is billing meant?"),
        (
            ["ask", "unconsumed", "--group", "fresh", *ASK],
            "the consumer group fresh has no offset, so that what it has",
        ),
        (["ask", "lag", "--group", "billing", "--topic", "Quiet", *ASK], "no offset for the topic Quiet"),
        (["query", "--store", "STORE", "--topic", "Order", "--key", "k"], "no topic is called Order in"),
        (["query", "--store", "STORE", "--topic", "Order", "--uniq-key", "k"], "is Orders meant?"),
        (
            ["query", "--store", "STORE", "--topic", "Order", "--queue-id", "0", "--queue-offset", "0"],
            "is Orders meant?",
        ),
        (
            ["query", "--store", "STORE", "--topic", "Orders", "--queue-id", "7", "--time", "0"],
            "the topic Orders has no queue 7, but 0 to 2 in",
        ),
        (["query", "--table", "TABLE", "--topic", "Order", "--key", "k1"], "in the table; is Orders meant?"),
        (["query", "--table", "TABLE", "--broker", "c", "--key", "k1"], "no broker is called c in the table"),
        (
            ["query", "--table", "TABLE", "--topic", "Orders", "--queue-id", "7", "--queue-offset", "0"],
            "the topic Orders has no queue 7, but 0 to 2 in the table",
        ),
        (["dump", "--store", "STORE", "--topic", "Order"], "no topic is called Order in"),
        (["dump", "--store", "STORE", "--topic", "Orders", "--queue-id", "3"], "has no queue 3, but 0 to 2"),
        (["report", "--table", "TABLE", "--topic", "Order", "--html", "PAGE"], "no topic of the table matches Order"),
    ],
)
def test_an_unknown_name(words: list[str], line: str, root: Path) -> None:
    """One line, an exit code of its own."""
    code, last = told(root, *words)
    assert (code, line in last) == (4, True), last
    assert last.startswith("reput: nothing found: ")
    assert not (root / "page.html").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["ask", "unconsumed", "--group", "billing", *ASK],
        ["ask", "dead-letters", "--group", "fresh", *ASK],
        ["ask", "dead-letters", "--topic", "Orders", *ASK],
        ["ask", "delayed", "--topic", "Quiet", *ASK],
        ["ask", "delayed", "--topic", "OnDisk", *ASK],
        ["ask", "by-key", "--key", "none", "--topic", "Empty", "--table", "TABLE"],
        ["query", "--table", "TABLE", "--topic", "Orders", "--key", "none"],
        ["query", "--table", "TABLE", "--key", "none"],
        ["query", "--store", "STORE", "--topic", "Quiet", "--key", "none"],
        ["dump", "--store", "STORE", "--topic", "OnDisk"],
    ],
)
def test_nothing_of_a_known_name(words: list[str], root: Path) -> None:
    """That is an answer."""
    assert told(root, *words)[0] == 0


def test_an_unknown_name_for_programs(root: Path, tmp_path: Path) -> None:
    """Nothing on standard output, the error's fields on standard error; a file keeps what it had."""
    out = tmp_path / "rows.csv"
    out.write_text("before")
    table = str(root / "table")
    result = invoke(["ask", "dead-letters", "--group", "Billing", "--table", table, "--format", "json"])
    error = json.loads(result.stderr)["error"]
    assert (result.exit_code, result.stdout) == (4, "")
    assert (error["code"], error["exitCode"], error["nearest"]) == ("unknown-name", 4, ["billing"])
    assert invoke(["ask", "gaps", "--topic", "x", "--table", table, "--format", "csv"]).stdout == ""
    assert invoke(["ask", "gaps", "--topic", "x", "--table", table, "--output", str(out)]).exit_code == 4
    assert out.read_text() == "before"


def test_a_store_that_names_nothing(tmp_path: Path) -> None:
    """If a broker keeps its configuration and queues elsewhere, reput cannot say that a topic is unknown."""
    make_table(tmp_path, MESSAGES[:1])
    (tmp_path / "store" / "index").mkdir()
    assert told(tmp_path, "query", "--store", "STORE", "--topic", "Order", "--key", "k")[0] == 0


def test_nearest_names() -> None:
    """Another case first; a hostile name is shown harmless."""
    assert nearest("orders", ["Orders", "orders2", "xyz"]) == ["Orders", "orders2"]
    assert nearest("abc", []) == []
    known = KnownNames(places=["the table"])
    with pytest.raises(Exception, match=r"no consumer group is called a\\x1b\[31m in the table") as caught:
        known.check({GROUP: "a\x1b[31m"})
    assert "\x1b" not in str(caught.value)
