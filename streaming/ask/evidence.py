"""Evidence in the log about the messages of a question: message traces, and the records of POP consumers.

The table says where these records are: a trace message has the unique keys of the messages that it is about among its
keys, and the unique key of a POP record names the queue and the queue offset of the message. The evidence itself is in
their bodies. The table has bodies with tableIncludeBody, and the log has them until the records expire.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from reput.sinks.table.location import TableLocation
from reput.sinks.table.log import read_snapshot
from reput.source.errors import OptionError
from reput.source.printable import counted, printable
from reput.source.record.message_decoder import Message, MessageId
from reput.source.record.message_origin import DLQ, RETRY
from reput.source.record.message_trace import (
    END_TRANSACTION,
    PUB,
    RECALL,
    SUB_AFTER,
    SUB_BEFORE,
    MessageTrace,
    message_traces,
)
from reput.source.record.pop_record import ACK, BATCH_ACK, CHECKPOINT, REVIVE_TOPIC_PREFIX, PopRecord, pop_record
from reput.streaming.ask.values import literal
from reput.streaming.sql.duckdb_query import duckdb_query, text_literal
from reput.streaming.sql.output import NO_RELATIONS, Relations

if TYPE_CHECKING:
    from reput.source.log.log_reader import MessageLookup
    from reput.streaming.config.pipeline import PipelineConfig

_MOMENT: Final = pa.timestamp("us", tz="UTC")
#: A row is one fact, from the record at `evidence_offset`, about the message at `physical_offset`.
EVIDENCE_SCHEMA: Final = pa.schema(
    [
        ("broker", pa.string()),
        ("physical_offset", pa.int64()),
        ("consumer_group", pa.string()),
        ("state", pa.string()),
        ("evidence", pa.string()),
        ("happened_after", _MOMENT),
        ("happened_before", _MOMENT),
        ("detail", pa.string()),
        ("evidence_offset", pa.int64()),
    ]
)
#: A row is a message that a question asks for and that consumers can get: half and delayed messages are left out.
COPIES_SCHEMA: Final = pa.schema(
    [
        ("broker", pa.string()),
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("physical_offset", pa.int64()),
        ("store_time", _MOMENT),
        ("kind", pa.string()),
        ("reconsume_times", pa.int32()),
        ("uniq_key", pa.string()),
        ("msg_id", pa.string()),
        ("consumer_group", pa.string()),
        ("seen_until", _MOMENT),
    ]
)
#: The state of a message that is itself a message of traces.
IS_TRACE: Final = "is a trace"

_TRACE, _POP = "trace", "pop"
_WHEEL_TIMER: Final = "rmq_sys_wheel_timer"
# At most this many messages with one key, and this many records about them, are read for one answer.
_COPIES_MAX: Final = 500
_RECORDS_MAX: Final = 20_000
# A checkpoint's messages are at most this far from its first one: a broker looks through 800 to fill it.
_CHECKPOINT_SPAN: Final = 1000
# A broker that postpones a message writes a checkpoint and the acknowledgement of the old one within this time.
_AT_ONCE_MS: Final = 5000
_TEXT_MAX: Final = 255
_TIMES: Final = range(-62_135_596_800_000, 253_402_300_800_000)  # the years 1 to 9999, in milliseconds since 1970 UTC


class _Copy(NamedTuple):
    """A message that the question asks for, a row of `COPIES_SCHEMA`; `stored` is in milliseconds."""

    broker: str
    topic: str
    queue_id: int
    queue_offset: int
    offset: int
    stored: int
    kind: str
    retries: int
    uniq_key: str | None
    msg_id: str
    group: str | None


class _Record(NamedTuple):
    """A trace message or a POP record, with its body if the table has it; otherwise the log may have it."""

    broker: str
    topic: str
    offset: int
    stored: int
    tags: str | None
    body: str | None


class _Fact(NamedTuple):
    """One fact about a message, from one record. Times are in milliseconds since 1970; None is unknown."""

    copy: _Copy
    group: str | None
    state: str
    evidence: str
    after: int | None
    before: int | None
    detail: str | None
    offset: int


# With more ids than this, the Bloom filters of keys do not exclude files.
_PROBES_MAX: Final = 20
# Each part of the UNION has a condition on one column, so that statistics and filters exclude files.
_COPY_SQL: Final = """
SELECT broker, topic, queue_id, queue_offset, physical_offset, store_time, coalesce(kind, 'normal') AS kind,
  reconsume_times, uniq_key, msg_id, consumer_group, {seen_until} AS seen_until
FROM messages
WHERE {condition}
  AND (kind IS NULL OR kind IN ('normal', 'retry', 'dlq', 'reply')) AND transaction_type IN ('none', 'commit')
  AND ({broker} IS NULL OR broker = {broker})
  AND ({since} IS NULL OR store_time >= {since}) AND ({until} IS NULL OR store_time < {until})
"""
_RECORD_SQL: Final = (
    "SELECT broker, topic, physical_offset, coalesce(epoch_ms(store_time), 0), tags, {body} FROM messages"
)
_POP_CONDITION: Final = f"""
WHERE tags IN ('{CHECKPOINT}', '{ACK}', '{BATCH_ACK}') AND topic BETWEEN '{REVIVE_TOPIC_PREFIX}' AND '{_WHEEL_TIMER}'
  AND (starts_with(topic, '{REVIVE_TOPIC_PREFIX}')
    OR topic = '{_WHEEL_TIMER}' AND starts_with(real_topic, '{REVIVE_TOPIC_PREFIX}'))
  AND EXISTS (
    SELECT 1 FROM copies
    WHERE copies.broker = messages.broker AND copies.physical_offset < messages.physical_offset
      AND copies.topic = split_part(messages.uniq_key, '@', 1)
      AND copies.queue_id = try_cast(split_part(messages.uniq_key, '@', 2) AS BIGINT)
      AND (split_part(messages.uniq_key, '@', 3) = '-1' OR copies.queue_offset
        - try_cast(split_part(messages.uniq_key, '@', 3) AS BIGINT) BETWEEN 0 AND {_CHECKPOINT_SPAN}))
"""  # noqa: S608  names and numbers


def copies_of(
    table: TableLocation,
    values: Mapping[str, Any],
    seen_until: Mapping[str, datetime],
    at: int | datetime | None = None,
) -> pa.Table:
    """Return the messages that `values` (key, broker, since, until) ask for, by store time; see `COPIES_SCHEMA`.

    `seen_until` has, by broker, the time until which its groups were watched. `at` is the version of the table, or a
    time.

    Raises
    ------
    OutputError
        The table cannot be read.
    """
    kinds = {"key": "text", "broker": "text", "since": "time", "until": "time"}
    given = {name: literal(kind, values.get(name), for_spark=False) for name, kind in kinds.items()}
    whens = (
        f"WHEN {text_literal(name)} THEN {literal('time', time, for_spark=False)}" for name, time in seen_until.items()
    )
    given["seen_until"] = f"CASE broker {' '.join(whens)} END" if seen_until else "CAST(NULL AS TIMESTAMP)"

    def found(*conditions: str) -> pa.Table:
        parts = [_COPY_SQL.format(condition=each, **given) for each in conditions]
        statement = f"{' UNION '.join(parts)} ORDER BY store_time, broker, physical_offset"
        with duckdb_query(table, statement, at=at) as rows:
            schema, batches = rows.batches()
            return pa.Table.from_batches(batches, schema).cast(COPIES_SCHEMA)

    copies = found(f"array_contains(keys, {given['key']})", f"uniq_key = {given['key']}")
    with suppress(OptionError):  # the key is not a message id
        # A unique key may look like an id, so ids come last; a condition on ids alone excludes no file.
        if not copies.num_rows:
            offset = MessageId.parse(str(values.get("key"))).offset
            return found(f"physical_offset = {offset} AND msg_id = {given['key']}")
    return copies


def evidence_of(
    table: TableLocation,
    found: pa.Table,
    broker: str | None,
    config: PipelineConfig | None,
    note: Callable[[str], object],
) -> pa.Table:
    """Return what traces and POP records say about the messages `found` by `copies_of`; see `EVIDENCE_SCHEMA`.

    `config` is that of the store of `broker` whose log has bodies. Without it, only bodies in the table are read.
    `note` gets a line for what was read, and for what was not.

    Raises
    ------
    OutputError
        The table cannot be read.
    StoreError, TransientError
        The log cannot be read.
    """
    first = found.slice(0, _COPIES_MAX)
    milliseconds = first["store_time"].cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
    named = first.drop_columns("seen_until").set_column(5, "stored", milliseconds).to_pydict()
    named["stored"] = [time or 0 for time in named["stored"]]
    copies = [_Copy(*row) for row in zip(*named.values(), strict=True)]
    traces, pops = _records_of(table, first) if copies else ([], [])
    if found.num_rows > _COPIES_MAX or max(len(traces), len(pops)) > _RECORDS_MAX:
        note("too many messages and records for one answer: traces and POP records of some were not read; give --since")
    traces, pops = traces[:_RECORDS_MAX], pops[:_RECORDS_MAX]
    bodies = _Bodies(config, None if config is None else broker, note)
    told = _Traces(copies)
    for record, body in bodies.of(traces):
        told.add(record, body)
    handed = _Handed(copies)
    for record, body in bodies.of(pops):
        handed.add(record, body)
    bodies.report(len(traces) + len(pops))
    if told.own:
        topics = ", ".join(sorted({_shown(each.topic) or "" for each in told.own}))
        note(f"left out: {counted(len(told.own), 'message')} of {topics} that are traces of these messages")
    return _as_table((*told.facts(), *handed.facts()))


def _records_of(table: TableLocation, found: pa.Table) -> tuple[list[_Record], list[_Record]]:
    ids = sorted({text for name in ("uniq_key", "msg_id") for text in found[name].to_pylist() if text})
    record = _RECORD_SQL.format(body="body" if "body" in read_snapshot(table).column_names else "NULL")
    if len(ids) <= _PROBES_MAX:
        condition = " OR ".join(f"array_contains(keys, {text_literal(text)})" for text in ids)
    else:
        condition = f"list_has_any(keys, [{', '.join(map(text_literal, ids))}])"
    traces = _records(table, f"{record} WHERE {condition}", NO_RELATIONS)
    pops = _records(table, record + _POP_CONDITION, {"copies": found})
    return traces, pops


def _records(table: TableLocation, statement: str, relations: Relations) -> list[_Record]:
    ordered = f"SELECT * FROM ({statement}) AS found ORDER BY broker, physical_offset"  # noqa: S608  literals
    with duckdb_query(table, ordered, limit=_RECORDS_MAX + 1, relations=relations) as rows:
        return [_Record(*row) for row in rows.rows()]


class _Bodies:
    """The bodies of records, from the table or from the log of one broker."""

    def __init__(self, config: PipelineConfig | None, broker: str | None, note: Callable[[str], object]) -> None:
        self._log: MessageLookup | None = None
        if config is not None:
            from reput.streaming.query.store_lookup import messages_of  # noqa: PLC0415  it loads numba

            self._log = messages_of(config)
        self._broker, self._note = broker, note
        self._unread: Counter[str] = Counter()

    def of(self, records: Iterable[_Record]) -> Iterator[tuple[_Record, bytes]]:
        """Yield each record with its body; count those without one."""
        for record in records:
            body = None if record.body is None else record.body.encode()
            if body is None:
                body = self._from_log(record)
            if body is not None:
                yield record, body

    def _from_log(self, record: _Record) -> bytes | None:
        if self._log is None:
            self._unread["give --store to read them from the log"] += 1
            return None
        if self._broker not in (None, record.broker):
            self._unread["they are in the logs of other brokers"] += 1
            return None
        from reput.streaming.query.store_lookup import plain_body  # noqa: PLC0415  it loads numba

        found = self._log.find(record.offset)
        body = plain_body(found) if isinstance(found, Message) and found.topic == record.topic else None
        if body is None:
            self._unread["the log does not have them any more"] += 1
        return body

    def report(self, records: int) -> None:
        """Say how many records there were, and why some were not read."""
        if not records:
            self._note("the table has no message trace and no POP record of these messages")
            return
        found = counted(records, "trace message or POP record names", "trace messages or POP records name")
        reasons = [f"{count} not read: {reason}" for reason, count in self._unread.items()] or ["all were read"]
        self._note("; ".join([f"{found} these messages", *reasons]))


class _Traces:
    """Facts about messages from traces."""

    def __init__(self, copies: Sequence[_Copy]) -> None:
        self._by_id: dict[str, list[_Copy]] = {}
        self._by_place = {(each.broker, each.offset): each for each in copies}
        for each in copies:
            for text in {each.uniq_key, each.msg_id} - {None, ""}:
                self._by_id.setdefault(str(text), []).append(each)
        self._told: list[tuple[_Record, MessageTrace]] = []
        # A client may send a trace twice; it counts once.
        self._seen: set[MessageTrace] = set()
        #: The messages that carry traces themselves, each with its record.
        self.own: dict[_Copy, _Record] = {}

    def add(self, record: _Record, body: bytes) -> None:
        """Read a body; whatever in it is not a trace of one of the messages is ignored."""
        for trace in message_traces(body, self._by_id):
            itself = self._by_place.get((record.broker, record.offset))
            if itself is not None:
                self.own[itself] = record
            if trace not in self._seen:
                self._seen.add(trace)
                self._told.append((record, trace))

    def facts(self) -> Iterator[_Fact]:
        """Yield a fact for each trace, and one for each message that carries traces itself."""
        for copy, record in self.own.items():
            yield _Fact(copy, None, IS_TRACE, _TRACE, None, None, None, record.offset)
        begun: dict[tuple[str | None, str], MessageTrace] = {
            (trace.request_id, trace.msg_id): trace
            for _, trace in self._told
            if trace.kind == SUB_BEFORE and trace.request_id is not None
        }
        for record, trace in self._told:
            before = begun.get((trace.request_id, trace.msg_id)) if trace.kind == SUB_AFTER else None
            whole = trace
            if before is not None:
                whole = trace._replace(group=trace.group or before.group, retry_times=before.retry_times)
            yield self._fact(record, whole)

    def _fact(self, record: _Record, trace: MessageTrace) -> _Fact:
        is_consumer = trace.kind in (SUB_BEFORE, SUB_AFTER)
        copy = self._copy_of(trace) if is_consumer else self._by_id[trace.msg_id][0]
        state, details = _state_of(trace)
        # A client's clock is believed unless it contradicts the broker's.
        earliest, latest = copy.stored if is_consumer else 0, max(record.stored, copy.stored)
        times: tuple[int | None, int | None] = trace.time_ms, trace.time_ms
        if trace.time_ms is None or not earliest <= trace.time_ms <= latest:
            times = (earliest or None, latest)
            if trace.time_ms is not None:
                details.append("the client's clock differs")
        if not is_consumer and trace.group is not None:
            details.insert(0, f"producer group {trace.group}")
        group, detail = trace.group if is_consumer else None, ", ".join(details) or None
        return _Fact(copy, group, state, _TRACE, *times, detail, record.offset)

    def _copy_of(self, trace: MessageTrace) -> _Copy:
        """Return the copy that a consumer got: its group's retry with as many attempts, or the message itself."""
        copies = self._by_id[trace.msg_id]
        if trace.retry_times:
            for each in copies:
                if (each.kind, each.group, each.retries) == (RETRY, trace.group, trace.retry_times):
                    return each
        return next((each for each in copies if each.kind not in (RETRY, DLQ)), copies[0])


def _state_of(trace: MessageTrace) -> tuple[str, list[str]]:
    """Return the state that a trace reports, and its details."""
    cost = [] if trace.cost_ms is None else [f"{trace.cost_ms} ms"]
    if trace.kind == SUB_BEFORE:
        return "given", [f"retry {trace.retry_times}"] if trace.retry_times else []
    if trace.kind == SUB_AFTER:
        reason = [trace.result] if trace.result is not None and not trace.success else []
        return "consumed" if trace.success else "failed", [*reason, *cost]
    if trace.kind == PUB:
        return "sent" if trace.success else "send failed", cost
    if trace.kind == RECALL:
        return "recalled" if trace.success else "recall failed", []
    assert trace.kind == END_TRANSACTION
    ends = {"COMMIT_MESSAGE": "committed", "ROLLBACK_MESSAGE": "rolled back"}
    return ends.get(str(trace.transaction_state), "left open"), []


@dataclass
class _Pop:
    """One delivery of a message to a group: its checkpoint and its acknowledgements, as far as they were read."""

    checkpoint: tuple[_Record, PopRecord] | None = None
    acks: list[_Record] = field(default_factory=list)
    acked_with_checkpoint: bool = False

    def given(self, copy: _Copy, group: str, popped: int, state: str) -> _Fact:
        """Return the fact that the message was handed out at `popped`; an acknowledgement alone proves that, too."""
        if self.checkpoint is None:
            return _Fact(copy, group, state, _POP, popped, popped, None, min(each.offset for each in self.acks))
        record, found = self.checkpoint
        detail = f"shown again after {found.invisible_ms} ms if not acknowledged"
        return _Fact(copy, group, state, _POP, popped, popped, detail, record.offset)

    def acknowledged(self, copy: _Copy, group: str, popped: int) -> Iterator[_Fact]:
        """Yield the fact that the message was acknowledged, if it was."""
        if self.acks:
            first = min(self.acks, key=lambda each: (each.stored, each.offset))
            # The broker stores an acknowledgement that is a timer message at once.
            after = first.stored if first.topic == _WHEEL_TIMER else min(popped, first.stored)
            yield _Fact(copy, group, "acknowledged", _POP, after, first.stored, None, first.offset)
        elif self.acked_with_checkpoint and self.checkpoint is not None:
            record = self.checkpoint[0]
            times = min(popped, record.stored), record.stored
            yield _Fact(copy, group, "acknowledged", _POP, *times, None, record.offset)


class _Handed:
    """Facts about messages from POP records."""

    def __init__(self, copies: Sequence[_Copy]) -> None:
        self._copies = {(each.broker, each.topic, each.queue_id, each.queue_offset): each for each in copies}
        # By message, group, and the time when the message was handed out.
        self._pops: dict[tuple[_Copy, str, int], _Pop] = {}

    def add(self, record: _Record, body: bytes) -> None:
        """Read a body. The broker stores a record again when it delivers it; both count once."""
        found = pop_record(record.tags, body)
        if found is None:
            return
        for offset in found.offsets:
            copy = self._copies.get((record.broker, found.topic, found.queue_id, offset))
            if copy is None:
                continue
            pop = self._pops.setdefault((copy, found.group, found.pop_time_ms), _Pop())
            if found.is_ack:
                pop.acks.append(record)
            elif pop.checkpoint is None:
                pop.checkpoint = record, found
            pop.acked_with_checkpoint |= offset in found.acked

    def facts(self) -> Iterator[_Fact]:
        """Yield a fact for each time that a message was handed out, postponed or acknowledged."""
        pops = sorted(self._pops.items(), key=lambda item: item[0])
        earlier, before = None, _Pop()
        for (copy, group, popped), pop in pops:
            is_postponed = earlier == (copy, group) and _postpones(pop, before)
            if is_postponed:
                before.acks.clear()
            yield pop.given(copy, group, popped, "postponed" if is_postponed else "given")
            earlier, before = (copy, group), pop
        for (copy, group, popped), pop in pops:
            yield from pop.acknowledged(copy, group, popped)


def _postpones(pop: _Pop, earlier: _Pop) -> bool:
    """Whether `pop` only postpones a message that the consumer has: its checkpoint replaces that of `earlier`.

    The broker then writes a checkpoint of this message alone, and acknowledges the earlier one right after it
    (``ChangeInvisibleTimeProcessor#appendCheckPointThenAckOrigin``).
    """
    if pop.checkpoint is None or len(pop.checkpoint[1].offsets) != 1:
        return False
    record = pop.checkpoint[0]
    return any(each.offset > record.offset and 0 <= each.stored - record.stored <= _AT_ONCE_MS for each in earlier.acks)


def _as_table(facts: Iterable[_Fact]) -> pa.Table:
    rows = [
        (
            each.copy.broker,
            each.copy.offset,
            _shown(each.group),
            each.state,
            each.evidence,
            _microseconds(each.after),
            _microseconds(each.before),
            _shown(each.detail),
            each.offset,
        )
        for each in facts
    ]
    if not rows:
        return pa.Table.from_batches([], EVIDENCE_SCHEMA)
    columns = list(zip(*rows, strict=True))
    arrays = [
        pa.array(column, pa.int64()).cast(field.type) if field.type == _MOMENT else pa.array(column, field.type)
        for column, field in zip(columns, EVIDENCE_SCHEMA, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=EVIDENCE_SCHEMA)


def _microseconds(time: int | None) -> int | None:
    return None if time is None or time not in _TIMES else time * 1000


def _shown(text: str | None) -> str | None:
    """A text that any client may have written: cut to `_TEXT_MAX` characters, printable, on one line."""
    return None if text is None else printable(text[:_TEXT_MAX])
