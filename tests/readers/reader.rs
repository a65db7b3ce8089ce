//! Read Parquet files with the crate `parquet`, and print every row as a line of JSON, as by_python.py says.

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use serde_json::{json, Map, Value};
use std::io::{BufWriter, Write};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = BufWriter::new(std::io::stdout());
    for path in std::env::args().skip(1) {
        writeln!(out, "{}", json!(path))?;
        let file = SerializedFileReader::new(std::fs::File::open(&path)?)?;
        for row in file.get_row_iter(None)? {
            writeln!(out, "{}", columns(&row?))?;
        }
    }
    Ok(out.flush()?)
}

fn columns(row: &Row) -> Value {
    let known = row.get_column_iter().filter(|(_, field)| !matches!(field, Field::Null));
    Value::Object(known.map(|(name, field)| (name.clone(), plain(field))).collect::<Map<_, _>>())
}

fn plain(field: &Field) -> Value {
    match field {
        Field::Int(number) => json!(number),
        Field::Long(number) | Field::TimestampMicros(number) => json!(number),
        Field::Str(text) => json!(text),
        Field::Bytes(bytes) => json!(bytes.data().iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
        Field::ListInternal(list) => list.elements().iter().map(plain).collect(),
        Field::MapInternal(map) => map.entries().iter().map(|(key, value)| json!([plain(key), plain(value)])).collect(),
        other => panic!("{other:?}"),
    }
}
