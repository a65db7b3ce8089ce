#!/usr/bin/env bash
# @dsnp/parquetjs 1.8.8, a reader of Parquet for Node.js: a column of the type UINT_32 that pyarrow 26.0.1 wrote comes out
# signed, 4294967295 as -1, without an error; a time in microseconds loses what is below a millisecond, and one before
# 1970 is rounded the other way (up). Of the same file it reads 64-bit numbers, lists, maps and null right, and an empty
# list of a row is told from a list that is null.
# Seen on 2026-11-27. Needs Python 3.10 or later, Node.js 20 and npm.
source "$(dirname "$0")/expect.sh"
python_with pyarrow==26.0.1
"$python" - <<'PY'
import pyarrow as pa
import pyarrow.parquet as pq

columns = {
    "unsigned": pa.array([0, 2**31 - 1, 2**32 - 1], pa.uint32()),
    "long": pa.array([0, 2**53 + 1, -5], pa.int64()),
    "time": pa.array([0, 1_700_000_000_123_999, -1_999], pa.timestamp("us", tz="UTC")),
    "list": pa.array([["a"], [], None], pa.list_(pa.string())),
}
pq.write_table(pa.table(columns), "unsigned.parquet")
PY
npm init -y >npm.log
npm install --silent --no-audit --no-fund @dsnp/parquetjs@1.8.8
cat >read.js <<'JS'
const { ParquetReader } = require('@dsnp/parquetjs');
(async () => {
  const reader = await ParquetReader.openFile('unsigned.parquet');
  const cursor = reader.getCursor();
  for (let row; (row = await cursor.next()); ) {
    console.log(JSON.stringify(row, (key, value) => (typeof value === 'bigint' ? `${value}` : value)));
  }
  await reader.close();
})();
JS
node read.js | seen '{"unsigned":0,"long":"0","time":"1970-01-01T00:00:00.000Z","list":{"list":[{"element":"a"}]}}
{"unsigned":2147483647,"long":"9007199254740993","time":"2023-11-14T22:13:20.123Z","list":{"list":null}}
{"unsigned":-1,"long":"-5","time":"1969-12-31T23:59:59.999Z","list":null}'
