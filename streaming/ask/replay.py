"""Messages that a question found: as ranges of queue offsets to consume again, or with bodies to send again."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from reput.sinks.table.location import TableLocation
from reput.source.errors import DataLossError, OptionError
from reput.source.log.log_reader import Absence
from reput.source.printable import counted, printable_json
from reput.source.times import milliseconds_of
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.query.store_lookup import Found, message_row, messages_of, plain_body
from reput.streaming.sql.output import ListedResult, output_file

_QUEUE: Final = ("broker", "topic", "queue_id")
_PLACE: Final = (*_QUEUE, "queue_offset")
_PLAN: Final = (*_QUEUE, "first_offset", "last_offset", "messages", "first_stored_ms")

Rows = Sequence[Sequence[Any]]


def replay_plan(names: Sequence[str], rows: Rows) -> ListedResult:
    """Return the messages in `rows` as ranges of consecutive queue offsets, ascending within each queue.

    Both offsets of a range are inclusive. ``first_stored_ms`` is the least store time of its messages, in milliseconds,
    as ``mqadmin resetOffsetByTime -s`` takes it; NULL where the rows have none.

    Raises
    ------
    OptionError
        The rows are not messages: a column of their places is missing.
    """
    places = sorted(_places(names, rows), key=itemgetter(0, 1, 2, 3))
    ranges: list[list[Any]] = []
    for *queue, offset, stored in places:
        last = ranges[-1] if ranges else None
        if last is not None and last[:3] == queue and offset <= last[4] + 1:
            last[5] += offset > last[4]
            last[4] = offset
            last[6] = min((time for time in (last[6], stored) if time is not None), default=None)
        else:
            ranges.append([*queue, offset, offset, 1, stored])
    return ListedResult(_PLAN, ranges)


def _places(names: Sequence[str], rows: Rows) -> Iterator[tuple[str, str, int, int, int | None]]:
    _check(names, _PLACE, "--plan")
    columns = [names.index(name) for name in _PLACE]
    stored = names.index("store_time") if "store_time" in names else None
    for row in rows:
        time = None if stored is None or row[stored] is None else milliseconds_of(row[stored])
        broker, topic, queue_id, queue_offset = (row[column] for column in columns)
        yield broker, topic, queue_id, queue_offset, time


def _check(names: Sequence[str], wanted: Sequence[str], option: str) -> None:
    if missing := [name for name in wanted if name not in names]:
        raise OptionError(f"{option} is for questions that find messages: this one has no {', '.join(missing)}")


def write_messages(path: Path, table: TableLocation, names: Sequence[str], rows: Rows, config: PipelineConfig) -> str:
    """Write the messages that `rows` of `table` name, from the log of `config`, to `path`; return how many, in words.

    The file has a line for each message, in the order of the rows: the JSON of ``reput query --format json`` with
    ``body_base64``, the body as the producer gave it. A message in two rows is written once.

    Raises
    ------
    OptionError
        A column of the places of messages is missing.
    OutputError
        The file cannot be written.
    DataLossError
        Some of the messages are not in the log, or not whole. The file has the others.
    """
    _check(names, (*_PLACE, "physical_offset"), "--bodies")
    columns = [names.index(name) for name in ("physical_offset", "topic", "queue_id", "queue_offset")]
    places = dict.fromkeys(tuple(row[column] for column in columns) for row in rows)
    messages, written, missing = messages_of(config), 0, Counter[str]()
    with output_file(path, table) as out:
        for offset, *place in places:
            found = messages.find(offset)
            if isinstance(found, Absence):
                missing[found.reason] += 1
            elif [found.topic, found.queue_id, found.queue_offset] != place:
                missing["another message has the offset"] += 1
            elif (body := plain_body(found)) is None:
                missing["the body cannot be decompressed"] += 1
            else:
                row = message_row(Found(found), with_body=False)
                out.write(printable_json(row | {"body_base64": base64.b64encode(body).decode()}) + "\n")
                written += 1
    told = f"{counted(written, 'message with its body is', 'messages with their bodies are')} in {path}"
    if missing:
        causes = ", ".join(f"{cause}: {count}" for cause, count in sorted(missing.items()))
        raise DataLossError(
            f"{missing.total()} of {len(places)} messages are not in the log ({causes}); {told}", file=config.store
        )
    return told
