"""A small log with an output that was kept from it, ways to spoil either, and what the output must be in the end."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from support.model import Record, Settings, index_file_contents
from support.record_writer import Message, StoredRecord, write_log
from support.sink_runner import LogBatches, SinkRun, expected_queue_files, index_contents, queue_files, record_bounds

from reput.streaming.config.pipeline import PipelineConfig, load_config

SETTINGS = Settings(mapped_file_size_consume_queue=100, max_hash_slot_num=7, max_index_num=10)
SEGMENT_BYTES = 2000


def config_of(store: Path, settings: Settings = SETTINGS, *more: str) -> PipelineConfig:
    """The pipeline's configuration for these settings."""
    sizes = [
        f"mappedFileSizeConsumeQueue={settings.mapped_file_size_consume_queue}",
        f"maxHashSlotNum={settings.max_hash_slot_num}",
        f"maxIndexNum={settings.max_index_num}",
    ]
    return load_config(store, overrides=["tailGuardMs=0", *sizes, *more])


def messages_of(rng: Random, count: int, first: int = 0) -> list[Message]:
    """Of three topics, with no, one or two keys, some of them prepared or of the delay topic."""
    return [
        Message(
            topic=rng.choice("AAB") if number % 9 else "SCHEDULE_TOPIC_XXXX",
            queue_id=rng.randrange(2),
            body=rng.randbytes(rng.choice([4, 4, 30])),
            properties={
                "KEYS": " ".join(f"k{rng.randrange(9)}" for _ in range(rng.randrange(3))),
                "TAGS": "T",
                "DELAY": "2",
            },
            sys_flag=rng.choice([0, 0, 0, 0, 4, 8, 12]),
            store_timestamp=1_700_000_000_000 + 700 * (first + number),
        )
        for number in range(count)
    ]


def disordered(rng: Random, count: int) -> list[Message]:
    """Messages some of which repeat, leave out or restart queue offsets."""
    messages, offsets = [], {}
    for message in messages_of(rng, count):
        key = message.topic, message.queue_id
        offset = offsets.get(key, rng.choice([0, 0, 4]))
        odd = rng.random()
        if odd < 0.05:
            offset = max(0, offset + rng.choice([-2, -1, 1, 3]))
        elif odd < 0.06:
            offset = 0
        offsets[key] = offset + message.is_queued
        messages.append(replace(message, queue_offset=offset))
    return messages


@dataclass
class Output:
    """A store below `root`/store and its output below `root`/out; `records` is what the log holds."""

    root: Path
    records: list[StoredRecord]
    settings: Settings = SETTINGS
    out: Path = field(init=False)

    def __post_init__(self) -> None:
        self.out = self.root / "out"

    @classmethod
    def make(cls, root: Path, rng: Random, count: int = 60, *, done: float = 1.0) -> Output:
        """A log of `count` messages, of which the part `done` was dispatched, in a few batches."""
        output = cls(root, [])
        output.write_log(messages_of(rng, count))
        allowed = record_bounds(output.records)
        end = allowed[int(done * (len(allowed) - 1))]
        cuts = sorted({0, *rng.sample(allowed, 3), end})
        with SinkRun(output.out, output.settings) as run:
            for start, stop in zip(cuts, cuts[1:], strict=False):
                if stop <= end:
                    run.write(output.batches()(start, stop))
        return output

    @property
    def store(self) -> Path:
        return self.root / "store"

    @property
    def log(self) -> Path:
        return self.store / "commitlog"

    @property
    def config(self) -> PipelineConfig:
        return config_of(self.store, self.settings)

    def batches(self) -> LogBatches:
        return LogBatches(self.log)

    def write_log(self, messages: list[Message]) -> None:
        shutil.rmtree(self.log, ignore_errors=True)
        self.records = write_log(self.log, messages, SEGMENT_BYTES)

    def go_on(self) -> None:
        """Do the work of `reput tail`, from the sinks' ends to the end of the log."""
        allowed = record_bounds(self.records)
        with SinkRun(self.out, self.settings) as run:
            start = max((at for at in allowed if at <= run.end), default=0)
            if start < allowed[-1]:
                run.write(self.batches()(start, allowed[-1]))

    def check(self, records: list[Record] | None = None) -> None:
        """The files are the model's, byte for byte."""
        expected = self.records if records is None else records
        assert queue_files(self.out) == expected_queue_files(expected, self.settings)
        assert index_contents(self.out) == index_file_contents(expected, self.settings)


# --- ways to spoil it ------------------------------------------------------------------------------------


def paths(output: Output, folder: str) -> list[Path]:
    return sorted(path for path in (output.out / folder).rglob("*") if path.is_file())


def overwrite(path: Path, at: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[at : at + len(data)] = data
    path.write_bytes(content)


def unit(offset: int, size: int = 100, code: int = 0) -> bytes:
    return offset.to_bytes(8, "big", signed=True) + size.to_bytes(4, "big", signed=True) + code.to_bytes(8, "big")


def cut_log(output: Output, rng: Random) -> None:
    """The broker's last records never reached the disk."""
    messages = [record.message for record in output.records]
    output.write_log(messages[: rng.randrange(1, len(messages))])


def rewind_log(output: Output, rng: Random) -> None:
    """The broker cut the log after an unclean stop, and wrote other messages."""
    messages = [record.message for record in output.records]
    kept = messages[: rng.randrange(len(messages))]
    output.write_log(kept + messages_of(rng, rng.randrange(1, 40), 100))


def stale_units(output: Output, rng: Random) -> None:
    """Units of an earlier log after the end of a queue, as 4.9.3's truncation leaves them."""
    path = rng.choice(paths(output, "consumequeue"))
    content = path.read_bytes()
    end = len(content.rstrip(b"\0")) // 20 * 20 + 20
    stale = b"".join(unit(rng.choice([5, 10_000_000, 700]) + i) for i in range(3))
    path.write_bytes((content[:end] + stale + content[end + 60 :])[: len(content)])


def bogus_unit(output: Output, rng: Random) -> None:
    """One unit anywhere that no record made."""
    path = rng.choice(paths(output, "consumequeue"))
    overwrite(path, 20 * rng.randrange(5), unit(rng.choice([-1, 0, 3, 1000, 10**12]), rng.choice([-1, 0, 1, 100])))


def lost_page(output: Output, rng: Random) -> None:
    """Zeros where units were."""
    path = rng.choice(paths(output, "consumequeue"))
    at = rng.randrange(100)
    overwrite(path, at, bytes(rng.randrange(1, 101 - at)))


def lost_queue_file(output: Output, rng: Random) -> None:
    rng.choice(paths(output, "consumequeue")).unlink()


def lost_queue(output: Output, rng: Random) -> None:
    shutil.rmtree(rng.choice(paths(output, "consumequeue")).parent)


def lost_queues(output: Output, rng: Random) -> None:
    shutil.rmtree(output.out / "consumequeue")


def short_last_file(output: Output, rng: Random) -> None:
    """A copy was cut in a queue's last file."""
    last = max(rng.choice(paths(output, "consumequeue")).parent.iterdir())
    last.write_bytes(last.read_bytes()[: rng.randrange(100)])


def extra_queue_file(output: Output, rng: Random) -> None:
    """A file behind a queue's last one, empty or not."""
    last = max(rng.choice(paths(output, "consumequeue")).parent.iterdir())
    content = rng.choice([bytes(100), unit(1).ljust(100, b"\0"), unit(0, 0x7FFFFFFF) * 5])
    (last.parent / f"{int(last.name) + rng.choice([100, 300]):020d}").write_bytes(content)


def bogus_queue(output: Output, rng: Random) -> None:
    """A queue that the log knows nothing of."""
    directory = output.out / "consumequeue" / "Bogus" / "7"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{0:020d}").write_bytes((unit(0, 200) * 3).ljust(100, b"\0"))


def lost_index_file(output: Output, rng: Random) -> None:
    rng.choice(paths(output, "index")).unlink()


def lost_index(output: Output, rng: Random) -> None:
    shutil.rmtree(output.out / "index")


def extra_index_file(output: Output, rng: Random) -> None:
    """A copy of a file under another name, or one of zeros or noise, before, between or behind the others."""
    index = paths(output, "index")
    size = 40 + 4 * 7 + 20 * 10
    content = rng.choice([rng.choice(index).read_bytes(), bytes(size), rng.randbytes(size), b"", bytes(50)])
    name = rng.choice([10**16, int(rng.choice(index).name) + 5000, 3 * 10**16])
    (output.out / "index" / f"{name:017d}").write_bytes(content)


def damaged_index(output: Output, rng: Random) -> None:
    """Change bytes anywhere in an index file: header, slots, entries or after them."""
    path = rng.choice(paths(output, "index"))
    begin, end = rng.choice([(0, 40), (40, 68), (68, 268)])
    overwrite(path, rng.randrange(begin, end), rng.randbytes(rng.randrange(1, 9)))
    path.write_bytes(path.read_bytes()[:268])


def lost_records(output: Output, rng: Random) -> None:
    """A progress record is gone: as with a broker's own files."""
    rng.choice(paths(output, "reput")).unlink(missing_ok=True)


def older_record(output: Output, rng: Random) -> None:
    """A progress record knows less than the files, as after a crash."""
    path = rng.choice(paths(output, "reput/progress"))
    record = json.loads(path.read_text())
    record["end_offset"] = rng.choice([at for at in record_bounds(output.records) if at <= record["end_offset"]])
    record["last_record"] = None
    path.write_text(json.dumps(record))


SPOILERS = [
    cut_log,
    rewind_log,
    stale_units,
    bogus_unit,
    lost_page,
    lost_queue_file,
    lost_queue,
    lost_queues,
    short_last_file,
    extra_queue_file,
    bogus_queue,
    lost_index_file,
    lost_index,
    extra_index_file,
    damaged_index,
    lost_records,
    older_record,
]
