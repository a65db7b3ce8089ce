"""The program's messages about its own commands are true: each command takes the options that they name with it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command_line import APPLICATION, command_of, every_option_name, option_names
from support.paths import ROOT

FOLDERS = ("source", "sinks", "streaming")
FILES = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
#: In the place of a part of a text that is only known at run time.
FILLED = "\0"
# A command in a sentence: in quotes, or up to where the sentence continues.
_COMMAND = re.compile(r"(?<![\w/.])reput ([a-z\0][^\n'`;:(),]*)")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
#: Options of other programs that the sources speak of.
OTHERS_OPTIONS = {
    "--class": "spark-submit",
    "--conf": "spark-submit",
    "--help": "every command",
    "--master": "spark-submit",
    "--packages": "spark-submit",
    "--py-files": "spark-submit",
    "--sparse": "cp",
}


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Every text of a module with its line, but old names of options; what an f-string fills in is `FILLED`."""
    parts: set[int] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.keyword) and node.arg == "old_names" and isinstance(node.value, ast.Dict):
            parts |= {id(each) for each in node.value.keys}
        elif isinstance(node, ast.JoinedStr):
            parts |= {id(each) for each in node.values}
            yield (
                node.lineno,
                "".join(str(each.value) if isinstance(each, ast.Constant) else FILLED for each in node.values),
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.lineno, node.value


def named(text: str) -> Iterator[tuple[str, set[str], set[str]]]:
    """Each command in a text, the options that it is named with, and those that it has."""
    for words in _COMMAND.findall(text):
        command, _ = command_of(words.replace(FILLED, " ").split())
        # Which command it is may be filled in.
        known = every_option_name(APPLICATION) if words.startswith(FILLED) else option_names(command)
        yield words, set(_OPTION.findall(words)), known


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_options_that_a_message_names_are_there(folder: str) -> None:
    """Of the command that it names them with, or of any."""
    every = every_option_name(APPLICATION) | OTHERS_OPTIONS.keys()
    wrong = []
    for path in FILES:
        if path.relative_to(ROOT).parts[0] != folder:
            continue
        for line, text in texts(path):
            where = f"{path.relative_to(ROOT)}:{line}"
            wrong += [f"{where}: {name}" for name in _OPTION.findall(text) if name not in every]
            wrong += [
                f"{where}: reput {words}"
                for words, given, known in named(text)
                if given - known - OTHERS_OPTIONS.keys()
            ]
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "is_right"),
    [
        ("ask 'reput query --msg-id ID'", True),
        ("ask 'reput query --id ID'", False),
        (f"reput query --store {FILLED} --key {FILLED}", True),
        (f"reput {FILLED} --store {FILLED} --output {FILLED}", True),
        ("'reput doctor --output OUT'", False),
        ("'reput table optimize --table T'", True),
    ],
)
def test_a_wrong_option_is_noticed(text: str, is_right: bool) -> None:
    """As one that another command has, and one that none has."""
    found = list(named(text))
    assert found
    assert all(given <= known for _, given, known in found) == is_right


def test_there_are_messages_that_name_commands() -> None:
    """The search finds those of every folder."""
    counts = dict.fromkeys(FOLDERS, 0)
    for path in FILES:
        for _, text in texts(path):
            counts[path.relative_to(ROOT).parts[0]] += sum(1 for _ in named(text))
    assert min(counts.values()) > 0
    assert sum(counts.values()) > 50
