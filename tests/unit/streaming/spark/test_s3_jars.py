"""The additions of a table on S3 to Spark, and the settings that stay."""

from __future__ import annotations

import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from reput.sinks.table.location import S3Location
from reput.sinks.table.storage import S3Place
from reput.source.errors import EnvironmentSetupError
from reput.streaming.spark.class_archive import SparkClasses
from reput.streaming.spark.session import place_of, s3_settings

TABLE = S3Location("bucket", "t")


def home_with(root: Path, *jars: str) -> Path:
    (root / "jars").mkdir(parents=True)
    for name in jars:
        write_jar(root / "jars" / name, name)
    return root


def write_jar(path: Path, content: str) -> Path:
    with ZipFile(path, "w") as jar:
        jar.writestr(f"{content}.class", "")
    return path


def test_only_a_table_on_s3_needs_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a Spark whose Hadoop the jars were made for."""
    monkeypatch.setenv("AWS_REGION", "here")
    assert place_of(None) is place_of(tmp_path) is None
    assert place_of(TABLE) is not None
    monkeypatch.setenv("SPARK_HOME", str(home_with(tmp_path / "spark", "hadoop-client-api-3.4.1.jar")))
    with pytest.raises(EnvironmentSetupError, match=r"needs a Spark with Hadoop .* has 3\.4\.1"):
        place_of(TABLE)


def test_settings(tmp_path: Path) -> None:
    """Uploads are kept in this run's directory; plain HTTP only where the server has it; no credentials."""
    found = s3_settings(S3Place("http://127.0.0.1:1", "here"), tmp_path, with_packages=False)
    assert found["spark.hadoop.fs.s3a.buffer.dir"] == str(tmp_path / "s3a")
    assert found["spark.hadoop.fs.s3a.connection.ssl.enabled"] == "false"
    assert not [name for name in found if "key" in name or "secret" in name or "jars" in name]
    aws = s3_settings(S3Place(None, "here"), tmp_path, with_packages=True)
    assert "spark.hadoop.fs.s3a.endpoint" not in aws
    assert "software.amazon.awssdk:bundle" in aws["spark.jars.excludes"].split(",")


def test_the_jars_are_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that Spark or Delta does not have; not if one of them has changed."""
    monkeypatch.setenv("SPARK_HOME", str(home_with(tmp_path / "spark", "slf4j.jar")))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    classes = SparkClasses.of("java 17")
    assert classes.s3_jars() is None
    jar = write_jar(tmp_path / "org.apache.hadoop_hadoop-aws-3.5.0.jar", "S3AFileSystem")
    others = [write_jar(tmp_path / "io.delta_delta.jar", "Delta"), write_jar(tmp_path / "again.jar", "slf4j.jar")]
    classes.keep_s3_jars([jar, *others])
    assert SparkClasses.of("java 17").s3_jars() == [jar]
    assert classes.jars() is None
    jar.write_bytes(b"changed")
    assert classes.s3_jars() is None
