"""`make canary` tries other releases in an environment over the project's own."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from canary import CHOSEN, PACKAGES, over_project
from support.paths import ROOT, TESTS


def test_an_environment_has_what_the_project_has(tmp_path: Path) -> None:
    """The command `reput` and the packages below it; what is installed into it comes first."""
    python = over_project(tmp_path / "layer")
    for command in ([str(python.with_name("reput")), "--version"], [str(python), "-m", "pip", "--version"]):
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
    (own,) = (tmp_path / "layer" / "lib").glob("python*/site-packages")
    (own / "javaproperties.py").write_text("")
    found = [str(python), "-c", "import javaproperties, xxhash; print(javaproperties.__file__, xxhash.__file__)"]
    newer, below = subprocess.run(found, capture_output=True, text=True, check=True, timeout=60).stdout.split()
    assert Path(newer).parent == own
    assert own not in Path(below).parents


def test_what_it_tries_is_there() -> None:
    """Each package is one of reput's dependencies, each chosen test in the tree."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    dependencies = re.findall(r'^    "([\w-]+)[=<>]', project.partition("dependencies = [")[2], re.MULTILINE)
    assert set(PACKAGES) <= set(dependencies)
    assert [path for path in CHOSEN if not (TESTS / path).exists()] == []
