#!/usr/bin/env bash
# deltalake 1.6.6 on a table with column mapping (delta-spark 4.4.0): `to_pyarrow_table`, and all that is made of
# `to_pyarrow_dataset`, as `to_pandas`, take a column's name for its name in the files. Where a column was renamed, and a
# new one has its old name now, the new one comes back with the values of the renamed one, and the renamed one is empty. A
# table with column mapping from its beginning comes back as nulls, with the right number of rows. No error, no warning:
# such a table has reader version 2, which has no list of features, and a check for column mapping is made in that list
# alone. deltalake's SQL reads the same tables right.
# Seen on 2026-11-29. Needs Python 3.10 or later and Java 17.
source "$(dirname "$0")/expect.sh"
python_with_spark deltalake==1.6.6

cat >renamed.py <<'PY'
import pyarrow
from deltalake import DeltaTable, QueryBuilder
from session import spark


def compare(table):
    print(f"{table}: Spark", spark.sql(f"SELECT * FROM {table} ORDER BY id").toArrow().to_pylist())
    deltalake = DeltaTable(f"spark-warehouse/{table}")
    answer = QueryBuilder().register("t", deltalake).execute("SELECT * FROM t ORDER BY id").read_all()
    print(f"{table}: deltalake's SQL", pyarrow.table(answer).to_pylist())
    print(f"{table}: to_pyarrow_table", deltalake.to_pyarrow_table().sort_by("id").to_pylist())


spark.sql("CREATE TABLE renamed (id INT, price INT) USING delta")
spark.sql("INSERT INTO renamed VALUES (1, 10)")
spark.sql("ALTER TABLE renamed SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
spark.sql("ALTER TABLE renamed RENAME COLUMN price TO old_price")
spark.sql("ALTER TABLE renamed ADD COLUMN price INT")
spark.sql("INSERT INTO renamed VALUES (2, 20, 200)")
compare("renamed")
spark.sql("CREATE TABLE mapped (id INT, price INT) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
spark.sql("INSERT INTO mapped VALUES (1, 10)")
compare("mapped")
PY
printed renamed.py | seen "renamed: Spark [{'id': 1, 'old_price': 10, 'price': None}, {'id': 2, 'old_price': 20, 'price': 200}]
renamed: deltalake's SQL [{'id': 1, 'old_price': 10, 'price': None}, {'id': 2, 'old_price': 20, 'price': 200}]
renamed: to_pyarrow_table [{'id': 1, 'old_price': None, 'price': 10}, {'id': 2, 'old_price': None, 'price': 20}]
mapped: Spark [{'id': 1, 'price': 10}]
mapped: deltalake's SQL [{'id': 1, 'price': 10}]
mapped: to_pyarrow_table [{'id': None, 'price': None}]"
