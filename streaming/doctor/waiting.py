"""Timer messages and half messages: which wait in the log, and what a broker's start does with them.

A broker of 5.x reads ``rmq_sys_wheel_timer`` from a queue offset that it keeps, puts each message into a slot of its
wheel, and sends the messages in the slots, one after the other, from a time that it keeps. Offset and time are in
``config/timercheck``, which is written every second; a start moves the offset to where the wheel's log ends. So
messages that have left the wheel are sent again if they are read again, and messages that were read are lost with the
wheel (``TimerMessageStore#recover``, ``#enqueue``, ``#dequeue``). With ``timerRocksDBEnable``, messages that are read
from then on are in RocksDB (``TimerMessageRocksDBStore``, ``Timeline``).

Half messages are checked from where the broker's own consumer group is in their queue, unless a message that ends
transactions names them (``TransactionalMessageServiceImpl#check``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from reput.sinks.formats import timer
from reput.sinks.message_rocksdb import of_store
from reput.source import releases
from reput.source.log.mapped_file_queue import MappedFile
from reput.source.log.range_reader import DecodeOptions, scan_windows
from reput.source.record import message_origin as origin
from reput.source.record.damage import QUARANTINE
from reput.source.record.message_decoder import Message
from reput.source.record.message_properties import PROPERTY_REAL_TOPIC, parse_long
from reput.streaming.doctor.prediction import PredictedTimers, PredictedTransactions
from reput.streaming.doctor.start_settings import HALF_TOPIC, StartSettings, WaitingSettings

TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
_ROCKSDB_HALF_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
# Without messages of these topics, nothing waits.
_WAITING_TOPICS = frozenset({TIMER_TOPIC, HALF_TOPIC, _ROCKSDB_HALF_TOPIC})
# Every record that matters here has one of these byte strings: a delivered timer message keeps the property.
_MARKS = (origin.PROPERTY_TIMER_OUT_MS.encode(), b"RMQ_SYS_TRANS_", b"RMQ_SYS_ROCKSDB_TRANS_")
_TRANS_OFFSET = "TRANS_OFFSET"
_OFFSET_SEPARATOR, _TOPIC_SEPARATOR = ",", "+"
# Without a checkpoint in RocksDB, a broker begins this long ago (``MessageRocksDBStorage#getCheckpointForTimer``).
_TIMELINE_BEGINS_MS = 10_000


class _Timer(NamedTuple):
    """A message of the timer topic; `recalls` is the message that it recalls, as the broker wrote it, or None."""

    queue_offset: int
    key: str
    out_ms: int
    topic: str
    recalls: str | None


@dataclass
class WaitingMessages:
    """The timer messages and half messages in the log."""

    # Timer messages by physical offset; those that were delivered or recalled, by unique key.
    timers: dict[int, _Timer] = field(default_factory=dict)
    delivered: set[str] = field(default_factory=set)
    recalled: set[str] = field(default_factory=set)
    # Queue offsets of half messages: all, those that were ended alone, and those that were ended together with others.
    halves: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)
    ended_together: set[int] = field(default_factory=set)
    # Physical offsets of half messages of brokers that keep transactions in RocksDB.
    rocksdb_halves: set[int] = field(default_factory=set)
    rocksdb_ended: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, files: Sequence[MappedFile], end: int, topics: set[str]) -> WaitingMessages:
        """Collect them from the good records of `files` before `end`; none if `topics` has none of theirs."""
        found = cls()
        if topics & _WAITING_TOPICS:
            for file in files:
                for message in _marked(file, min(file.end, end)):
                    found._take(message)
        return found

    def _take(self, message: Message) -> None:
        topic, key, properties = message.topic, message.uniq_key, message.properties
        if topic == TIMER_TOPIC:
            out_ms = parse_long(properties.get(origin.PROPERTY_TIMER_OUT_MS, ""))
            mark = properties.get(origin.PROPERTY_TIMER_DEL_UNIQKEY)
            if mark is not None:
                self.recalled.add(mark.rpartition(_TOPIC_SEPARATOR)[2])
            if key is not None and out_ms is not None:
                real_topic = properties.get(PROPERTY_REAL_TOPIC, "")
                self.timers[message.physical_offset] = _Timer(message.queue_offset, key, out_ms, real_topic, mark)
        elif topic == HALF_TOPIC:
            self.halves.add(message.queue_offset)
        elif topic == origin.OP_TOPIC:
            named = message.body.decode(errors="replace").split(_OFFSET_SEPARATOR)
            offsets = {offset for text in named if (offset := parse_long(text)) is not None}
            (self.ended_together if len(named) > 1 else self.ended).update(offsets)
        elif topic == _ROCKSDB_HALF_TOPIC:
            self.rocksdb_halves.add(message.physical_offset)
        elif topic == origin.ROCKSDB_OP_TOPIC:
            self.rocksdb_ended.add(parse_long(properties.get(_TRANS_OFFSET, "")) or 0)
        elif key is not None and origin.PROPERTY_TIMER_OUT_MS in properties:
            self.delivered.add(key)

    def transactions(
        self, store: Path, settings: StartSettings, dispatches_from: int | None
    ) -> PredictedTransactions | None:
        """Predict how a start that dispatches from an offset on, or nothing (None), treats half messages.

        None without half messages.
        """
        if not (self.halves or self.rocksdb_halves):
            return None
        looked_at = {offset for offset in self.halves if offset >= settings.waiting.checked_to}
        together = self.ended_together - self.ended
        checked_again = 0 if settings.does(releases.ENDS_TRANSACTIONS_TOGETHER) else len(looked_at & together)
        in_rocksdb, checked = self.rocksdb_halves - self.rocksdb_ended, 0
        if in_rocksdb and settings.waiting.transactions_in_rocksdb:
            with of_store(store) as kept:
                there = set() if kept is None else {each.physical_offset for each in kept.halves()}
                last = 0 if kept is None else kept.halves_to
            put_from = math.inf if dispatches_from is None else max(dispatches_from, last)
            checked = sum(each in there or each >= put_from for each in in_rocksdb)
        return PredictedTransactions(
            open=len(looked_at - self.ended - self.ended_together) + len(in_rocksdb),
            unchecked=len(in_rocksdb) - checked,
            checked_again=checked_again,
        )

    def predicted_timers(
        self, store: Path, settings: StartSettings, queue_end: int, now_ms: int
    ) -> PredictedTimers | None:
        """Predict how a start at a time treats timer messages; `queue_end` is the end of their queue."""
        if not self.timers:
            return None
        ended = self.delivered | self.recalled
        waiting = {each.key for each in self.timers.values() if each.recalls is None} - ended
        if not settings.waiting.sends_timers:
            return PredictedTimers(waiting=len(waiting), are_sent=False)
        wheel = _Wheel.recovered(store, settings.waiting, now_ms)
        begin = min(each.queue_offset for each in self.timers.values())
        reads_from = self._reads_from(wheel)
        kept = [(out_ms, self.timers[at]) for out_ms, at in wheel.messages() if at in self.timers]
        # A recall works in the slot of the message that it recalls.
        recalls = {(ms, each.recalls) for ms, each in kept}
        kept = [(ms, each) for ms, each in kept if each.recalls is None]
        if settings.waiting.timers_in_rocksdb:
            timeline = _Timeline.of(store, now_ms)
            reads_from = max(reads_from, timeline.reads_from)
            kept += [(ms, self.timers[at]) for ms, at in timeline.messages if at in self.timers]
        reads_from = max(reads_from, begin)
        if settings.does(releases.READS_TIMERS_WITHIN_THE_QUEUE):
            reads_from = min(reads_from, queue_end)
        read = [each for each in self.timers.values() if each.queue_offset >= reads_from and each.recalls is None]
        # A message whose time is over does not go through the wheel, so its recall does not find it.
        past = [each.key for each in read if each.out_ms < now_ms]
        named = "{0.topic}+{0.key}" if settings.waiting.recalls_by_topic else "{0.key}"
        past += [each.key for ms, each in kept if ms < now_ms and (ms, named.format(each)) not in recalls]
        kept_keys = {each.key for _, each in kept} | {each.key for each in read}
        return PredictedTimers(
            waiting=len(waiting),
            reads_from=reads_from,
            due=len(past),
            sent_again=sum(key in ended for key in past),
            lost=len(waiting - kept_keys),
        )

    def made_checkpoint(self, store: Path, settings: WaitingSettings, now_ms: int) -> TimerCheckpoint | None:
        """Return a checkpoint for a wheel that has lost its own; None if there is nothing to send.

        It loses no waiting message. Other messages are sent again if they share a slot with the first waiting one, or
        follow a message that is read again.
        """
        if not self.timers or not settings.sends_timers or settings.timers_in_rocksdb:
            return None
        ended = self.delivered | self.recalled
        waiting = {each.key: each for each in self.timers.values() if each.recalls is None and each.key not in ended}
        wheel = _Wheel.recovered(store, settings, now_ms)
        kept = [(ms, self.timers[at].key) for ms, at in wheel.messages() if at in self.timers]
        in_slots = {key for _, key in kept}
        last = self.timers.get(wheel.last_message) if wheel.last_message is not None else None
        # Without a unit in the wheel's log all slots are empty, and the waiting messages are read again.
        read = [last] if last is not None else [*self.timers.values()]
        read_to = 1 + max(each.queue_offset for each in read)
        return TimerCheckpoint(
            read_ms=min([now_ms - now_ms % settings.precision_ms, *(ms for ms, key in kept if key in waiting)]),
            queue_offset=min([read_to, *(each.queue_offset for key, each in waiting.items() if key not in in_slots)]),
            waiting=len(waiting),
        )

    def _reads_from(self, wheel: _Wheel) -> int:
        last = self.timers.get(wheel.last_message) if wheel.last_message is not None else None
        place = wheel.queue_offset if last is None else last.queue_offset + 1
        return min(place, wheel.master_queue_offset)


@dataclass(frozen=True)
class TimerCheckpoint:
    """The contents of ``timercheck``.

    The slots are read from `read_ms` on, and the timer topic from `queue_offset` on. `waiting` is how many messages
    were neither delivered nor recalled.
    """

    read_ms: int
    queue_offset: int
    waiting: int

    def encode(self) -> bytes:
        """Return the file; it says that none of the wheel's log is on disk, so that a start reads all of it."""
        numbers = self.read_ms, 0, self.queue_offset, self.queue_offset
        return timer.TIMER_CHECKPOINT_FORMAT.pack(*numbers).ljust(timer.TIMER_CHECKPOINT_BYTES, b"\0")


def _marked(file: MappedFile, end: int) -> Iterator[Message]:
    """Yield the good records of a segment before `end` that have one of the marks."""
    for window in scan_windows(file, file.file_from_offset, end, DecodeOptions(on_damage=QUARANTINE)):
        columns = window.decode(np.empty(0, np.int64)).columns
        if not len(columns):
            continue
        data, begins = columns.data.tobytes(), columns.parts[:, 0]
        rows = set()
        for mark in _MARKS:
            at = data.find(mark)
            while at >= 0:
                rows.add(int(np.searchsorted(begins, at, "right")) - 1)
                at = data.find(mark, at + 1)
        has_one = np.zeros(len(columns), bool)
        has_one[[row for row in rows if row >= 0]] = True
        yield from columns.where(has_one).messages()


@dataclass
class _Wheel:
    """The wheel after its recovery, with its log.

    Attributes
    ----------
    slots
        The slots; the last unit of each leads to those before.
    log
        The bytes of each file up to where the log ends, by the offset of the file's first unit.
    reads_from_ms
        The time from which slots are read.
    last_message
        The physical offset that the last unit of the log names; None without one.
    queue_offset, master_queue_offset
        The offsets in the checkpoint.
    """

    slots: np.ndarray[Any, Any]
    precision_ms: int
    log_file_size: int
    log: dict[int, bytes]
    end: int
    reads_from_ms: int
    last_message: int | None
    queue_offset: int
    master_queue_offset: int

    @classmethod
    def recovered(cls, store: Path, settings: WaitingSettings, now_ms: int) -> _Wheel:
        """Recover the wheel from the store's files as a start at a time does (``TimerMessageStore#recover``)."""
        data = _bytes(store / "config" / timer.TIMER_CHECKPOINT)[: timer.TIMER_CHECKPOINT_FORMAT.size]
        read_ms, flushed, queue_offset, master = timer.TIMER_CHECKPOINT_FORMAT.unpack(
            data.ljust(timer.TIMER_CHECKPOINT_FORMAT.size, b"\0")
        )
        path = store / timer.TIMER_WHEEL
        snapshots = [int(each.suffix[1:]) for each in store.glob(f"{timer.TIMER_WHEEL}.*") if each.suffix[1:].isdigit()]
        if settings.takes_snapshots and max(snapshots, default=-1) > 0:
            flushed = max(snapshots)
            path = path.with_name(f"{path.name}.{flushed}")
        slots = np.zeros(timer.SLOTS, timer.TIMER_SLOT)
        stored = np.frombuffer(_bytes(path)[: slots.nbytes], timer.TIMER_SLOT)
        slots[: len(stored)] = stored
        precision, size = settings.precision_ms, settings.timer_log_size
        oldest_ms = now_ms // precision * precision + (timer.BLANK_SLOTS - timer.SLOTS // 2) * precision
        read_ms = max(read_ms, oldest_ms)
        files = {int(each.name): each for each in (store / timer.TIMER_LOG).glob("*") if each.name.isdigit()}
        log = {begin: _bytes(files[begin]) for begin in sorted(files)}
        found = cls(slots, precision, size, log, 0, read_ms, None, queue_offset, master)
        found.end = found._revise(max(0, flushed - size) if log else 0, looks_for_end=True)
        found.last_message = found._last_message()
        first = found._first_behind(found.end)
        if first is not None and first < found.end:
            found._revise(first, looks_for_end=False)
        return found

    def _revise(self, begin: int, *, looks_for_end: bool) -> int:
        """Put the log's units, from the file at `begin` on, into their slots; return where the log ends."""
        begins = sorted(self.log)
        start = max((each for each in begins if each <= begin), default=begins[0] if begins else 0)
        end = 0
        for at in begins[begins.index(start) :] if begins else ():
            data = self.log[at]
            units = np.frombuffer(
                data[: len(data) // timer.TIMER_UNIT.itemsize * timer.TIMER_UNIT.itemsize], timer.TIMER_UNIT
            )
            good = timer.is_unit(units)
            count = int(np.argmin(good)) if not good.all() else len(units)
            self._put(units[:count], at)
            end = at + count * timer.TIMER_UNIT.itemsize
            is_blank = count < len(units) and units["magic"][count] == timer.BLANK_MAGIC
            if not is_blank and looks_for_end:
                break
        return end

    def _put(self, units: np.ndarray[Any, Any], begin: int) -> None:
        """Do ``TimerWheel#reviseSlot`` for each unit of a file that begins at `begin`."""
        places = begin + np.arange(len(units)) * timer.TIMER_UNIT.itemsize
        times = (units["written"].astype(np.int64) + units["delayed"]) // self.precision_ms
        rows = times % timer.SLOTS
        fresh = self.slots["time"][rows] != times
        # The first of the units of a slot sets `first`, the last one sets `last`.
        self.slots["first"][rows[fresh][::-1]] = places[fresh][::-1]
        self.slots["time"][rows] = times
        self.slots["last"][rows] = places

    def _last_message(self) -> int | None:
        at = self.end - timer.PLACE_BEFORE_END
        file = self.log.get(at // self.log_file_size * self.log_file_size, b"")
        data = file[at % self.log_file_size :][: timer.PLACE.size]
        return int(timer.PLACE.unpack(data)[0]) if at >= 0 and len(data) == timer.PLACE.size else None

    def _to_read(self) -> np.ndarray[Any, Any]:
        first = self.reads_from_ms // self.precision_ms
        slots = self.slots[self.slots["time"] >= first]
        return np.extract(slots["time"] < first + timer.SLOTS, slots)

    def _first_behind(self, end: int) -> int | None:
        """Return the first unit of a slot whose last unit is beyond the log's end; None without one."""
        slots = self._to_read()
        firsts = slots["first"][slots["last"] > end]
        return int(firsts.min()) if len(firsts) else None

    def messages(self) -> Iterator[tuple[int, int]]:
        """Yield the time of the slot (ms) and the physical offset of each message in a slot that is read."""
        size = timer.TIMER_UNIT.itemsize
        for slot in self._to_read():
            at = int(slot["last"])
            while 0 <= at < self.end:
                begin = at // self.log_file_size * self.log_file_size
                data = self.log.get(begin, b"")[at - begin :][:size]
                if len(data) < size:
                    break
                unit = np.frombuffer(data, timer.TIMER_UNIT)[0]
                yield int(slot["time"]) * self.precision_ms, int(unit["physical_offset"])
                if int(unit["previous"]) >= at:
                    break
                at = int(unit["previous"])


@dataclass
class _Timeline:
    """The timers in RocksDB that are still to be sent: time (ms) and physical offset of each.

    `reads_from` is the queue offset up to which their topic was read.
    """

    messages: list[tuple[int, int]] = field(default_factory=list)
    reads_from: int = 0

    @classmethod
    def of(cls, store: Path, now_ms: int) -> _Timeline:
        """Return that of a store at a time."""
        found = cls()
        with of_store(store) as kept:
            if kept is None:
                return found
            begins_ms, found.reads_from = kept.timers_sent_to_ms or now_ms - _TIMELINE_BEGINS_MS, kept.timers_read_to
            for each in kept.timers():
                if each.time_ms is not None and each.physical_offset is not None and each.time_ms >= begins_ms:
                    found.messages.append((each.time_ms, each.physical_offset))
        return found


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
