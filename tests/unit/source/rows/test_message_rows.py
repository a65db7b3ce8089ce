"""Rows collected over many windows are those of one, and memory that is used again holds nothing of before."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.logs import varied_messages
from support.message_row import row_of
from support.paths import TESTS
from support.record_writer import Message
from unit.sinks.table.test_message_file import MALFORMED
from unit.source.rows.test_message_columns import columns_of, rows_of

from reput.source.rows.column_builders import Properties, RepeatedTexts, Texts
from reput.source.rows.message_rows import ENCODED_SCHEMA, MessageRows

# Names that begin with the one at the same position of the record before, and more or fewer of them.
LIKE_NAMES = [
    Message(properties={"name"[: 1 + (i + item) % 4] + str(item) * (i % 3): f"v{i}" for item in range(i % 7)})
    for i in range(200)
]
NEW_NAMES = [
    Message(topic=f"T{i % 700}", properties={"TAGS": f"t{i}" * (1 + i % 40), f"n{i}": f"v{i}", "KEYS": f"a b{i}"})
    for i in range(1500)
]
LOGS = {
    "all shapes": varied_messages(300),
    "more texts than there was room for": NEW_NAMES,
    "bytes that are one text to Java": [Message(properties=MALFORMED[i % 3]) for i in range(60)],
    "one name twice in a record": [Message(properties=b"a\x01%d\x02b\x012\x02a\x013" % (i % 5)) for i in range(40)],
    "names that are almost those of the record before": LIKE_NAMES,
    "no properties": [Message() for _ in range(30)],
}


def plain(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows, each text as such; Arrow's own checks are done."""
    assert batch.schema.equals(ENCODED_SCHEMA)
    return rows_of(batch)


def spans_of(texts: list[bytes]) -> tuple[Any, Any, Any]:
    """The texts as bytes, starts and sizes."""
    sizes = np.array([len(text) for text in texts], np.int64)
    return np.frombuffer(b"".join(texts) + b"\0", np.uint8), np.cumsum(sizes) - sizes, sizes


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("window", [1, 7, 64, 10_000])
def test_windows_make_the_rows_of_the_log(name: str, window: int) -> None:
    """However the log is cut into windows; and again after the rows were cleared, from another record on."""
    rows, messages = MessageRows(), LOGS[name]
    for first in (0, len(messages) // 3):
        expected = []
        for start in range(first, len(messages), window):
            columns = columns_of(messages[start : start + window], 1000 * start)
            expected += [row_of(message) for message in columns.messages()]
            rows.add(columns)
        assert len(rows) == len(expected)
        assert expected == plain(rows.batch())
        rows.clear()
        assert (0, 0, 0) == (len(rows), rows.text_bytes, rows.batch().num_rows)


def test_a_batch_can_be_taken_twice() -> None:
    """A batch does not change what was collected: a name that is twice in a record was taken out of a copy."""
    rows = MessageRows()
    rows.add(columns_of(LOGS["one name twice in a record"]))
    assert plain(rows.batch()) == plain(rows.batch())
    rows.add(columns_of(LOGS["one name twice in a record"]))
    assert 80 == len(rows.batch())


def test_bytes_of_texts_are_told() -> None:
    """The caller limits a row group by them."""
    rows = MessageRows()
    messages = [Message(topic="T" * (1 + i % 2), properties={"name": "x" * 1000, "KEYS": "k" * 500}) for i in range(10)]
    rows.add(columns_of(messages))
    assert 10 * (1000 + 500) + len("nameKEYS") + 10 * 500 + len("TTT") == rows.text_bytes


@pytest.mark.parametrize("count", [1, 255, 256, 257, 512, 513, 5000])
def test_repeated_texts_have_one_number_each(count: int) -> None:
    """Around the sizes where tables grow: numbers in the order of appearance, empty texts none."""
    texts = [b"", *(b"text %d" % i for i in range(count)), b"", b"text 0", b"y" * 5000, b"text %d" % (count - 1)]
    column = RepeatedTexts()
    for _ in range(2):
        column.add(*spans_of(texts))
    codes, known = column.numbered()
    expected = [-1, *range(count), -1, 0, count, count - 1]
    assert 2 * expected == codes.tolist()
    assert [text.decode() for text in dict.fromkeys(texts) if text] == known.to_pylist()
    assert 2 * [text.decode() or None for text in texts] == column.array().to_pylist()


def test_texts_keep_what_was_there_when_they_grow() -> None:
    """Also the values that end at a buffer's last byte."""
    texts = Texts()
    values = [[bytes([97 + i % 26]) * (i * 37 % 600) for i in range(n)] for n in (1, 300, 0, 7, 900)]
    for window in values:
        texts.add(*spans_of(window))
    assert [value.decode() for window in values for value in window] == texts.array().to_pylist()
    expected = [value.decode() or None for window in values for value in window]
    assert expected == texts.array(null_if_empty=True).to_pylist()


def test_properties_without_a_record() -> None:
    """No rows are an array, too."""
    assert [] == Properties().maps(ENCODED_SCHEMA.field("properties").type).to_pylist()


def test_no_kernel_is_left_to_be_compiled_by_a_task() -> None:
    """Rows need only kernels compiled before processes are forked, with the same types; growing tables, too."""
    script = """
from reput.source.rows import column_kernels
from reput.source.rows.message_rows import MessageRows
from reput.streaming.spark.warm_up import compile_kernels
from unit.source.rows.test_message_columns import columns_of
from unit.source.rows.test_message_rows import LOGS

def compiled():
    return {name: len(found.signatures) for name, found in vars(column_kernels).items() if hasattr(found, "signatures")}

compile_kernels()
before, rows = compiled(), MessageRows()
for messages in LOGS.values():
    rows.add(columns_of(messages))
    rows.batch()
    rows.clear()
assert before == compiled(), (before, compiled())
assert before["index_texts"] == before["number_spans"] == before["add_properties"] == 1
"""
    tests = str(TESTS)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([tests, *sys.path])}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
