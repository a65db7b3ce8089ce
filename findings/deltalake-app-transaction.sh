#!/usr/bin/env bash
# deltalake 1.6.6: `CommitProperties(app_transactions=[Transaction(app, version)])` records a version, and guards nothing.
# A write with a version that the table has already, or with a lower one, is committed, and the lower one becomes the
# table's. Only two writers in the same moment, from the same version of the table, conflict. A writer that relies on
# it for exactly once, as on Spark's txnAppId and txnVersion, writes rows twice; it has to compare
# `transaction_version(app)` itself before it writes.
# RESTORE does not bring a version back either: after it the table has the rows of version 0 and the newest transaction,
# so a writer that compares skips what it should write again.
# Seen on 2026-11-27. Needs Python 3.10 or later.
source "$(dirname "$0")/expect.sh"
python_with deltalake==1.6.6 pyarrow==26.0.1

cat >transactions.py <<'PY'
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake


def show(what):
    table = DeltaTable("table")
    rows = table.to_pyarrow_table().num_rows
    print(f"{what}: table version {table.version()}, transaction {table.transaction_version('app')}, rows {rows}")


for version in (1, 2, 2, 1):
    properties = CommitProperties(app_transactions=[Transaction("app", version)])
    write_deltalake("table", pa.table({"a": [version]}), mode="append", commit_properties=properties)
    show(f"written with {version}")
DeltaTable("table").restore(0)
show("restored to table version 0")
PY
"$python" transactions.py | seen 'written with 1: table version 0, transaction 1, rows 1
written with 2: table version 1, transaction 2, rows 2
written with 2: table version 2, transaction 2, rows 3
written with 1: table version 3, transaction 1, rows 4
restored to table version 0: table version 4, transaction 1, rows 1'
