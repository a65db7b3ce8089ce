// Read Parquet files with hyparquet, and print every row as a line of JSON, as by_python.py says.

import { asyncBufferFromFile, parquetReadObjects } from 'hyparquet'
import { compressors } from 'hyparquet-compressors'

// By default a time becomes a Date, which has milliseconds, and bytes become text.
const exact = { parsers: { timestampFromMicroseconds: (micros) => micros }, utf8: false }

function json(value) {
  if (typeof value === 'bigint') return value.toString()
  if (value instanceof Uint8Array) return `"${Buffer.from(value).toString('hex')}"`
  if (Array.isArray(value)) return `[${value.map(json).join(',')}]`
  return value && typeof value === 'object' ? json(Object.entries(value)) : JSON.stringify(value)
}

for (const path of process.argv.slice(2)) {
  const lines = [JSON.stringify(path)]
  for (const row of await parquetReadObjects({ file: await asyncBufferFromFile(path), compressors, ...exact })) {
    const known = Object.entries(row).filter(([, value]) => value !== null && value !== undefined)
    lines.push(`{${known.map(([name, value]) => `${JSON.stringify(name)}:${json(value)}`).join(',')}}`)
  }
  process.stdout.write(`${lines.join('\n')}\n`)
}
