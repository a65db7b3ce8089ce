"""Spark's look-up of installed data sources (``pyspark.sql.worker.lookup_data_sources``) finds reput's."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path

from pyspark.sql.datasource import DataSource
from support.paths import ROOT

from pyspark_rocketmq_commitlog import DefaultSource
from reput.source.data_source import NAME, CommitLogDataSource

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# In an interpreter of its own, as Spark starts it: in a directory that is not the project's.
_LOOK_UP = """
import json, sys
from importlib import import_module
from pkgutil import iter_modules
import pyspark.sql.worker.lookup_data_sources
before = set(sys.modules)
names = [info.name for info in iter_modules() if info.name.startswith("pyspark_")]
found = {name: import_module(name).DefaultSource.name() for name in names}
print(json.dumps([found, sorted(set(sys.modules) - before)]))
"""


def test_an_installed_reput_is_found(tmp_path: Path) -> None:
    """By pkgutil, on which the finder of most editable installations has no effect; and nothing else is loaded."""
    done = subprocess.run([sys.executable, "-c", _LOOK_UP], cwd=tmp_path, capture_output=True, text=True, check=True)
    found, loaded = json.loads(done.stdout)
    assert found["pyspark_rocketmq_commitlog"] == NAME == "rocketmq-commitlog"
    assert [name for name in loaded if name not in found] == []


def test_it_makes_the_source_itself() -> None:
    """Spark pickles the class by its name, and calls it with the options."""
    assert issubclass(DefaultSource, DataSource)
    assert pickle.loads(pickle.dumps(DefaultSource)) is DefaultSource
    made = DefaultSource(options={"path": "/data/store"})
    assert type(made) is CommitLogDataSource
    assert made.options == {"path": "/data/store"}


def test_only_two_names_are_installed() -> None:
    """`source`, `sinks` and `streaming` are common words: reput is installed, and the module that Spark looks for."""
    beside = {".egg-info", ".md"}  # what pip makes, and the package's description
    installed = (path for path in (ROOT / "reput").iterdir() if path.suffix not in beside)
    assert sorted(path.name for path in installed if path.name != "__pycache__") == [
        "pyspark_rocketmq_commitlog.py",
        "reput",
    ]
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    assert setuptools["package-dir"] == {"": "reput"}
    assert setuptools["py-modules"] == ["pyspark_rocketmq_commitlog"]


def test_planning_loads_no_compiled_code(tmp_path: Path) -> None:
    """Spark makes the source and its reader in processes that only plan: each would load numba, for 0.3 s."""
    code = f"""
import sys
import cloudpickle
from pyspark_rocketmq_commitlog import DefaultSource
source = DefaultSource({{"path": {str(tmp_path)!r}, "rows": "ranges"}})
for reader in (source.streamReader(source.schema()), source.reader(source.schema())):
    cloudpickle.loads(cloudpickle.dumps(reader.read))
print("numba" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
