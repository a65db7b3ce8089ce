"""Rules of the code base that a machine can check."""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.paths import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MODULES = sorted(path for part in ("source", "sinks", "streaming") for path in (ROOT / part).rglob("*.py"))
FUNCTION_LINES_MAX = 70


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_functions_stay_small(path: Path) -> None:
    """A function fits on a screen; its docstring does not count. A module is as long as its subject needs."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
            assert lines <= FUNCTION_LINES_MAX, f"{node.name} has {lines} lines"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_is_imported_as_a_top_level_name(path: Path) -> None:
    """`source`, `sinks` and `streaming` are common words, and a module loaded twice is two modules."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not {name.split(".")[0] for name in names} & {"source", "sinks", "streaming"}


def test_only_two_modules_write_files() -> None:
    """`durable_file` writes files of an output, and `storage` puts the commits of a table in place; no other does.

    Other files are allowed: those that users name, scratch files, the lock, Spark's messages, the files of `reput
    prepare`, and logs to warm up with.
    """
    calls = ("pwrite", "ftruncate", "os.replace", "os.unlink", "write_text", "write_bytes", "os.rename", "mkstemp")
    allowed = {
        "sinks/files/durable_file.py",
        "sinks/files/store_lock.py",
        "sinks/table/storage.py",
        "streaming/process/process_log.py",
        "streaming/spark/class_archive.py",
        "streaming/spark/session.py",
        "streaming/spark/warm_up.py",
    }
    for path in MODULES:
        if str(path.relative_to(ROOT)) not in allowed:
            assert not [call for call in calls if call in path.read_text()], path


def test_the_import_name_holds_links_only() -> None:
    """`reput/reput/` is the three directories under one import name."""
    for part in ("source", "sinks", "streaming"):
        assert (ROOT / "reput" / "reput" / part).is_symlink()
        assert (ROOT / "reput" / "reput" / part).resolve() == ROOT / part


def floors(folder: str) -> list[str]:
    """Return the layers in import-linter's contract for a folder, the highest first."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (each["layers"] for each in contracts if each.get("containers") == [f"reput.{folder}"])
    return [name.strip() for layer in layers for name in layer.replace(":", "|").split("|")]


def promise(path: Path) -> str:
    """The first line of a module's docstring."""
    return (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0]


def drawn(folder: str) -> Iterator[str]:
    """A folder as docs/design.md draws it: a line each for what is on a floor, names for what is in a sub-package."""
    yield f"{folder}/  {promise(ROOT / folder / '__init__.py')}"
    for name in floors(folder):
        path = ROOT / folder / name
        if not path.is_dir():
            yield f"  {name}.py  {promise(path.with_suffix('.py'))}"
            continue
        yield f"  {name}/  {promise(path / '__init__.py')}"
        modules = " ".join(sorted(module.stem for module in path.glob("[!_]*.py")))
        yield from textwrap.wrap(modules, 120, initial_indent="    ", subsequent_indent="    ")


def test_the_tree_is_as_it_is_drawn() -> None:
    """docs/design.md shows every folder and module, in the order of the floors; nothing else is drawn."""
    text = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    shown = text.partition("## The tree")[2].partition("```\n")[2].partition("```")[0]
    expected = "\n\n".join("\n".join(drawn(folder)) for folder in ("streaming", "sinks", "source"))
    assert shown == expected + "\n"


def test_modules_named_by_texts_are_there() -> None:
    """Type checkers do not see modules that are imported by a name in a text, such as by Spark's processes."""
    named = {
        (path.name, text) for path in MODULES for text in re.findall(r'"(reput(?:\.[a-z_0-9]+)+)"', path.read_text())
    }
    missing = {each for each in named if each[1] != "reput.words" and find_spec(each[1]) is None}
    assert len(named) > 3
    assert missing == set()


def test_a_public_class_name_is_that_of_one_thing() -> None:
    """A search for a name finds only one thing."""
    found: dict[str, list[str]] = {}
    for path in MODULES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}
