"""Spark in the JVM of ``spark-submit``: its master, its settings beside those of reput, and its packages."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from reput.source.errors import EnvironmentSetupError
from reput.streaming.process.jvm import connected
from reput.streaming.process.python_warnings import WARNINGS
from reput.streaming.process.submission import submit_gateway

_EXTENSIONS, _PACKAGES = "spark.sql.extensions", "spark.jars.packages"
_S3 = "org.apache.hadoop.fs.s3a.S3AFileSystem"
# What rows and commits depend on; any other setting of spark-submit beats reput's own.
_NEEDED = {"spark.app.name", "spark.master", "spark.sql.session.timeZone", "spark.sql.catalog.spark_catalog"}
# A JVM that runs is past these.
_OF_A_START = {
    *("spark.driver.memory", "spark.driver.extraJavaOptions", "spark.driver.extraClassPath"),
    *(_PACKAGES, "spark.jars.excludes"),
}


def submitted_master() -> str | None:
    """The master that ``spark-submit`` was given; None if it did not start this process."""
    if submit_gateway() is None:
        return None
    connect()
    return SparkConf().get("spark.master")


def connect() -> None:
    """Have pyspark use the JVM of ``spark-submit``, which started this process."""
    known = submit_gateway()
    assert known is not None
    if SparkContext._gateway is None:  # noqa: SLF001
        found = connected(*known)
        SparkContext._gateway, SparkContext._jvm = found, found.jvm  # noqa: SLF001


def builder_beside(own: SparkSession.Builder) -> SparkSession.Builder:
    """A builder for a session in this JVM: what ``spark-submit`` was given counts, where it can, before `own` settings.

    Raises
    ------
    EnvironmentSetupError
        ``spark-submit`` was not given the packages that `own` asks for.
    """
    connect()
    options: dict[str, str] = own._options  # noqa: SLF001
    _check_classes(options)
    builder = SparkSession.Builder()
    for name, value in _beside(options, dict(SparkConf().getAll())).items():
        builder = builder.config(name, value)
    return builder


def _beside(own: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    settings = {
        name: value for name, value in own.items() if name not in _OF_A_START and (name in _NEEDED or name not in given)
    }
    if _EXTENSIONS in own and _EXTENSIONS in given:
        names = [*given[_EXTENSIONS].split(","), *own[_EXTENSIONS].split(",")]
        settings[_EXTENSIONS] = ",".join(dict.fromkeys(name.strip() for name in names))
    # As in a JVM of reput's own: Python processes load no code from the directory that they run in, and do not warn.
    return {"spark.executorEnv.PYTHONSAFEPATH": "1", **_warnings_as_here(given), **settings}


def _warnings_as_here(given: Mapping[str, str]) -> Mapping[str, str]:
    name = f"spark.executorEnv.{WARNINGS}"
    return {name: os.environ[WARNINGS]} if WARNINGS in os.environ and name not in given else {}


def _check_classes(options: Mapping[str, str]) -> None:
    packages = options.get(_PACKAGES, "")
    wanted = [options[_EXTENSIONS]] if _EXTENSIONS in options else []
    wanted += [_S3] if "hadoop-aws" in packages else []
    jvm: Any = SparkContext._jvm  # noqa: SLF001
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for name in wanted:
        if loader.getResource(name.replace(".", "/") + ".class") is None:
            msg = f"the JVM that spark-submit started has no class {name}"
            raise EnvironmentSetupError(msg, advice=f"give spark-submit --packages {packages}")
