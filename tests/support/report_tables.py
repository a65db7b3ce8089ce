"""Message tables for `reput report`: of any rows, and one with many topics whose names are meant to do harm."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from random import Random
from typing import Any

import deltalake
import pyarrow as pa

from reput.sinks.table.message_file import TABLE_SCHEMA

START = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
#: Names that end an element, an attribute or a text, act on a terminal or on the order of characters, or are long.
HOSTILE = (
    "</title></style></svg></td></script><script>document.title='owned'</script>",
    "\"'><img src=x onerror=document.title='owned'>",
    "&lt;b&gt; & ]]> <!-- <![CDATA[ --",
    "\u202egnp.exe\u2066 \x1b[31m\x00\x07\r\n\u2028\u200b\ufeff",
    "\ufffe\uffff\ufdd0\U0001ffff",
    "$\\frac{x}{0}$ \\mathbf{ ${env} {{template}} %s",
    "name0",
    "value0",
    "x" * 65_000,
    "W" * 30 + "\N{HANGUL SYLLABLE GAG}" * 40_000,
    "\u05e9\u05dc\u05d5\u05dd \u0627\u0644\u0633\u0644\u0627\u0645",
    "javascript:alert(1)",
    "",
)


def row_of(**known: Any) -> dict[str, Any]:
    """A row of the table: a normal message unless `known` says otherwise."""
    return dict.fromkeys(TABLE_SCHEMA.names) | {
        "broker": "b",
        "topic": "T",
        "queue_id": 0,
        "queue_offset": 0,
        "physical_offset": 0,
        "msg_size": 100,
        "body_size": 10,
        "store_time": START,
        "born_time": START,
        "sys_flag": 0,
        "transaction_type": "none",
        "reconsume_times": 0,
        "keys": [],
        "properties": [],
        "kind": "normal",
        **known,
    }


def write_rows(table: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """Add the rows to a table, which is made if it is missing."""
    deltalake.write_deltalake(str(table), pa.Table.from_pylist(list(rows), TABLE_SCHEMA), mode="append")
    return table


def hostile_table(table: Path, topics: int) -> Path:
    """Make a table of this many topics, most with one message, with hostile names and groups, and with gaps."""
    rng, rows = Random(topics), []
    for number in range(topics):
        topic = HOSTILE[number] if number < min(len(HOSTILE), topics - 1) else f"orders-{number:05d}"
        for offset in range(max(1, 40 - number)):
            kind = rng.choice(["normal", "retry", "dlq", "delayed"]) if number < len(HOSTILE) else "normal"
            size = 100 + (int(rng.lognormvariate(6, 1.5)) if number < len(HOSTILE) else rng.randrange(100))
            time = START + timedelta(minutes=number % 600 + offset)
            rows.append(
                row_of(
                    topic=topic,
                    broker=HOSTILE[number % 3],
                    queue_offset=2 * offset,
                    store_time=time,
                    born_time=time - timedelta(milliseconds=rng.lognormvariate(2, 2) - 1),
                    msg_size=size,
                    body_size=int(rng.lognormvariate(6, 1.5)),
                    kind=kind,
                    consumer_group=topic if kind in ("retry", "dlq") else None,
                    deliver_time=time + timedelta(minutes=7) if kind == "delayed" else None,
                )
            )
    return write_rows(table, rows)
