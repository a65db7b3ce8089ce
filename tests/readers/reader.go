// Read Parquet files with parquet-go, and print every row as a line of JSON, as by_python.py says.
package main

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"

	"github.com/parquet-go/parquet-go"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func main() {
	out := bufio.NewWriter(os.Stdout)
	lines := json.NewEncoder(out)
	lines.SetEscapeHTML(false)
	for _, path := range os.Args[1:] {
		must(0, lines.Encode(path))
		file := must(os.Open(path))
		size := must(file.Stat()).Size()
		read(must(parquet.OpenFile(file, size)), lines)
		must(0, file.Close())
	}
	must(0, out.Flush())
}

func read(file *parquet.File, lines *json.Encoder) {
	paths := file.Schema().Columns()
	leaves := make([]parquet.LeafColumn, len(paths))
	for at, path := range paths {
		leaves[at], _ = file.Schema().Lookup(path...)
		leaves[at].Path = path // Lookup gives the last name alone
	}
	buffer := make([]parquet.Row, 1000)
	for _, group := range file.RowGroups() {
		rows := group.Rows()
		for {
			count, err := rows.ReadRows(buffer)
			for _, row := range buffer[:count] {
				must(0, lines.Encode(columns(row, leaves)))
			}
			if errors.Is(err, io.EOF) {
				break
			}
			must(0, err)
		}
		must(0, rows.Close())
	}
}

// The columns of a row that are not null. A list has one leaf, a map two.
func columns(row parquet.Row, leaves []parquet.LeafColumn) map[string]any {
	known := map[string]any{}
	items := map[string][][]any{}
	row.Range(func(at int, values []parquet.Value) bool {
		leaf := leaves[at]
		name := leaf.Path[0]
		if leaf.MaxRepetitionLevel == 0 {
			if !values[0].IsNull() {
				known[name] = plain(values[0], leaf.Node)
			}
			return true
		}
		if values[0].DefinitionLevel() == 0 {
			return true // the list is null
		}
		if items[name] == nil {
			items[name] = make([][]any, len(values))
		}
		for number, value := range values {
			if value.DefinitionLevel() == leaf.MaxDefinitionLevel {
				items[name][number] = append(items[name][number], plain(value, leaf.Node))
			}
		}
		return true
	})
	for name, each := range items {
		list := []any{}
		for _, item := range each {
			switch len(item) {
			case 1:
				list = append(list, item[0])
			case 2:
				list = append(list, item)
			}
		}
		known[name] = list
	}
	return known
}

func plain(value parquet.Value, node parquet.Node) any {
	switch value.Kind() {
	case parquet.Int32:
		return value.Int32()
	case parquet.Int64:
		return value.Int64()
	}
	if kind := node.Type().LogicalType(); kind != nil && kind.String() == "STRING" {
		return string(value.ByteArray())
	}
	return hex.EncodeToString(value.ByteArray())
}
