#!/usr/bin/env bash
# deltalake 1.6.6 and delta-spark 4.4.0: deltalake leaves NaN out of the largest value that it notes for a column of a file. To
# Spark NaN is larger than all numbers and equal to itself, so it skips the file in which it should find it: `x > 1000` and
# `x = double('NaN')` return no row, `x >= 5` returns NaN, and `max(x)` is 5.0 where `max(x + 0)` is NaN, because the first is
# answered from the log. Spark notes NaN as the largest value of its own files, and finds it there in all four cases. The
# rows and their values are right in both tables; only what is skipped differs.
# Seen on 2026-11-29. Needs Python 3.10 or later and Java 17.
source "$(dirname "$0")/expect.sh"
python_with_spark deltalake==1.6.6

cat >nan.py <<'PY'
import math

import pyarrow
from deltalake import write_deltalake
from session import spark

write_deltalake("deltalake", pyarrow.table({"x": [5.0, math.nan]}))
spark.createDataFrame([(5.0,), (math.nan,)], "x DOUBLE").coalesce(1).write.format("delta").save("Spark")
for writer in ("Spark", "deltalake"):
    table = spark.read.format("delta").load(writer)
    for condition in ("isnan(x)", "x > 1000", "x = double('NaN')", "x >= 5"):
        print(f"written by {writer}: {condition}: {[row.x for row in table.where(condition).collect()]}")
    for highest in ("max(x)", "max(x + 0)"):
        print(f"written by {writer}: {highest}: {table.selectExpr(f'{highest} AS highest').first().highest}")
PY
printed nan.py | seen "written by Spark: isnan(x): [nan]
written by Spark: x > 1000: [nan]
written by Spark: x = double('NaN'): [nan]
written by Spark: x >= 5: [5.0, nan]
written by Spark: max(x): nan
written by Spark: max(x + 0): nan
written by deltalake: isnan(x): [nan]
written by deltalake: x > 1000: []
written by deltalake: x = double('NaN'): []
written by deltalake: x >= 5: [5.0, nan]
written by deltalake: max(x): 5.0
written by deltalake: max(x + 0): nan"
