#!/usr/bin/env bash
# Polars 2.1.0, `scan_delta`, on a table that Spark (delta-spark 4.4.0) has partitioned by a TIMESTAMP in a session with another
# time zone than UTC: the partition's value is read from the name of the folder, not from the Delta log. Delta writes the
# value into the log in UTC, and into the folder's name in the session's time zone; Polars takes that for UTC. Here 12:00 UTC
# comes back as 07:00 UTC, and a filter for 12:00 finds nothing. Names of folders mean nothing in a Delta table: deltalake,
# through which Polars reads the log, and Spark return 12:00. Where the folder has another name
# (`delta.randomizeFilePrefixes`), Polars does, too.
# Seen on 2026-11-29. Needs Python 3.11 or later and Java 17.
source "$(dirname "$0")/expect.sh"
python_with_spark deltalake==1.6.6 polars==2.1.0

cat >hours.py <<'PY'
from datetime import UTC, datetime

import polars
from deltalake import DeltaTable
from session import spark

noon = datetime(2026, 11, 28, 12, tzinfo=UTC)
for random in ("false", "true"):
    table = f"random_{random}"
    properties = f"TBLPROPERTIES ('delta.randomizeFilePrefixes' = '{random}')"
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    spark.sql(f"CREATE TABLE {table} (id INT, hour TIMESTAMP) USING delta PARTITIONED BY (hour) {properties}")
    spark.sql(f"INSERT INTO {table} VALUES (1, TIMESTAMP '2026-11-28 12:00:00 UTC')")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    path = f"spark-warehouse/{table}"
    hours = {
        "Spark": spark.table(table).toArrow()["hour"].to_pylist(),
        "deltalake": DeltaTable(path).to_pyarrow_table()["hour"].to_pylist(),
        "Polars": polars.scan_delta(path).collect()["hour"].to_list(),
    }
    found = polars.scan_delta(path).filter(polars.col("hour") == noon).collect().height
    shown = ", ".join(f"{reader} {hour:%H:%M %Z}" for reader, (hour,) in hours.items())
    print(f"randomizeFilePrefixes={random}: {shown}; rows that Polars finds at 12:00: {found}")
PY
printed hours.py | seen 'randomizeFilePrefixes=false: Spark 12:00 UTC, deltalake 12:00 UTC, Polars 07:00 UTC; rows that Polars finds at 12:00: 0
randomizeFilePrefixes=true: Spark 12:00 UTC, deltalake 12:00 UTC, Polars 12:00 UTC; rows that Polars finds at 12:00: 1'
