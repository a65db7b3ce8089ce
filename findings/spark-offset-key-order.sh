#!/usr/bin/env bash
# pyspark 4.2.0, Python data source, streaming: a source whose newest offset is equal as a dict, but has its keys in
# another order, gets a micro-batch each time it is asked. Spark compares the JSON text of an offset, and `json.dumps`
# keeps the order of a dict's keys. So a source that builds its offset from a set, or merges dicts in the order in which
# files are listed, runs batches without data for ever. Here one offset in two orders made a batch each, and each batch
# got a pair of offsets that are equal in Python.
# Seen on 2026-11-27. Needs Python 3.10 or later and Java 17.
source "$(dirname "$0")/expect.sh"
python_with pyspark==4.2.0 pyarrow==26.0.1 pandas==2.3.3

cat >offsets.py <<'PY'
import json
import time

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition


class Reader(DataSourceStreamReader):
    orders = ({"a": 5, "b": 7}, {"b": 7, "a": 5})
    asked = 0

    def initialOffset(self):
        return self.orders[0]

    def latestOffset(self):
        Reader.asked += 1
        return self.orders[Reader.asked % 2]

    def partitions(self, start, end):
        return [InputPartition(None)]

    def read(self, partition):
        return iter(())


class Source(DataSource):
    @classmethod
    def name(cls):
        return "two_orders"

    def schema(self):
        return "nothing int"

    def streamReader(self, schema):
        return Reader()


spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.dataSource.register(Source)
query = spark.readStream.format("two_orders").load().writeStream.format("noop").trigger(processingTime="0 seconds").start()
deadline = time.monotonic() + 300
while len(query.recentProgress) < 6 and time.monotonic() < deadline:
    time.sleep(0.2)
for progress in query.recentProgress[1:6]:  # the first leads from no offset to one
    start, end = (json.loads(progress.sources[0][name]) for name in ("startOffset", "endOffset"))
    print("batch from", list(start.items()), "to", list(end.items()), "equal:", start == end)
query.stop()
PY
export PYSPARK_PYTHON="$python"
"$python" offsets.py 2>spark.log | grep -o 'batch from.*' >batches.txt || { tail -20 spark.log; exit 1; }
# Which of the two orders comes first is the timing's.
sort -u batches.txt | seen "batch from [('a', 5), ('b', 7)] to [('b', 7), ('a', 5)] equal: True
batch from [('b', 7), ('a', 5)] to [('a', 5), ('b', 7)] equal: True"
