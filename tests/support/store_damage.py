"""Damages of a broker's store, chosen by a seeded random: what disks, kills and hands do to one."""

from __future__ import annotations

import contextlib
import random
import shutil
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from support.record_writer import Message, write_store

from reput.source.kernels import record_kernels as rk
from reput.source.log.mapped_file_queue import MappedFile
from reput.source.log.range_reader import DecodeOptions, scan_windows
from reput.source.record import message_format as fmt

UNIT_BYTES, BATCH_UNIT_BYTES = 20, 46
# The fields of a record that are worth a damage of their own: where they begin, and their sizes in bytes.
FIELDS = {
    "size": (fmt.TOTAL_SIZE_AT, 4),
    "magic": (fmt.MAGIC_AT, 4),
    "crc": (fmt.BODY_CRC_AT, 4),
    "queue id": (fmt.QUEUE_ID_AT, 4),
    "queue offset": (fmt.QUEUE_OFFSET_AT, 8),
    "physical offset": (fmt.PHYSICAL_OFFSET_AT, 8),
    "sys flag": (fmt.SYS_FLAG_AT, 4),
    "store time": (fmt.STORE_TIMESTAMP_AT, 8),
    "body length": (fmt.BODY_LENGTH_AT, 4),
}
# A size of half a gigabyte and more is read or is an OutOfMemoryError, as the broker's heap decides.
_SIZE_BITS = [*range(28), 31]


class NoRecordLeftError(Exception):
    """The damages before have left no record in the log."""


@dataclass
class DamagedStore:
    """A store that is being damaged; `random` decides where."""

    store: Path
    random: random.Random

    @property
    def segments(self) -> list[Path]:
        return sorted((self.store / "commitlog").iterdir())

    @property
    def queue_files(self) -> list[Path]:
        tops = [self.store / "consumequeue"]
        batch = self.store / "batchconsumequeue"
        # A store with inner batches has its messages there.
        tops += [batch] * any(path.is_file() for path in batch.rglob("*"))
        # RocksDB's files may lie beside the directories of topics.
        return sorted(path for top in tops for path in top.glob("*/*/*") if path.is_file())

    def record(self) -> tuple[Path, int, int]:
        """A record: its segment, where it begins there, and its size."""
        for segment in self.random.sample(self.segments, len(self.segments)):
            size = segment.stat().st_size
            file = MappedFile(int(segment.name), size, str(segment))
            records = [
                (int(part[rk.AT]) + window.start - file.file_from_offset, int(part[rk.SIZE]))
                for window in scan_windows(file, file.file_from_offset, file.end, DecodeOptions())
                for part in window.parts
            ]
            if records:
                # Often the first or the last one: there the rules differ.
                at, length = self.random.choice([records[0], records[-1], *self.random.choices(records, k=4)])
                return segment, at, length
        raise NoRecordLeftError

    # --- the log

    def flip_a_field(self) -> str:
        path, at, _ = self.record()
        name = self.random.choice(list(FIELDS))
        where, size = FIELDS[name]
        bit = self.random.choice(_SIZE_BITS if name == "size" else range(8 * size))
        return f"{name} of the record at {flip(path, at + where + size - 1 - bit // 8, bit % 8)}, bit {bit}"

    def flip_a_byte_of_a_record(self) -> str:
        path, at, size = self.record()
        return (
            f"a byte of a record: {flip(path, at + self.random.randrange(fmt.BODY_AT, size), self.random.randrange(8))}"
        )

    def zero_a_stretch_of_the_log(self) -> str:
        path, at, size = self.record()
        return (
            f"zeros in the log: {write(path, at + self.random.randrange(size), bytes(self.random.randrange(1, 3000)))}"
        )

    def garbage_in_the_log(self) -> str:
        path, at, size = self.record()
        data = self.random.randbytes(self.random.randrange(1, 3000))
        return f"garbage in the log: {write(path, at + self.random.choice([0, size]), data)}"

    def change_a_blank(self) -> str:
        path = self.random.choice(self.segments)
        data = path.read_bytes()
        at = data.rfind(struct.pack(">i", fmt.BLANK_MAGIC_CODE)) - 4
        if at < 0:
            return self.flip_a_field()
        return f"size of the blank: {flip(path, at + 3, self.random.randrange(8))}"

    def remove_a_segment(self) -> str:
        path = self.random.choice([self.segments[0], self.segments[-1], *self.random.choices(self.segments, k=2)])
        if len(self.segments) == 1:
            return self.flip_a_field()
        path.unlink()
        return f"segment {path.name} removed"

    def cut_a_segment(self) -> str:
        path = self.random.choice([self.segments[-1], self.random.choice(self.segments)])
        size = self.random.choice([0, self.random.randrange(path.stat().st_size)])
        with path.open("r+b") as file:
            file.truncate(size)
        return f"segment {path.name} cut to {size} bytes"

    def add_a_stray_file(self) -> str:
        directory = self.store / self.random.choice(["commitlog", "index"])
        name = self.random.choice(["copy.tmp", "00000000000000000000.bak"])
        directory.mkdir(exist_ok=True)
        if self.random.random() < 0.5:
            (directory / name).mkdir()
            return f"directory {name} in {directory.name}"
        (directory / name).write_bytes(b"stray")
        return f"file {name} in {directory.name}"

    # --- queues

    def remove_a_queue(self) -> str:
        path = self.random.choice(self.queue_files).parent
        shutil.rmtree(path)
        return f"queue {path.parent.name}-{path.name} removed"

    def remove_all_queues(self) -> str:
        for topic in (self.store / "consumequeue").iterdir():
            if topic.is_dir():
                shutil.rmtree(topic)
        if (self.store / "batchconsumequeue").is_dir():
            shutil.rmtree(self.store / "batchconsumequeue")
        return "all queues removed"

    def remove_a_queue_file(self) -> str:
        path = self.random.choice(self.queue_files)
        path.unlink()
        return f"queue file {path.relative_to(self.store)} removed"

    def cut_a_queue_file(self) -> str:
        ext = [path for path in (self.store / "consumequeue_ext").rglob("*") if path.is_file()]
        path = self.random.choice([self.random.choice(self.queue_files), *sorted(ext)[:1]])
        with path.open("r+b") as file:
            file.truncate(self.random.randrange(path.stat().st_size))
        return f"queue file {path.relative_to(self.store)} cut"

    def zero_the_end_of_queues(self) -> str:
        chosen = self.random.sample(self.queue_files, min(len(self.queue_files), self.random.choice([1, 3, 1000])))
        for path in chosen:
            unit = BATCH_UNIT_BYTES if "batchconsumequeue" in path.parts else UNIT_BYTES
            keep = self.random.randrange(path.stat().st_size // unit) * unit
            write(path, keep, bytes(path.stat().st_size - keep))
        return f"{len(chosen)} queue files end sooner"

    def flip_an_entry(self) -> str:
        path = self.random.choice(self.queue_files)
        at = self.random.randrange(path.stat().st_size)
        return f"an entry of {path.relative_to(self.store)}: {flip(path, at, self.random.randrange(8))}"

    # --- the rest

    def remove_the_index(self) -> str:
        shutil.rmtree(self.store / "index", ignore_errors=True)
        return "index removed"

    def remove_an_index_file(self) -> str:
        files = sorted((self.store / "index").glob("*")) if (self.store / "index").is_dir() else []
        if not files:
            return self.flip_a_field()
        path = self.random.choice(files)
        path.unlink()
        return f"index file {path.name} removed"

    def change_the_time_of_an_index_file(self) -> str:
        files = sorted((self.store / "index").glob("*")) if (self.store / "index").is_dir() else []
        if not files:
            return self.flip_a_field()
        bit = self.random.randrange(63)
        return f"end time of index file {flip(self.random.choice(files), 15 - bit // 8, bit % 8)}, bit {bit}"

    def remove_the_checkpoint(self) -> str:
        (self.store / "checkpoint").unlink(missing_ok=True)
        return "checkpoint removed"

    def change_the_checkpoint(self) -> str:
        path = self.store / "checkpoint"
        data = bytearray(path.read_bytes() if path.exists() else bytes(4096))
        at = self.random.choice([0, 8, 16, 40])
        (value,) = struct.unpack_from(">q", data, at)
        (segment, begin, _) = self.record()
        offset = int(segment.name) + begin
        spread = self.random.choice([-60_000, -5000, -100, 100, 5000])
        value = self.random.choice([0, offset if at == 40 else max(0, value + spread)])
        struct.pack_into(">q", data, at, value)
        path.write_bytes(data)
        return f"checkpoint: {value} at byte {at}"


def flip(path: Path, at: int, bit: int) -> str:
    """Flip a bit of a file; returns where."""
    with path.open("r+b") as file:
        file.seek(at)
        (value,) = file.read(1)
        file.seek(at)
        file.write(bytes([value ^ (1 << bit)]))
    return f"{path.name}, byte {at}"


def write(path: Path, at: int, data: bytes) -> str:
    """Write bytes into a file, as far as it goes; returns where."""
    data = data[: max(0, path.stat().st_size - at)]
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)
    return f"{path.name}, byte {at}, {len(data)} bytes"


# How often each happens, beside the others.
KINDS: list[tuple[Callable[[DamagedStore], str], int]] = [
    (DamagedStore.flip_a_field, 8),
    (DamagedStore.flip_a_byte_of_a_record, 3),
    (DamagedStore.zero_a_stretch_of_the_log, 3),
    (DamagedStore.garbage_in_the_log, 3),
    (DamagedStore.change_a_blank, 1),
    (DamagedStore.remove_a_segment, 3),
    (DamagedStore.cut_a_segment, 1),
    (DamagedStore.add_a_stray_file, 1),
    (DamagedStore.remove_a_queue, 2),
    (DamagedStore.remove_all_queues, 2),
    (DamagedStore.remove_a_queue_file, 2),
    (DamagedStore.cut_a_queue_file, 1),
    (DamagedStore.zero_the_end_of_queues, 3),
    (DamagedStore.flip_an_entry, 3),
    (DamagedStore.remove_the_index, 1),
    (DamagedStore.remove_an_index_file, 1),
    (DamagedStore.change_the_time_of_an_index_file, 1),
    (DamagedStore.remove_the_checkpoint, 1),
    (DamagedStore.change_the_checkpoint, 3),
]


#: Those of a store without files of queues.
OF_LOG_AND_INDEX = [
    (kind, weight)
    for kind, weight in KINDS
    if not kind.__name__.removesuffix("_file").endswith(("queue", "queues", "entry"))
]


def damage(
    store: Path, choose: random.Random, of: Sequence[tuple[Callable[[DamagedStore], str], int]] = KINDS
) -> list[str]:
    """Do one to three damages to a store, with or without `abort`; returns what was done."""
    if choose.random() < 0.5:
        (store / "abort").write_bytes(b"")
        done = ["abort"]
    else:
        (store / "abort").unlink(missing_ok=True)
        done = ["no abort"]
    damaged = DamagedStore(store, choose)
    kinds, weights = zip(*of, strict=True)
    for kind in choose.choices(kinds, weights, k=choose.choice([1, 1, 2, 3])):
        if damaged.segments and (of is not KINDS or damaged.queue_files):
            with contextlib.suppress(NoRecordLeftError):
                done.append(kind(damaged))
    return done


# The effects of a whole record's properties on a broker's dispatch, by its further queues (None: no property at all).
LIGHT = {"enableLmq": "true", "enableMultiDispatch": "true"}
FURTHER: dict[str, tuple[str, dict[str, str] | None, int]] = {
    "no number": ("T", {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": "0,x"}, 0),
    "no offset": ("T", {"INNER_MULTI_DISPATCH": "a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": ",0"}, 0),
    "nothing": ("T", None, 0),
    "other counts": ("T", {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": "x"}, 0),
    "a path": ("T", {"INNER_MULTI_DISPATCH": "a/b,%LMQ%c", "INNER_MULTI_QUEUE_OFFSET": "x,0"}, 0),
    "a retry": ("%RETRY%g", {"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": "x"}, 0),
    "prepared": ("T", {"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": "x"}, 4),
}


def further_queues_home(home: Path, kind: str, conf: Mapping[str, str], *, has_abort: bool) -> Path:
    """A store without queues, a record of which has such properties, and its broker.conf."""
    topic, properties, sys_flag = FURTHER[kind]
    plain = {"KEYS": "k", "TAGS": "t"}
    odd = Message(topic=topic, properties=properties if properties is not None else {}, sys_flag=sys_flag)
    messages = [*[Message(topic="T", properties=plain)] * 5, odd, *[Message(topic="T", properties=plain)] * 3]
    small = {"mappedFileSizeConsumeQueue": 2000, "maxHashSlotNum": 100, "maxIndexNum": 400}
    write_store(home / "store", messages, 65536)
    (home / "store" / "broker.conf").unlink()
    settings = {"mappedFileSizeCommitLog": 65536, **small, **conf}
    (home / "broker.conf").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    if has_abort:
        (home / "store" / "abort").touch()
    return home
