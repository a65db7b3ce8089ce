"""The JVM of the session of the tests, which is that of `reput tail`."""

from __future__ import annotations

from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from reput.streaming.process.jvm import last_jvm
from reput.streaming.spark.class_archive import SparkClasses
from reput.streaming.spark.session import check_java

pytestmark = pytest.mark.spark


def test_the_jvm_takes_the_archive(spark: SparkSession) -> None:
    """It maps only one that is of this Java and of these jars; none where Spark has a user's own defaults."""
    classes = SparkClasses.of(check_java())
    jvm = last_jvm()
    assert jvm is not None
    is_mapped = str(classes.archive) in Path(f"/proc/{jvm._process.pid}/maps").read_text()
    assert is_mapped == (classes.refusal() is None), "was 'reput prepare' run? make test does"


def test_the_jvm_has_room_for_compiled_code(spark: SparkSession) -> None:
    """Spark fills the 48 MB that a JVM without its optimising compiler reserves, and dies of VirtualMachineErrors."""
    jvm = spark._jvm
    assert jvm is not None
    pools = jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    assert sum(pool.getUsage().getMax() for pool in pools if "Code" in pool.getName()) >= 200 << 20


def test_workers_import_the_installed_pyspark(spark: SparkSession) -> None:
    """Not Spark's zip, which each of them would compile again."""

    def imported(_: int) -> str:
        import pyspark.worker

        return str(pyspark.worker.__file__)

    (path,) = spark.sparkContext.parallelize([0], 1).map(imported).collect()
    assert path == str(Path(pyspark.__path__[0], "worker.py"))
