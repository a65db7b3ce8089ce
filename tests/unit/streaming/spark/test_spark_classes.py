"""The files that let Spark start sooner are optional: if anything has changed, Spark starts as without them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from support.command_line import run_reput

from reput.streaming.process.jvm import spark_home
from reput.streaming.spark.class_archive import SparkClasses

# Their contents beside `module-info.class`.
OWN = {"jackson-core-2.21.0.jar": "com/fasterxml/A.class", "jcl-over-slf4j-2.0.17.jar": "org/apache/commons/Log.class"}
RESOLVED = {
    "io.delta_delta-spark_4.2_2.13-4.4.0.jar": "io/delta/A.class",
    "com.fasterxml.jackson.core_jackson-core-2.13.5.jar": "com/fasterxml/A.class",
    "commons-logging_commons-logging-1.3.0.jar": "org/apache/commons/Log.class",
}


def write_jar(path: Path, content: str) -> None:
    with ZipFile(path, "w") as jar:
        jar.writestr("module-info.class", "")
        jar.writestr(content, "")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Spark of two jars, and a cache of this test's own."""
    home = tmp_path / "spark"
    (home / "jars").mkdir(parents=True)
    for name, content in OWN.items():
        write_jar(home / "jars" / name, content)
    monkeypatch.setenv("SPARK_HOME", str(home))
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    return home


@pytest.fixture
def classes(home: Path) -> SparkClasses:
    """With jars and an archive."""
    made = SparkClasses.of("java 17")
    made.directory.mkdir(parents=True)
    ivy = home.parent / "ivy"
    ivy.mkdir()
    for name, content in RESOLVED.items():
        write_jar(ivy / name, content)
    made.keep_jars(ivy / name for name in RESOLVED)
    made.archive.write_bytes(b"archive")
    return made


def test_deltas_jars_go_on_the_class_path_but_not_before_sparks_own(classes: SparkClasses) -> None:
    """A jar with classes that Spark has, of another version or under another name, would else win over Spark's."""
    settings = classes.settings()
    assert Path(settings["spark.driver.extraClassPath"]).name == "io.delta_delta-spark_4.2_2.13-4.4.0.jar"
    assert f"-XX:SharedArchiveFile={classes.archive} " in settings["spark.driver.extraJavaOptions"]


def test_it_is_found_again_and_only_by_the_same_java(classes: SparkClasses) -> None:
    assert SparkClasses.of("java 17") == classes
    assert SparkClasses.of("java 21").jars() is None
    assert SparkClasses.of("java 21").settings() == {}


def test_the_jvm_has_a_home_without_pyspark(classes: SparkClasses, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of links to Spark's own, which it is where pyspark is not the installed package."""
    own = classes.home
    classes.keep_home()
    assert classes.home == own == spark_home()
    monkeypatch.delenv("SPARK_HOME")
    classes.keep_home()
    classes.keep_home()
    assert sorted(path.name for path in classes.home.iterdir()) == ["bin", "jars"]
    assert (classes.home / "jars").resolve() == (spark_home() / "jars").resolve()
    assert classes.home != spark_home() != own


def test_two_make_the_home_at_the_same_moment(classes: SparkClasses, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one's stays, and the second leaves nothing."""
    monkeypatch.delenv("SPARK_HOME")
    rename = Path.rename

    def behind_another(path: Path, target: Path) -> Path:
        shutil.copytree(path, target, symlinks=True)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", behind_another)
    classes.keep_home()
    assert [path.name for path in classes.directory.glob("home*")] == ["home"]
    assert (classes.home / "jars").resolve() == (spark_home() / "jars").resolve()


def test_without_an_archive_the_jars_are_known_all_the_same(classes: SparkClasses) -> None:
    classes.archive.unlink()
    assert list(classes.settings()) == ["spark.driver.extraClassPath"]


@pytest.mark.parametrize("how", ["removed", "changed", "not a list", "no record"])
def test_jars_that_are_not_there_as_they_were_are_not_used(classes: SparkClasses, how: str) -> None:
    jars = classes.jars()
    assert jars is not None
    if how == "removed":
        jars[0].unlink()
    elif how == "changed":
        jars[0].write_bytes(b"another jar")
    elif how == "not a list":
        (classes.directory / "jars.json").write_text("{")
    else:
        (classes.directory / "jars.json").unlink()
    assert classes.settings() == {}


def test_a_users_own_defaults_of_spark_are_left_alone(
    classes: SparkClasses, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may have a class path of their own."""
    (home / "conf").mkdir()
    (home / "conf" / "spark-defaults.conf").write_text("spark.driver.extraClassPath /opt/mine.jar\n")
    assert classes.settings() == {}
    assert "spark-defaults.conf" in str(classes.refusal())
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert classes.settings() != {}


@pytest.mark.parametrize("name", ["a b", 'a"b', "a:b", "a,b", "$a"])
def test_a_path_that_spark_would_read_otherwise_is_not_given_to_it(
    home: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(home.parent / name))
    classes = SparkClasses.of("java 17")
    classes.directory.mkdir(parents=True)
    classes.keep_jars([])
    classes.archive.write_bytes(b"archive")
    assert classes.settings() == {}
    assert str(classes.archive) in str(classes.refusal())


def test_prepare_says_why_it_would_be_of_no_use(home: Path) -> None:
    """Instead of making 200 MB that nothing looks at."""
    (home / "conf").mkdir()
    (home / "conf" / "spark-defaults.conf").touch()
    result = run_reput(["prepare"], code=1)
    assert "spark-defaults.conf exists" in result.stderr
    assert not (home.parent / "cache").exists()


def test_java_refuses_an_archive_that_is_none_and_starts(classes: SparkClasses) -> None:
    """And says nothing on standard output, which is a command's."""
    options = classes.settings()["spark.driver.extraJavaOptions"].split()
    started = subprocess.run(["java", *options, "-version"], capture_output=True, text=True, check=True)
    assert started.stdout == ""
    assert "version" in started.stderr


def test_it_lies_in_the_virtual_environment_that_it_is_for(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And goes with it; where that cannot be written, in the user's cache."""
    monkeypatch.setattr(sys, "prefix", str(home))
    assert home in SparkClasses.of("java 17").directory.parents
    monkeypatch.setattr(sys, "prefix", str(next((home / "jars").iterdir())))
    assert home.parent / "cache" in SparkClasses.of("java 17").directory.parents
