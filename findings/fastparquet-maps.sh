#!/usr/bin/env bash
# fastparquet 2026.9.0 reads a column of maps that pyarrow 26.0.1 wrote without an error, and without its values, unless
# keys and values are in dictionaries: with one for the keys alone, each value is its key; without one for the keys, each
# map is None. A writer leaves dictionaries out by itself once they have grown too large: then the first rows of a file
# are right, and the later ones are None.
# Seen on 2026-11-29. Needs Python 3.10 or later.
source "$(dirname "$0")/expect.sh"
python_with fastparquet==2026.9.0 pyarrow==26.0.1

cat >maps.py <<'PYTHON'
import fastparquet
import pyarrow as pa
import pyarrow.parquet as pq

maps = pa.map_(pa.string(), pa.string())


def written(rows, **options):
    pq.write_table(pa.table({"m": pa.array(rows, maps)}), "maps.parquet", **options)
    return list(fastparquet.ParquetFile("maps.parquet").to_pandas()["m"])


rows = [[("a", "x")], [("b", "y"), ("c", "z")]]
print("written:             ", [dict(row) for row in rows])
for name, options in {
    "with dictionaries": {},
    "without": {"use_dictionary": False},
    "of keys alone": {"use_dictionary": ["m.key_value.key"]},
    "of values alone": {"use_dictionary": ["m.key_value.value"]},
}.items():
    print(f"{name + ':':21}", written(rows, **options))
many = [[(f"key {number}", f"value {number}")] for number in range(200_000)]
read = written(many)
print(f"of 200,000 maps, dictionaries grown too large: {sum(each is None for each in read):,} are None")
PYTHON
"$python" maps.py | seen "written:              [{'a': 'x'}, {'b': 'y', 'c': 'z'}]
with dictionaries:    [{'a': 'x'}, {'b': 'y', 'c': 'z'}]
without:              [None, None]
of keys alone:        [{'a': 'a'}, {'b': 'b', 'c': 'c'}]
of values alone:      [None, None]
of 200,000 maps, dictionaries grown too large: 117,952 are None"
