#!/usr/bin/env bash
# parquet-go 0.32.0: `Schema.Lookup` finds a nested column by its path, and returns a LeafColumn whose Path has the last
# name alone. So columns of two lists or maps have the same Path, also that of a flat column of this name. The numbers of
# columns (ColumnIndex) are right, and `Schema.Columns` has the whole paths.
# Seen on 2026-11-29. Needs Python 3.11 or later and Go 1.26.
source "$(dirname "$0")/expect.sh"

python_with pyarrow==26.0.1
"$python" - <<'PYTHON'
import pyarrow as pa
import pyarrow.parquet as pq

maps = pa.array([[("k", "v")]], pa.map_(pa.string(), pa.string()))
pq.write_table(pa.table({"key": ["text"], "first": maps, "second": maps}), "maps.parquet")
PYTHON
cat >lookup.go <<'GO'
package main

import (
	"fmt"
	"os"

	"github.com/parquet-go/parquet-go"
)

func main() {
	file, _ := os.Open("maps.parquet")
	size, _ := file.Stat()
	parquetFile, err := parquet.OpenFile(file, size.Size())
	if err != nil {
		panic(err)
	}
	for _, path := range parquetFile.Schema().Columns() {
		leaf, found := parquetFile.Schema().Lookup(path...)
		fmt.Println("looked for", path, "found", found, leaf.ColumnIndex, leaf.Path)
	}
}
GO
go mod init lookup 2>go.log
go get github.com/parquet-go/parquet-go@v0.32.0 2>>go.log
go run lookup.go | seen 'looked for [key] found true 0 [key]
looked for [first key_value key] found true 1 [key]
looked for [first key_value value] found true 2 [value]
looked for [second key_value key] found true 3 [key]
looked for [second key_value value] found true 4 [value]'
