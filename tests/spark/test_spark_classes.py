"""The session of the tests starts with what `reput prepare` made."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from reput.streaming.process.jvm import last_jvm
from reput.streaming.spark.class_archive import SparkClasses
from reput.streaming.spark.java import check_java

pytestmark = pytest.mark.spark


def test_the_jvm_takes_the_archive(spark: SparkSession) -> None:
    """It maps only one that is of this Java and of these jars; none where Spark has a user's own defaults."""
    classes = SparkClasses.of(check_java())
    jvm = last_jvm()
    assert jvm is not None
    is_mapped = str(classes.archive) in Path(f"/proc/{jvm._process.pid}/maps").read_text()
    assert is_mapped == (classes.refusal() is None), "was 'reput prepare' run? make test does"
