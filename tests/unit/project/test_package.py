"""The package: what its metadata says, and, in the slow form, what `make dist` builds, installed outside the tree."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from support.pages import LINK, OTHER_LINK, PAGES, name_of
from support.paths import ROOT
from support.trial import Sample

import reput

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
README = ROOT / PROJECT["readme"]
SOURCES = [path for folder in ("source", "sinks", "streaming") for path in sorted((ROOT / folder).rglob("*.py"))]
_PIP = re.compile(r"\bpip install ((?:--?[a-z]+ )*)(?:'([^']+)'|([^\s`]+?))[;.)]*(?=[\s`]|$)")


def test_the_readme_of_the_package_points_nowhere_else() -> None:
    """An index and `pip show` have neither the pages nor the data beside it."""
    text = README.read_text(encoding="utf-8")
    assert LINK.findall(text) == []
    assert OTHER_LINK.findall(text) == []
    assert "tests/" not in text


@pytest.mark.parametrize("page", [*PAGES, README, *SOURCES], ids=name_of)
def test_what_pip_is_to_install_can_be_had(page: Path) -> None:
    """The checkout, one of its extras, a wheel, or a package of others: reput itself is on no index."""
    for _, quoted, bare in _PIP.findall(page.read_text(encoding="utf-8")):
        what = quoted or bare
        name, extra = re.fullmatch(r"([^\[]*)(?:\[(.*)\])?", what).groups()  # type: ignore[union-attr]
        assert extra is None or extra in PROJECT["optional-dependencies"], what
        assert name == "." or name.endswith(".whl") or "reput" not in name, what


def built(directory: Path) -> tuple[Path, Path]:
    """Wheel and source distribution, as `make dist` builds and checks them."""
    done = subprocess.run(
        ["make", "dist", f"DIST={directory}"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.count("PASSED") == 2
    wheel, source = sorted(directory.iterdir())
    assert wheel.name == f"rocketmq_reput-{reput.__version__}-py3-none-any.whl"
    assert source.name == f"rocketmq_reput-{reput.__version__}.tar.gz"
    return wheel, source


def in_tree() -> set[str]:
    """Every file that is installed, by its name in the wheel."""
    files = {"pyspark_rocketmq_commitlog.py", "reput/__init__.py", "reput/py.typed"}
    for folder in ("source", "sinks", "streaming"):
        found = (path for path in (ROOT / folder).rglob("*.*") if path.is_file() and path.parent.name != "__pycache__")
        files |= {f"reput/{path.relative_to(ROOT)}" for path in found}
    return files


class Bare:
    """A virtual environment outside the tree, with nothing but what pip installs there."""

    def __init__(self, home: Path) -> None:
        self.home, self.work = home / "environment", home
        subprocess.run([sys.executable, "-m", "venv", str(self.home)], check=True)

    def run(self, command: str, code: int = 0) -> str:
        """Run a command in a shell, with the environment's programs first; return its output."""
        path = f"{self.home / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin"
        environment = {name: text for name, text in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL"))}
        done = subprocess.run(
            command,
            shell=True,
            cwd=self.work,
            env={**environment, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )
        assert done.returncode == code, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        return done.stdout + done.stderr


@pytest.mark.slow
def test_the_wheel_in_a_bare_environment(tmp_path: Path) -> None:
    """Built from the source distribution, it holds every file; each step works, and so does what a hint says."""
    (tmp_path / "dist").mkdir()
    wheel, source = built(tmp_path / "dist")
    with zipfile.ZipFile(wheel) as archive:
        assert {name for name in archive.namelist() if ".dist-info/" not in name} == in_tree()
    with tarfile.open(source) as archive:
        top = {Path(name).parts[1] for name in archive.getnames() if "/" in name}
    assert {"CHANGELOG.md", "LICENSE", "README.md", "conf", "docs", "pyproject.toml"} <= top
    assert "tests" not in top

    bare = Bare(tmp_path)
    bare.run(f"pip install --quiet {wheel}")
    sample = Sample.unpack(tmp_path / "sample")
    store = f"--store {sample.store} --broker-conf {sample.broker_conf}"
    assert bare.run("reput --version") == f"reput {reput.__version__}\n"
    bare.run(f"reput rebuild {store} --output made --table messages")
    said = bare.run(f"reput verify {store} --output made --table messages --against {sample.store}")
    assert said.endswith("nothing differs\n"), said
    for where in (f"{store} --output made", "--table messages"):
        assert sample.key in bare.run(f"reput query {where} --topic {sample.topic} --key {sample.key}")
    assert f" {sample.messages} " in bare.run('reput sql --table messages "SELECT count(*) FROM messages"')
    said = bare.run("reput report --table messages --html report.html", code=1)
    hint = said.strip().rpartition("; ")[2]
    assert re.fullmatch(re.escape(str(bare.home)) + r"/bin/python[\d.]* -m pip install matplotlib", hint)
    bare.run(hint)
    bare.run("reput report --table messages --html report.html")
    assert (tmp_path / "report.html").stat().st_size > 50_000
