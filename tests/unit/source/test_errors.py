"""The tree of errors is the one that is drawn; an error keeps its fields on its way to the user."""

from __future__ import annotations

import ast
import importlib
import json
import pickle
import pkgutil
import re
import traceback
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from support.paths import ROOT
from support.spark_text import spark_text
from typer.testing import CliRunner

import reput
from reput.source import errors
from reput.source.errors import (
    CorruptRecordError,
    DataLossError,
    OptionError,
    ReputError,
    StoreError,
    TransientError,
    remote_error,
    reported_through_spark,
)
from reput.streaming.cli.app import Application
from reput.streaming.spark.job import outcome, outcome_of

# Errors that are always about a file, or a place of the log.
HAVE_A_PLACE = (
    *("CorruptRecordError", "DataLossError", "CommitLogRewoundError", "SegmentError"),
    *("OutputError", "OutputFullError", "StoreLockedError"),
)
WITHOUT_A_PLACE = {
    "source/record/message_body.py": "it has a body alone; its caller shows what it cannot decompress as it is stored",
}
# The beginnings of advice, which does not belong in an error's cause.
ADVICE = re.compile(r"; (give|set|remove|restore|start|run|make it|install|derive|undo|allow) ")


def all_errors() -> dict[str, type[ReputError]]:
    """Every class of the tree by name, wherever it is defined."""
    for module in pkgutil.walk_packages(reput.__path__, "reput."):
        importlib.import_module(module.name)
    found, left = {}, [ReputError]
    while left:
        kind = left.pop()
        found[kind.__name__] = kind
        left += [each for each in kind.__subclasses__() if each.__module__.startswith("reput.")]
    return found


def test_the_tree_is_drawn_as_it_is() -> None:
    """Each class once, below one of its bases."""
    drawn: dict[str, str] = {}
    above: list[str] = []
    for indent, name in re.findall(r"^([│ ├└─]*)(\w+Error)\b", errors.__doc__ or "", re.MULTILINE):
        depth = len(indent) // 4
        above[depth:] = [name]
        assert name not in drawn
        drawn[name] = above[depth - 1] if depth else ""
    found = all_errors()
    assert drawn.keys() == found.keys()
    assert {name for name, base in drawn.items() if base and not issubclass(found[name], found[base])} == set()


def test_codes_are_of_one_class_each() -> None:
    """Words that a script may compare; every class says its own."""
    found = all_errors()
    codes = {name: vars(kind).get("code") for name, kind in found.items()}
    assert all(code and re.fullmatch(r"[a-z]+(-[a-z]+)*", code) for code in codes.values()), codes
    assert len(set(codes.values())) == len(codes)


def test_the_page_of_commands_has_every_code() -> None:
    """With its exit code."""
    page = (ROOT / "docs" / "commands" / "README.md").read_text(encoding="utf-8")
    told = {code: int(number) for code, number in re.findall(r"^\| `([a-z-]+)` \| (\d+) \|", page, re.MULTILINE)}
    assert told == {kind.code: kind.exit_code for kind in all_errors().values()}


def name_of(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def words_of(node: ast.expr, module: ast.Module) -> str:
    """The constant text of an expression, `{}` for the rest; of a variable, what any function assigns to it."""
    if isinstance(node, ast.Name):
        assigned = [
            each.value
            for each in ast.walk(module)
            if isinstance(each, ast.Assign | ast.AugAssign)
            and node.id in map(name_of, each.targets if isinstance(each, ast.Assign) else [each.target])
        ]
        return "\n".join(words_of(each, module) for each in assigned if not isinstance(each, ast.Name))
    if isinstance(node, ast.BinOp):
        return words_of(node.left, module) + words_of(node.right, module)
    if isinstance(node, ast.JoinedStr):
        return "".join(words_of(each, module) for each in node.values)
    return str(node.value) if isinstance(node, ast.Constant) else "{}"


def without_fields(source: str) -> Iterator[tuple[str, int]]:
    """Calls of errors that lack a field, as its name and their line; a class that is raised as it is lacks a place."""
    module = ast.parse(source)
    kinds = all_errors()
    for node in ast.walk(module):
        if isinstance(node, ast.Raise) and node.exc is not None and name_of(node.exc) in HAVE_A_PLACE:
            yield "place", node.lineno
        if not isinstance(node, ast.Call) or name_of(node.func) not in kinds:
            continue
        given = {each.arg for each in node.keywords}
        if name_of(node.func) in HAVE_A_PLACE and not given & {"file", "physical_offset"}:
            yield "place", node.lineno
        if node.args and ADVICE.search(words_of(node.args[0], module)):
            yield "advice", node.lineno


def test_errors_are_raised_with_their_fields() -> None:
    """A place if the class is about one, and advice as a field; an exception that is not needed has no place."""
    found = {
        str(path.relative_to(ROOT)): list(without_fields(path.read_text(encoding="utf-8")))
        for part in ("source", "sinks", "streaming")
        for path in (ROOT / part).rglob("*.py")
    }
    found = {path: lacking for path, lacking in found.items() if lacking}
    excepted = {path: found.pop(path, []) for path in WITHOUT_A_PLACE}
    assert found == {}
    assert all({name for name, _ in lacking} == {"place"} for lacking in excepted.values()), excepted


@pytest.mark.parametrize(
    ("source", "lacking"),
    [
        ("raise DataLossError(text)", ["place"]),
        ("raise DataLossError", ["place"]),
        ("error = errors.DataLossError(text, advice=way_out)", ["place"]),
        ("raise DataLossError(text, file=path)", []),
        ("raise DataLossError(text, physical_offset=0) from None", []),
        ("raise StoreError(text)", []),
        ("raise ValueError('x; give another one')", []),
        ("raise StoreError('x; it is larger than y')", []),
        ("raise StoreError(f'{x}; give {y}')", ["advice"]),
        ("raise StoreError(f'{x}; make it ' + y)", ["advice"]),
        ("msg = f'{x} is bad; remove it and more'\nraise StoreError(msg)", ["advice"]),
        ("msg = x\nmsg += '; set y'\nraise StoreError(msg)", ["advice"]),
        ("raise StoreError(x, advice='give y')", []),
    ],
)
def test_what_counts_as_a_lacking_field(source: str, lacking: list[str]) -> None:
    assert [name for name, _ in without_fields(source)] == lacking


def fields(error: ReputError) -> tuple[str, str | None, str | None, int | None]:
    return error.cause, error.advice, error.file, error.physical_offset


def failing() -> None:
    raise CorruptRecordError("no good record", advice="restore it", file="/log/0", physical_offset=7)


def passing() -> None:
    raise TransientError("a disk that does not answer")


def test_an_error_of_a_task_is_raised_as_it_was() -> None:
    """With its class and fields."""
    with pytest.raises(CorruptRecordError, match=r"^no good record; restore it$") as raised:
        outcome(outcome_of(failing))
    error = raised.value
    assert fields(error) == ("no good record", "restore it", "/log/0", 7)
    assert outcome(outcome_of(lambda: [1, None])) == [1, None]
    with pytest.raises(TransientError):  # Spark may try the task again
        outcome_of(passing)
    with pytest.raises(ZeroDivisionError):  # no error of reput: Spark tells it
        outcome_of(lambda: 1 // 0)


@pytest.mark.parametrize("kind", all_errors().values())
@pytest.mark.parametrize("given", [{}, {"advice": "set x", "file": "/log/0", "physical_offset": 0}])
def test_an_error_of_another_process_of_spark_is_what_it_was(kind: type[ReputError], given: dict[str, Any]) -> None:
    """Each class, with all that it has, from the text that pyspark passes on; a reader of that has its message."""
    error = kind("gone: 7", **given)
    message = str(error)
    text = f"[PYTHON_DATA_SOURCE_ERROR] Failed: {spark_text(error)} SQLSTATE: 38000\n\tat a.B\nCaused by: x.Y: gone"
    assert f".{kind.__name__}: {message}\n" in text
    found = remote_error(text)
    assert type(found) is kind
    assert (vars(found), str(found)) == (vars(error), message)


FORGED = "x\nreput-error: " + OptionError("forged", file="/forged", physical_offset=1).to_json()


@pytest.mark.parametrize("ends", ["\n", "\r", "\x0b", "\x1c", "\x85", "\u2028"])
@pytest.mark.parametrize("field", ["cause", "advice", "file"])
def test_no_field_can_forge_another(field: str, ends: str) -> None:
    """A name or bytes of the log with line ends and texts like fields, anywhere in an error."""
    hostile = f"\udcff<msg>${{x}}%s\x1b[31m{FORGED}\nTraceback (most recent call last):\n{FORGED}".replace("\n", ends)
    error = DataLossError(
        **{"cause": "gone", "advice": "set x", "file": "/log/0", "physical_offset": 7, field: hostile}
    )
    text = spark_text(error)
    assert sum(line.startswith("reput-error: ") for line in text.splitlines()) == 1
    assert vars(remote_error(text)) == vars(error)
    assert text.encode("utf-8")  # as pyspark sends it


def test_an_error_that_led_to_another_cannot_forge_it() -> None:
    """Whatever was read or asked for before is not in the text."""
    with pytest.raises(DataLossError) as raised, reported_through_spark():
        raise DataLossError("gone") from ValueError(FORGED)
    text = "".join(traceback.format_exception(raised.value))
    assert "forged" not in text
    assert str(remote_error(text)) == "gone"


@pytest.mark.parametrize(
    "text",
    [
        *("", "java.io.OptionalDataException", "reput.source.errors.DataLossError: gone"),
        *("reput-error: ", "reput-error: x", "reput-error: 7", "reput-error: []", 'reput-error: {"error": 7}'),
        *('reput-error: {"error": {"code": "data-loss"}}', 'reput-error: {"error": {"cause": "x"'),
    ],
)
def test_text_without_fields_is_nobodys(text: str) -> None:
    """Nor is what lost its end: of two copies, the whole one counts."""
    assert remote_error(text) is None
    assert str(remote_error(spark_text(DataLossError("gone")) + text)) == "gone"


def test_a_class_that_is_not_known_here() -> None:
    """Of a newer release, or of a module that was not loaded."""
    error = ReputError.from_json('{"error": {"code": "of-tomorrow", "cause": "x", "file": "/f"}}')
    assert (type(error), error.cause, error.file) == (ReputError, "x", "/f")


@pytest.mark.parametrize("kind", [StoreError, TransientError])
def test_fields_that_are_not_given(kind: type[ReputError]) -> None:
    """The cause is the whole message."""
    error = pickle.loads(pickle.dumps(kind("a; b")))
    assert str(error) == "a; b"
    assert fields(error) == ("a; b", None, None, None)
    assert json.loads(error.to_json())["error"]["exitCode"] == kind.exit_code


@pytest.mark.parametrize(("words", "is_json"), [(["--json"], True), ([], False)])
def test_what_a_program_reads(words: list[str], is_json: bool) -> None:
    """One line either way, with the same message."""
    app = Application(pretty_exceptions_enable=False)

    @app.command()
    def fail(as_json: bool = typer.Option(False, "--json")) -> None:
        failing()

    result = CliRunner().invoke(app, words)
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    if is_json:
        told = json.loads(line)["error"]
        assert told == {
            "code": "corrupt-record",
            "exitCode": 1,
            "message": "no good record; restore it",
            "cause": "no good record",
            "advice": "restore it",
            "file": "/log/0",
            "physicalOffset": 7,
        }
    else:
        assert line == "reput: no good record; restore it"
