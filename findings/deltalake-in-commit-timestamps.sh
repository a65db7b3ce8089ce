#!/usr/bin/env bash
# deltalake 1.6.6 on a table with in-commit timestamps (delta-spark 4.4.0): `history()` returns the times that are written in
# the commits, and `load_as_version(time)` looks for the version by the modification times of the log's files, which in such
# a table mean nothing. In a copy of the table, whose files are all newer, each time leads to version 0, also one after all
# commits: no error, and a table without rows. Polars 2.1.0, `scan_delta(version=time)`, does the same, since it asks
# deltalake. Spark finds the same versions in the copy as in the table.
# Seen on 2026-11-29. Needs Python 3.11 or later and Java 17.
source "$(dirname "$0")/expect.sh"
python_with_spark deltalake==1.6.6 polars==2.1.0

cat >times.py <<'PY'
import shutil
import time
from datetime import UTC, datetime, timedelta

import polars
from deltalake import DeltaTable
from session import spark

spark.sql("CREATE TABLE original (id INT) USING delta TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')")
for number in range(3):
    time.sleep(3)
    spark.sql(f"INSERT INTO original VALUES ({number})")
original, copy = "spark-warehouse/original", "spark-warehouse/copy"
shutil.copytree(original, copy, copy_function=shutil.copyfile)


def history(path):
    return {commit["version"]: commit["timestamp"] for commit in DeltaTable(path).history()}


def rows_at(path, when):
    table = DeltaTable(path)
    table.load_as_version(when)
    spark_rows = spark.read.format("delta").option("timestampAsOf", f"{when:%Y-%m-%d %H:%M:%S.%f}").load(path).count()
    polars_rows = polars.scan_delta(path, version=when).collect().height
    return f"Spark {spark_rows}, deltalake {table.to_pyarrow_table().num_rows}, Polars {polars_rows}"


print("history() of both is equal:", history(original) == history(copy))
for version in (1, 2):
    when = datetime.fromtimestamp(history(copy)[version] / 1000, UTC) + timedelta(seconds=1)
    print(f"rows a second after version {version}: {rows_at(original, when)}; in the copy: {rows_at(copy, when)}")
PY
printed times.py | seen 'history() of both is equal: True
rows a second after version 1: Spark 1, deltalake 1, Polars 1; in the copy: Spark 1, deltalake 0, Polars 0
rows a second after version 2: Spark 2, deltalake 2, Polars 2; in the copy: Spark 2, deltalake 0, Polars 0'
