#!/usr/bin/env bash
# fastparquet 2026.9.0 reads a column of maps that pyarrow 26.0.1 wrote without an error, and without its values, unless
# keys and values are in dictionaries: with one for the keys alone, each value is its key; without one for the keys, each
# map is None. A writer leaves dictionaries out by itself once they have grown too large: then the first rows of a file
# are right, and the later ones are None. Lists of texts are None in the same way. This is so from 2026.5.0 on, and only
# where pyarrow is installed: 2026.3.0 reads all of it, and so does 2026.9.0 without pyarrow.
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
cat >write.py <<'PYTHON'
import pyarrow as pa
import pyarrow.parquet as pq

lists = [[f"element {n:07}"] for n in range(100_000)]
maps = [[("key", f"value {n:07}")] for n in range(100_000)]
pq.write_table(pa.table({"list": lists, "map": pa.array(maps, pa.map_(pa.string(), pa.string()))}), "texts.parquet")
written = pq.read_table("texts.parquet")
assert written["list"].to_pylist() == lists and written["map"].to_pylist() == maps
PYTHON
cat >read.py <<'PYTHON'
import fastparquet

found = fastparquet.ParquetFile("texts.parquet").to_pandas()
lists = sum(got == [f"element {n:07}"] for n, got in enumerate(found["list"]))
maps = sum(got == {"key": f"value {n:07}"} for n, got in enumerate(found["map"]))
print(f"{lists:,} lists and {maps:,} maps of {len(found):,} are right, the last are {found.iloc[-1].to_list()}")
PYTHON
{
    "$python" maps.py
    "$python" write.py
    for version in 2026.9.0 2026.5.0 2026.3.0; do
        "$python" -m pip install --quiet --disable-pip-version-check "fastparquet==$version"
        echo "$version: $("$python" read.py)"
    done
    "$python" -m pip uninstall --quiet --yes pyarrow
    "$python" -m pip install --quiet --disable-pip-version-check fastparquet==2026.9.0
    echo "2026.9.0 without pyarrow: $("$python" read.py)"
} | seen "written:              [{'a': 'x'}, {'b': 'y', 'c': 'z'}]
with dictionaries:    [{'a': 'x'}, {'b': 'y', 'c': 'z'}]
without:              [None, None]
of keys alone:        [{'a': 'a'}, {'b': 'b', 'c': 'c'}]
of values alone:      [None, None]
of 200,000 maps, dictionaries grown too large: 117,952 are None
2026.9.0: 55,360 lists and 62,048 maps of 100,000 are right, the last are [None, {'key': 'key'}]
2026.5.0: 55,360 lists and 62,048 maps of 100,000 are right, the last are [None, {'key': 'key'}]
2026.3.0: 100,000 lists and 100,000 maps of 100,000 are right, the last are [['element 0099999'], {'key': 'value 0099999'}]
2026.9.0 without pyarrow: 100,000 lists and 100,000 maps of 100,000 are right, the last are [['element 0099999'], {'key': 'value 0099999'}]"
