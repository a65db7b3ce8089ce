"""Two replicas of a controller's group: where their logs part, and the messages at stake (`reput verify --against`).

A replica that follows another one cuts its log at their consistent point, by the epochs of both, and copies the rest
(5.x ``AutoSwitchHAClient#doTruncate``). So each of two logs that part has messages that are lost if the other leads.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from reput.sinks.findings import Difference
from reput.source.errors import StoreError
from reput.source.log.epoch_file import Epoch, consistent_point, ended, load_epochs
from reput.source.log.log_reader import LogReader
from reput.source.log.mapped_file_queue import MappedFile, open_segment, read_at
from reput.source.log.range_reader import read_windows
from reput.source.log.store_layout import COMMIT_LOG
from reput.source.options import shown
from reput.source.printable import counted
from reput.source.record.message_decoder import Message
from reput.streaming.config.consumer_offsets import ConsumerOffsetsWatch
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.verify.store_verification import StoreSection

_READ_BYTES = 1 << 20
_Queue = tuple[str, int]


class _Held(NamedTuple):
    """A message of a log without its body."""

    topic: str
    queue_id: int
    uniq_key: str | None
    born_timestamp: int
    body_crc: int
    queue_offset: int
    physical_offset: int

    @classmethod
    def of(cls, message: Message) -> _Held:
        return cls(*(getattr(message, name) for name in cls._fields))

    @property
    def identity(self) -> tuple[object, ...]:
        """The facts that are the same for the message in another log, at any offset."""
        return self[:5]

    @property
    def place(self) -> tuple[str, int, int]:
        """Its queue, and its queue offset."""
        return self.topic, self.queue_id, self.queue_offset

    @property
    def name(self) -> str:
        """Its unique key, or its place if it has none."""
        return self.uniq_key or str(self.physical_offset)

    def __str__(self) -> str:
        key = f" with unique key {shown(self.uniq_key)}" if self.uniq_key else ""
        return f"{shown(self.topic)}-{self.queue_id}, queue offset {self.queue_offset}{key}"


class Replica:
    """One of the two stores; `side` is ``here`` or ``there``."""

    def __init__(self, side: str, config: PipelineConfig, store: Path, paths: tuple[Path, ...]) -> None:
        self.side, self.store = side, store
        self.log = LogReader(config.log_options(path=",".join(map(str, paths))))
        self.begin = self.log.queue().min_offset
        self.end = self.log.settled_end(self.begin)
        self.epochs = ended(load_epochs(store), self.end)
        self._config = config

    def messages(self, start: int) -> Iterator[_Held]:
        """Yield the messages from physical offset `start` on, where a record begins."""
        for file in self.log.queue().files:
            begin, end = max(start, file.file_from_offset), min(self.end, file.end)
            if begin < end:
                for window in read_windows(file, begin, end, self.log.decode_options):
                    yield from map(_Held.of, window.columns.messages())

    @cached_property
    def consumer_offsets(self) -> dict[tuple[str, str], dict[int, int]]:
        """The offsets of this broker's consumer groups: by group and topic, by queue."""
        watch = ConsumerOffsetsWatch(self._config, self.store)
        # A damaged file must be seen twice.
        seen = watch.look(takes_backup=True) or watch.look(takes_backup=True)
        return {} if seen is None else seen.offsets


def compare_replicas(config: PipelineConfig, against: Path) -> StoreSection | None:
    """Compare the logs of two replicas; None if neither store was in a controller's group.

    Raises
    ------
    StoreError
        A log or the epochs cannot be read.
    CorruptRecordError
        A record after the place where the logs part is damaged.
    """
    if config.source.enable_dledger_commit_log or not (load_epochs(config.store) or load_epochs(against)):
        return None
    here = Replica("here", config, config.store, config.commit_log)
    there = Replica("there", config, against, (against / COMMIT_LOG,))
    section = StoreSection("replicas")
    parting = _parting(here, there)
    tails = {each.side: list(each.messages(max(parting, each.begin))) for each in (here, there)}
    section.compared = {"messages": sum(map(len, tails.values()))}
    _tell_parting(here, there, parting, section)
    for each, other in ((here, there), (there, here)):
        _compare_consumers(tails[each.side], tails[other.side], (here, there), other, section)
    _compare_tails(tails, section)
    return section


# --- where they part --------------------------------------------------------------------------------------------------


def _parting(here: Replica, there: Replica) -> int:
    """Return the physical offset of the first record that only one log has, or that differs; their end without one."""
    start, end = max(here.begin, there.begin), min(here.end, there.end)
    at = start
    while at < end:
        mine, other = here.log.queue().find(at), there.log.queue().find(at)
        if mine is None or other is None:
            raise StoreError(f"one of the two logs has no segment with offset {at}", file=there.store)
        stop = min(end, mine.end, other.end)
        found = _first_difference(mine, other, at, stop)
        if found is not None:
            return here.log.align_down(mine.file_from_offset, found)
        at = stop
    return end


def _first_difference(here: MappedFile, there: MappedFile, start: int, end: int) -> int | None:
    with open_segment(here) as left, open_segment(there) as right:
        while start < end:
            count = min(_READ_BYTES, end - start)
            ours = read_at(left, count, start - here.file_from_offset)
            theirs = read_at(right, count, start - there.file_from_offset)
            if ours != theirs:
                pairs = enumerate(zip(ours, theirs, strict=False))
                return start + next((at for at, (one, other) in pairs if one != other), min(len(ours), len(theirs)))
            start += count
    return None


def _tell_parting(here: Replica, there: Replica, parting: int, section: StoreSection) -> None:
    findings = section.findings
    both_end = here.end == there.end == parting
    for each in (here, there):
        epoch = next((known for known in each.epochs if known.start <= parting < known.end), None)
        of = "" if both_end else f", which part at {parting}{_in_epoch(epoch)}"
        findings.tell(f"{each.side}: epochs {_listed(each.epochs)} of a log [{each.begin}, {each.end}){of}")
    if not both_end:
        text = (
            f"the logs part at physical offset {parting}: {here.end - parting} bytes here, {there.end - parting} there"
        )
        findings.differ(Difference("logs_part", text, physical_offset=parting))
    point = consistent_point(here.epochs, there.epochs)
    if point is None:
        text = "the stores have no epoch in common: neither broker lets the other one follow it"
        findings.differ(Difference("no_common_epoch", text))
        return
    epoch, offset = point
    findings.tell(f"a replica that follows the other one cuts its log at {offset}, in epoch {epoch.epoch}")
    if offset > parting:
        text = (
            f"by their epochs the logs are equal up to {offset}, in epoch {epoch.epoch}, and they part at {parting}: "
            "a replica would follow the other one and keep what differs before"
        )
        findings.differ(Difference("epochs_hide_difference", text, physical_offset=parting))


def _in_epoch(epoch: Epoch | None) -> str:
    return "" if epoch is None else f" in its epoch {epoch.epoch}"


def _listed(epochs: list[Epoch]) -> str:
    return ", ".join(f"{each.epoch} from {each.start}" for each in epochs) or "none"


# --- the messages at stake --------------------------------------------------------------------------------------------


def _compare_tails(tails: dict[str, list[_Held]], section: StoreSection) -> None:
    """Add findings for queue offsets where each log has another message, then for messages that only one log has."""
    known = {side: {each.identity for each in messages} for side, messages in tails.items()}
    alone = {
        side: [message for message in tails[side] if message.identity not in known[other]]
        for side, other in (("here", "there"), ("there", "here"))
    }
    there = {message.place: message for message in alone["there"]}
    for message in alone["here"]:
        another = there.get(message.place)
        if another is not None:
            section.findings.differ(
                Difference(
                    "queue_offset_shared",
                    f"{message} here, is another message there",
                    queue_offset=message.queue_offset,
                    physical_offset=message.physical_offset,
                    expected=message.name,
                    found=another.name,
                )
            )
    for side, messages in alone.items():
        for message in messages:
            section.findings.differ(
                Difference(
                    f"message_only_{side}",
                    f"only {side}: {message}, lost if the other one leads",
                    queue_offset=message.queue_offset,
                    physical_offset=message.physical_offset,
                )
            )


def _compare_consumers(
    lost: list[_Held], kept: list[_Held], replicas: tuple[Replica, Replica], leads: Replica, section: StoreSection
) -> None:
    """Add findings for consumer offsets after a queue's end once `lost` is cut and `leads` is copied."""
    ends: dict[_Queue, int] = {}
    for message in lost:
        queue = message.topic, message.queue_id
        ends[queue] = min(ends.get(queue, message.queue_offset), message.queue_offset)
    for message in kept:
        queue = message.topic, message.queue_id
        if queue in ends:
            ends[queue] = max(ends[queue], message.queue_offset + 1)
    for replica in replicas:
        for (group, topic), offsets in sorted(replica.consumer_offsets.items()):
            for queue_id, offset in sorted(offsets.items()):
                end = ends.get((topic, queue_id))
                if end is not None and offset > end:
                    text = (
                        f"group {shown(group)} is at {offset} of {shown(topic)}-{queue_id} ({replica.side}), and the "
                        f"queue ends at {end} if the one {leads.side} leads: consumers may miss the next "
                        f"{counted(offset - end, 'message')} of it"
                    )
                    section.findings.differ(
                        Difference("consumer_offset_beyond", text, queue_offset=end, found=str(offset))
                    )
