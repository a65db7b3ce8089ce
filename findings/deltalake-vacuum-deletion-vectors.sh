#!/usr/bin/env bash
# deltalake 1.6.6 and delta-spark 4.4.0: `DeltaTable.vacuum(full=True)` deletes deletion vectors that the table needs. It
# keeps the data files of the newest version, and takes any other file for an orphan once it is a week old, also the `.bin`
# file in which Spark has recorded which rows a DELETE took out. After that Spark cannot read the table any more. RESTORE to
# the version before the DELETE brings the rows back, with those that were deleted. Vacuum without `full`, and Spark's own
# VACUUM, keep the file. deltalake reads and writes tables with deletion vectors otherwise, so nothing stops it here.
# Seen on 2026-11-29. Needs Python 3.10 or later and Java 17.
source "$(dirname "$0")/expect.sh"
python_with_spark deltalake==1.6.6

cat >vacuum.py <<'PY'
import os
import time
from pathlib import Path

import pyarrow
from deltalake import DeltaTable, QueryBuilder
from session import spark

table = Path("spark-warehouse/t")


def ids():
    spark.catalog.refreshTable("t")
    try:
        return sorted(row.id for row in spark.table("t").collect())
    except Exception as error:
        assert "deletion_vector" in str(error), error
        return "an error, its deletion vector is missing"


def vectors():
    return len(list(table.glob("deletion_vector_*.bin")))


spark.sql("CREATE TABLE t (id LONG) USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
spark.range(0, 6, 1, 1).write.format("delta").mode("append").saveAsTable("t")
spark.sql("DELETE FROM t WHERE id < 2")
print("Spark reads", ids())
rows = pyarrow.table(QueryBuilder().register("t", DeltaTable(table)).execute("SELECT id FROM t ORDER BY id").read_all())
print("deltalake's SQL reads", rows["id"].to_pylist())
spark.sql("VACUUM t RETAIN 0 HOURS").collect()
print(f"Spark's VACUUM: {vectors()} deletion vector is left")
week_ago = time.time() - 8 * 24 * 3600
for file in table.iterdir():
    os.utime(file, (week_ago, week_ago))
for full in (False, True):
    gone = DeltaTable(table).vacuum(dry_run=False, full=full)
    print(f"deltalake's vacuum(full={full}): {len(gone)} files deleted, {vectors()} deletion vectors are left")
print("Spark reads", ids())
spark.sql("RESTORE TABLE t TO VERSION AS OF 1").collect()
print("Spark reads after RESTORE to the version before the DELETE", ids())
PY
printed vacuum.py | grep -v '^Deleted 0 files' | seen "Spark reads [2, 3, 4, 5]
deltalake's SQL reads [2, 3, 4, 5]
Spark's VACUUM: 1 deletion vector is left
deltalake's vacuum(full=False): 0 files deleted, 1 deletion vectors are left
deltalake's vacuum(full=True): 1 files deleted, 0 deletion vectors are left
Spark reads an error, its deletion vector is missing
Spark reads after RESTORE to the version before the DELETE [0, 1, 2, 3, 4, 5]"
