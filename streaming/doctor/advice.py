"""The commands that save a store from what a broker would do with it, to be run unchanged and in this order.

Where a rebuild of everything would move entries to other queue offsets, only queues and index that lack something are
made again.
"""

from __future__ import annotations

import glob
import itertools
import shlex
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from reput.sinks.files.own_files import is_foreign
from reput.sinks.files.store_path import (
    ABORT,
    BATCH_CONSUME_QUEUE,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    INDEX,
    REPUT,
    is_directory_name,
)
from reput.source.log.store_layout import COMMIT_LOG, log_ends_full, row_of
from reput.source.printable import counted
from reput.source.record.damage import QUARANTINE
from reput.source.record.message_properties import parse_int
from reput.streaming.config.pipeline import COMMAND_LINE, PipelineConfig
from reput.streaming.config.stored_sizes import Misfit
from reput.streaming.doctor.prediction import Moving, Part, Prediction, Recovery

_QUARANTINE = f"onDamage={QUARANTINE}"
# A rebuild over a hole is never advised: it would move the entries after it to other queue offsets.
_RESTORE = "restore the segments that are missing from a copy or from a slave; then ask again"
_RESTORE_LOG = (
    "restore the log, or mount the volume that holds it, before the broker starts: without a segment it deletes the "
    "files of all queues, and begins a log at offset 0"
)
_OF_REBUILD = (Part.QUEUES, Part.DISPATCH, Part.NOTIFY, Part.REPLAY)
_OF_QUEUES = (CONSUME_QUEUE, CONSUME_QUEUE_EXT, BATCH_CONSUME_QUEUE)
_COPY = ".copy"
# With more commands than this for single topics and queues, one command for all queues is advised.
_PARTS_MAX = 10


@dataclass(frozen=True)
class Advice:
    """One step: its purpose, and the command; None if an operator must find the way.

    `moving` are the queues with entries that the command moves to other queue offsets.
    """

    why: str
    command: str | None = None
    moving: tuple[Moving, ...] = ()


@dataclass(frozen=True)
class SettingsInDoubt:
    """Settings that the store's files contradict, and the ``broker.conf`` with the right ones; None if not found."""

    misfits: Sequence[Misfit]
    conf: Path | None


def advise(
    found: Prediction,
    config: PipelineConfig,
    broker_conf: Path | None,
    trusting: Prediction | None,
    moving: Callable[[], tuple[Moving, ...]],
    in_doubt: SettingsInDoubt | None = None,
) -> tuple[Advice, ...]:
    """Return the steps for a prediction; `trusting` is the prediction without the ``abort`` file, if there is one.

    `moving` reads the log for the queues with entries that a rebuild would move; it is called only if a rebuild is
    advised.
    """
    is_repeated = config.origins.get("mappedFileSizeCommitLog") == COMMAND_LINE
    steps = _Steps(config.store, broker_conf, moving, is_repeated)
    if found.is_harmless:
        return ()
    if in_doubt is not None:
        # Until the settings are right, no command that changes a file is advised.
        return tuple(steps.for_settings(in_doubt))
    if found.obstacle is not None:
        return tuple(steps.past_obstacle(found))
    if found.renumbered:
        return (Advice("leave the store to a release from 5.0.0 on: earlier ones have no BatchConsumeQueue"),)
    if found.lost.count:
        return tuple(steps.for_lost_records(found, trusting))
    if found.holes or found.missing_entries or found.last_is_missing:
        return tuple(steps.for_missing_segments(found))
    return tuple(steps.for_queues_and_index(found, trusting))


def move_queues(config: PipelineConfig, broker_conf: Path | None) -> tuple[Advice, ...]:
    """Return the first steps where a broker would look in RocksDB for queues that are in files."""
    if (config.store / ABORT).exists():
        return (Advice("start the broker as it was, and stop it: only queues of a clean stop can be moved"),)
    steps = _Steps(config.store, broker_conf, tuple)
    return (Advice("move the queues of the files into RocksDB", steps.move_queues()), steps.ask_again())


@dataclass(frozen=True)
class _Steps:
    store: Path
    broker_conf: Path | None
    find_moving: Callable[[], tuple[Moving, ...]]
    is_size_repeated: bool = False
    _taken: set[Path] = field(default_factory=set)

    def for_settings(self, in_doubt: SettingsInDoubt) -> Iterator[Advice]:
        if in_doubt.conf is not None:
            path = shlex.quote(str(in_doubt.conf))
            command = f"reput doctor --store {shlex.quote(str(self.store))} --broker-conf {path}"
            yield Advice("ask again with the store's own settings, before anything is changed", command)
            return
        yield Advice(
            "leave the files as they are, and ask again with the --broker-conf that the store's broker is started with"
        )
        for misfit in in_doubt.misfits if self.broker_conf is not None else ():
            if misfit.fits is not None:
                values = " and ".join(f"{name}={value}" for name, value in misfit.fits.items())
                yield Advice(f"or set {values} in {self.broker_conf}, if the broker was started with it before")

    def past_obstacle(self, found: Prediction) -> Iterator[Advice]:
        obstacle = found.obstacle
        assert obstacle is not None
        if obstacle.part is Part.QUEUES and obstacle.file is not None and self._is_foreign(Path(obstacle.file)):
            yield self._move_away(
                Path(obstacle.file), "move away a file that is not a queue's, and that a rebuild leaves"
            )
        elif obstacle.part is Part.QUEUES and obstacle.file == str(self.store / CONSUME_QUEUE):
            yield self._move_away(Path(obstacle.file), "move away what is in the place of the queues")
        elif found.log_end == 0 and obstacle.part in _OF_REBUILD:
            yield Advice(_RESTORE_LOG)
        elif found.holes and obstacle.part in _OF_REBUILD:
            yield Advice(_RESTORE)
        elif obstacle.part is Part.QUEUES:
            # The start ended at the queues, before the log was read.
            yield from self._past_queue_file(found, obstacle.file)
        elif obstacle.part in (Part.DISPATCH, Part.NOTIFY):
            yield self._rebuild_all(
                "make queues and index again from the log, past what the broker fails at: nothing is left to dispatch",
                found,
                _QUARANTINE,
            )
            if obstacle.part is Part.NOTIFY:
                yield Advice(
                    "where no message with an entry follows that record, start once with longPollingEnable=false"
                )
        elif obstacle.part is Part.RECORD:
            yield Advice("restore the segment from a copy or from a slave")
        elif obstacle.part is Part.REPLAY:
            yield Advice("restore the segment that is missing or damaged from a copy or from a slave")
            yield self._rebuild_all(
                "or make queues and index again, so that nothing is left to replay", found, _QUARANTINE
            )
        elif obstacle.file is not None and obstacle.size is not None and self._may_be_whole(Path(obstacle.file)):
            yield Advice(
                f"the only segment may be whole, and the setting another broker's: if {obstacle.size} bytes are what "
                "the broker has, restore the segment from a copy"
            )
            sure = f"{self.ask_again().command} --option mappedFileSizeCommitLog={obstacle.size}"
            yield Advice("or say so once more, to be told how the segment gets its size back", sure)
            return
        elif obstacle.file is not None and obstacle.size is not None:
            yield from self._give_size(Path(obstacle.file), obstacle.size)
        elif obstacle.file is not None:
            yield self._move_away(Path(obstacle.file), "move away what is not a file of the broker")
        yield self.ask_again()

    def _give_size(self, segment: Path, size: int) -> Iterator[Advice]:
        yield Advice("restore the segment from a copy or from a slave, if there is one that is whole")
        yield self._copy("or keep a copy of all files as they are, and continue here")
        why = "give the file its size, with zeros in place of the bytes that were cut off: no message is left there"
        if segment.stat().st_size > size:
            why = "give the file its size: the bytes after it were not written by a broker"
        yield Advice(why, f"truncate -s {size} {shlex.quote(str(segment))}")

    def for_lost_records(self, found: Prediction, trusting: Prediction | None) -> Iterator[Advice]:
        if found.holes:
            if _copy_with_log(self.store) is None:
                yield self._copy()
            yield Advice(_RESTORE)
            return
        heals = trusting is not None and trusting.starts and trusting.lost.count < found.lost.count
        if not heals and (copy := _copy_with_queues(self.store)) is not None:
            yield Advice(f"{copy} has every segment, with queues and an index of it: start the broker when you like")
            return
        yield self._copy()
        if heals and trusting is not None:
            # Queues and index that a killed broker left are not trusted; they are made again.
            parts = self._parts(trusting, _QUARANTINE)
            yield from parts or [
                self._rebuild_all("make queues and index again, of every good message", found, _QUARANTINE)
            ]
            yield self._without_abort(trusting)
            yield self.ask_again()
            return
        copy, topic = _copy_of(self.store), next(iter(found.lost.topics))
        yield self._rebuild_all(
            "give the copy, which keeps all of the log, queues and an index of every good message",
            found,
            _QUARANTINE,
            store=copy,
        )
        yield Advice(
            "find them there, by --key, --msg-id or --queue-offset",
            f"reput query --store {shlex.quote(str(copy))}{self._conf()} --topic {shlex.quote(topic)} --key KEY",
        )

    def for_missing_segments(self, found: Prediction) -> Iterator[Advice]:
        if found.has_lost_its_log:
            yield Advice(_RESTORE_LOG)
            return
        yield Advice(_RESTORE)
        if found.holes:
            return
        yield self._rebuild_all(
            "or, if they are lost for good, make queues and index again of the rest; once the segments are back, the "
            "same command makes the others",
            found,
            *_options(found),
        )
        yield self.ask_again()

    def for_queues_and_index(self, found: Prediction, trusting: Prediction | None) -> Iterator[Advice]:
        for path in self._in_the_way(found):
            yield self._move_away(path, "move away what is in the place of the index or of a queue")
        what = "make them again from the log, in place, before the broker starts"
        is_normal = found.recovery is Recovery.NORMAL
        # A rebuild of everything removes the abort file.
        without_abort = found if is_normal else trusting
        if is_normal and found.astray is not None and not (found.short_queues or found.index_missing):
            yield from self._for_an_offset_astray(found)
            return
        if is_normal and not (found.short_queues or found.beyond_end):
            yield self._rebuild_index(what, found, *_options(found))
        elif without_abort is not None and without_abort.is_harmless and (self.store / REPUT).is_dir():
            # reput made queues and index, and left abort: another release would cut the log without it.
            yield self._without_abort(without_abort)
        elif without_abort is not None and (parts := self._parts(without_abort, *_options(found))):
            yield from parts
            if not is_normal:
                yield self._without_abort(without_abort)
        else:
            yield self._rebuild_all(what, found, *_options(found))
        yield self.ask_again()

    def _for_an_offset_astray(self, found: Prediction) -> Iterator[Advice]:
        """Yield the steps for an index that ends too far: after a rebuild, the next start moves it there again."""
        yield Advice(
            f"restore the segment with offset {found.astray} from a copy or from a slave: the record there states "
            f"offset {found.index_end}, and every start takes the index there"
        )
        yield Advice(
            "or start the broker, and once its log has reached the next segment, stop it and make the index again "
            "(reput rebuild --only index); until then new messages are not found by key"
        )

    @cached_property
    def _moving(self) -> tuple[Moving, ...]:
        return self.find_moving()

    def _rebuild_all(self, why: str, found: Prediction, *options: str, store: Path | None = None) -> Advice:
        """Rebuild everything in place, in the store or in a copy of it."""
        moving = self._moving
        command = self._rebuild(store or self.store, *options) + _yes(found, moving)
        return Advice(why + _moves(moving), command, moving)

    def _rebuild_index(self, why: str, found: Prediction, *options: str) -> Advice:
        return Advice(why, self._rebuild(self.store, *options) + " --only index" + _yes(found))

    def _rebuild_queue(self, topic: str, queue_id: int | None, found: Prediction, *options: str) -> Advice:
        """Rebuild one queue in place, or all queues of a topic."""
        moving = tuple(each for each in self._moving if each.topic == topic and queue_id in (None, each.queue_id))
        command = f"{self._rebuild(self.store, *options)} --topic {shlex.quote(topic)}"
        command += "" if queue_id is None else f" --queue-id {queue_id}"
        what = f"the queues of {topic}" if queue_id is None else f"the queue {topic}-{queue_id}"
        why = f"make {what} again from the log, and leave the others as they are"
        return Advice(why + _moves(moving), command + _yes(found, moving), moving)

    def _parts(self, found: Prediction, *options: str) -> list[Advice]:
        """Return commands that make only incomplete queues and the index again; none if a full rebuild moves no entry.

        `found` is for the store without its ``abort`` file.
        """
        if not found.starts or found.lost.count or not self._moving:
            return []
        moved = {each.topic for each in self._moving}
        queues = [(queue.topic, queue.queue_id if queue.topic in moved else None) for queue in found.short_queues]
        queues = list(dict.fromkeys(queues))
        if len(queues) > _PARTS_MAX or not all(_can_be_typed(topic) for topic, _ in queues):
            return []
        steps = [self._rebuild_queue(topic, queue_id, found, *options) for topic, queue_id in queues]
        has_abort = (self.store / ABORT).exists()
        if has_abort or found.index_missing or found.index_is_ahead:
            steps.append(self._rebuild_index("make the index again from the log; no queue is changed", found, *options))
        return steps

    def _past_queue_file(self, found: Prediction, file: str | None) -> Iterator[Advice]:
        """Rebuild the queue that has a wrong file; if a rebuild moves no entries, rebuild all queues and the index."""
        parts = () if file is None else Path(file).relative_to(self.store).parts
        if self._moving and len(parts) == 4 and parts[0] in _OF_QUEUES:
            queue_id = parse_int(parts[2])
            if queue_id is not None and _can_be_typed(parts[1]):
                yield self._rebuild_queue(parts[1], queue_id, found, _QUARANTINE)
                return
        yield self._rebuild_all(
            "make queues and index again from the log; its damaged ranges are left out, and recorded",
            found,
            _QUARANTINE,
        )

    def _without_abort(self, trusting: Prediction) -> Advice:
        return Advice(
            f"remove abort: without it the broker's recovery begins at {_name(trusting.recovers_from)}, and "
            f"loses {counted(trusting.lost.count, 'message')}",
            shlex.join(["rm", "-f", str(self.store / ABORT)]),
        )

    def _may_be_whole(self, segment: Path) -> bool:
        """Whether only the setting suggests that a segment was cut: it is the only one, and ends in zeros."""
        row = row_of([segment.parent])
        return len(row) == 1 and not self.is_size_repeated and not log_ends_full(row)

    def _is_foreign(self, path: Path) -> bool:
        return path.is_relative_to(self.store) and is_foreign(self.store, path.relative_to(self.store).parts)

    def _rebuild(self, store: Path, *options: str) -> str:
        return self._reput("rebuild", store) + "".join(f" --option {option}" for option in options)

    def _reput(self, command: str, store: Path) -> str:
        path = shlex.quote(str(store))
        return f"reput {command} --store {path}{self._conf()} --output {path}"

    def _conf(self) -> str:
        return "" if self.broker_conf is None else f" --broker-conf {shlex.quote(str(self.broker_conf))}"

    def _copy(self, why: str = "keep a copy of all of it, before a broker cuts it") -> Advice:
        words = shlex.join(["cp", "-aT", "--sparse=always", str(self.store), str(_copy_of(self.store))])
        return Advice(why, words)

    def _in_the_way(self, found: Prediction) -> Iterator[Path]:
        """Yield the files in the place of directories that a rebuild makes: it does not replace them."""
        queues = self.store / CONSUME_QUEUE
        paths = [self.store / INDEX, queues]
        for queue in (each for each in found.short_queues if is_directory_name(each.topic)):
            paths += [queues / queue.topic, queues / queue.topic / str(queue.queue_id)]
        yield from (path for path in dict.fromkeys(paths) if path.exists() and not path.is_dir())

    def _move_away(self, path: Path, why: str) -> Advice:
        name = self.store.with_name(f"{self.store.name}.{path.name}")
        target = _free(name, self._taken)
        self._taken.add(target)
        return Advice(why, shlex.join(["mv", str(path), str(target)]))

    def move_queues(self) -> str:
        return f"reput queues --store {shlex.quote(str(self.store))}{self._conf()} --to rocksdb"

    def ask_again(self) -> Advice:
        return Advice("then ask again", f"reput doctor --store {shlex.quote(str(self.store))}{self._conf()}")


def _yes(found: Prediction, moving: Sequence[Moving] = ()) -> str:
    """Return the option that confirms a rebuild after the log's end was lost, or one that moves entries."""
    return " --yes" if found.is_cut_back or moving else ""


def _moves(moving: Sequence[Moving]) -> str:
    """Say how many of today's entries a rebuild moves."""
    if not moving:
        return ""
    entries = counted(sum(queue.entries for queue in moving), "entry", "entries")
    return (
        f"; it moves {entries} of {counted(len(moving), 'queue')} to other queue offsets than today, so that "
        "consumers' offsets lie after messages that they have not read"
    )


def _can_be_typed(topic: str) -> bool:
    """Whether a command line can name this topic: its bytes are those of the text."""
    return topic.isprintable() and "\ufffd" not in topic and not topic.startswith("-")


def _options(found: Prediction) -> Iterator[str]:
    """Yield the options with which the log is read past its damage."""
    if found.damaged_ranges:
        yield _QUARANTINE


def _copy_of(store: Path) -> Path:
    return _free(store.with_name(f"{store.name}{_COPY}"))


def _free(path: Path, taken: Container[Path] = ()) -> Path:
    """Return `path`, or `path` with a number if that name is in use, so that a copy never overwrites anything.

    `taken` are names that earlier steps use.
    """
    numbered = (path.with_name(f"{path.name}{number}") for number in itertools.count(2))
    return next(each for each in itertools.chain([path], numbered) if not each.exists() and each not in taken)


def _copy_with_queues(store: Path) -> Path | None:
    """Return a copy of the store that earlier advice made, with the log and with queues that reput made from it."""
    return _copy_with_log(store, lambda copy: (copy / REPUT).is_dir())


def _copy_with_log(store: Path, is_wanted: Callable[[Path], bool] = Path.is_dir) -> Path | None:
    """Return a copy of the store that earlier advice made, with the log as it is."""
    log = _sizes(store)
    copies = sorted(store.parent.glob(f"{glob.escape(store.name)}{_COPY}*"))
    return next((copy for copy in copies if is_wanted(copy) and _sizes(copy).items() >= log.items()), None)


def _sizes(store: Path) -> dict[str, int]:
    directory = store / COMMIT_LOG
    return {path.name: path.stat().st_size for path in directory.iterdir()} if directory.is_dir() else {}


def _name(path: str | None) -> str:
    return Path(path).name if path else "no segment"
