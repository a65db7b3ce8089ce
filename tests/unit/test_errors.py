"""The tree of errors is the one that is drawn; an error keeps its fields on its way to the user."""

from __future__ import annotations

import importlib
import json
import pickle
import pkgutil
import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import reput
from reput.source import errors
from reput.source.errors import CorruptRecordError, ReputError, StoreError, TransientError
from reput.streaming.cli.app import Application
from reput.streaming.spark.job import outcome, outcome_of


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
    page = (Path(__file__).parents[2] / "docs" / "commands" / "README.md").read_text(encoding="utf-8")
    told = {code: int(number) for code, number in re.findall(r"^\| `([a-z-]+)` \| (\d+) \|", page, re.MULTILINE)}
    assert told == {kind.code: kind.exit_code for kind in all_errors().values()}


def fields(error: ReputError) -> tuple[str, str | None, str | None, int | None]:
    return error.cause, error.advice, error.file, error.physical_offset


def failing() -> None:
    raise CorruptRecordError("no good record", advice="restore it", file="/log/0", physical_offset=7)


def test_an_error_of_a_task_is_raised_as_it_was() -> None:
    """With its class and fields."""
    with pytest.raises(CorruptRecordError, match=r"^no good record; restore it$") as raised:
        outcome(outcome_of(failing))
    error = raised.value
    assert fields(error) == ("no good record", "restore it", "/log/0", 7)
    assert outcome(outcome_of(lambda: [1, None])) == [1, None]
    with pytest.raises(ZeroDivisionError):  # no error of reput: Spark tells it
        outcome_of(lambda: 1 // 0)


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
