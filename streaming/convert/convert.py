"""`reput convert`: write a new store that holds a DLedger store's messages in a plain commitlog.

1. The records are copied without their frames, segment by segment (``sinks/commit_log.py``). Each has another physical
   offset then, and so has what it says of other records (``source/record/moved_record.py``). Where each record went is
   kept in a file for each old segment; a conversion that was stopped continues after the last one.
2. ``config/`` is copied: consumers' and delay levels' offsets are queue offsets, which stay. Timers keep their places
   in the wheel; their log then names records by their new offsets. Records of POP in ``kvStore`` are copied.
3. Queues, index and checkpoint are made from the new log, as `reput rebuild` makes them.
4. All of it is put in place by a swap (``sinks/files/swap.py``).

The old store is only read. The new one has nothing that a broker would start with until the swap, and `abort` during
it, with the log among the last: a broker that is started in between finds no message, or all that it needs.
"""

from __future__ import annotations

import json
import logging
import os
import re
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from reput.sinks.abort_file import LeftBy, abort_left_by, clear_abort, mark_abort
from reput.sinks.commit_log import CommitLogWriter, segment_path
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.file_system import data_extents, has_files
from reput.sinks.files.store_lock import StoreLock, lock_holder
from reput.sinks.files.store_path import (
    ABORT,
    BATCH_CONSUME_QUEUE,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    INDEX,
    LOCK,
    REBUILD_ROOT,
    REPUT,
    STORE_CHECKPOINT,
    RelativePath,
)
from reput.sinks.files.swap import finish_swap, swap
from reput.sinks.formats.timer import TIMER_LOG, TIMER_UNIT, TIMER_WHEEL
from reput.sinks.queue.consume_queue import KIND, rounded_file_size
from reput.sinks.queue.lookup import end_of_entries
from reput.sinks.queue.queue_reader import load_queues
from reput.sinks.queue.rocksdb_queue import queue_words
from reput.source.errors import OptionError, OutputError, SinkError, StoreLockedError
from reput.source.log.log_reader import LogReader
from reput.source.log.mapped_file_queue import MappedFile, MappedFileQueue, open_for_reading, read_head
from reput.source.log.range_reader import DecodeOptions, read_windows
from reput.source.log.store_layout import COMMIT_LOG, ROCKSDB_QUEUES, rocksdb_queues
from reput.source.printable import counted
from reput.source.record.dledger_entry import ENTRY_INDEX_AT
from reput.source.releases import version_text
from reput.streaming.config.broker import CONFIG, SIGNS, broker_version
from reput.streaming.config.broker_conf import BrokerConf
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.config.stored_sizes import check_fits_files
from reput.streaming.convert.moved_records import MovedRecords, copy_records
from reput.streaming.output.paths import OutputPaths, refuse_paths_inside
from reput.streaming.process import terminal
from reput.streaming.rebuild.plan import RebuildRequest
from reput.streaming.rebuild.rebuild import rebuild

_log = logging.getLogger("reput")

_KV_STORE, _COMPACTION_LOG = "kvStore", ("compaction", "compactionLog")
# The result of a conversion, in the new store; and the plan of one that was stopped.
_CONVERTED = (REPUT, "convert.json")
_PLAN = (*REBUILD_ROOT, "convert-plan.json")
# Settings with which a broker keeps physical offsets in RocksDB.
_IN_ROCKSDB = ("indexRocksDBEnable", "transRocksDBEnable", "timerRocksDBEnable")
# In DLedger's own checkpoint (``DLedgerMmapFileStore#persistCheckPoint``).
_COMMITTED = re.compile(r"^committedIndex=(\d+)$", re.MULTILINE)
_READ_BYTES = 1 << 22


@dataclass(frozen=True)
class Converted:
    """The result: how many `messages` the new log holds, and where the old and the new one begin and end.

    `uncommitted` are messages at the old log's end of which this node did not know whether most of its group had them.
    `queues_left_out` are queues of the old store that name records after its log's begin that the log does not have.
    `last_term` and `last_index` are those of the old log's last entry, None if its last record is not in an entry: of
    the nodes of a group, the one with the highest term, and of these with the highest index, has every acknowledged
    message (``DLedgerLeaderElector#handleVote``).
    """

    messages: int
    begin: int
    old_end: int
    end: int
    uncommitted: int
    queues_left_out: int = 0
    last_term: int | None = None
    last_index: int | None = None

    def to_json(self) -> str:
        """The result as one JSON object."""
        return json.dumps(asdict(self))

    def text(self, output: Path) -> str:
        """The result in words."""
        held = f"{counted(self.messages, 'message')}: {output} has them in a plain log [{self.begin}, {self.end})"
        if self.last_term is not None:
            held += (
                f"\nthe last entry has term {self.last_term} and index {self.last_index}: if another node of the group "
                "has a higher term, or the same term and a higher index, convert that node's store"
            )
        return (
            f"{held}\nset enableDLegerCommitLog=false in broker.conf, and storePathRootDir and storePathCommitLog to "
            "the new store, before the broker starts"
        )


def _uncommitted(count: int) -> str:
    return (
        f"this node did not know of the last {counted(count, 'message')} whether most of the group had them: "
        "convert the store of the node that led last"
    )


def _last_entry(queue: MappedFileQueue, last: int) -> tuple[int, int] | tuple[None, None]:
    """Term and index of the entry around the record at `last`; None, None if it is in a plain segment."""
    file = queue.find(last)
    assert file is not None
    if not file.frame:
        return None, None
    head = read_head(file, 16, last - file.frame + ENTRY_INDEX_AT - file.file_from_offset)
    return int.from_bytes(head[8:], "big"), int.from_bytes(head[:8], "big")


class Conversion:
    """One conversion of the DLedger store of `config` into the new store `output`."""

    def __init__(self, config: PipelineConfig, output: Path) -> None:
        self._config = config
        self._store, self._output = config.store, output
        self._log = LogReader(config.log_options())
        self._files = DurableFiles(output, whole=True)
        self._made = DurableFiles(output.joinpath(*REBUILD_ROOT), whole=True)

    def run(self) -> Converted:
        """Convert.

        Raises
        ------
        StoreLockedError
            A broker runs on the store, or a broker or reput on the output.
        OptionError
            The store keeps something that names physical offsets and that reput cannot move.
        OutputError
            The output has files of its own, or is inside the store.
        CorruptRecordError, DataLossError, StoreError
            The log is damaged, or cannot be read.
        """
        self._check_store()
        check_fits_files(self._config, self._store)
        queue = self._log.queue()
        queue.check_no_hole(0)
        refuse_paths_inside((self._store.resolve(),), OutputPaths(self._output.resolve()))
        with ExitStack() as cleanup:
            cleanup.enter_context(StoreLock(self._output))
            cleanup.callback(self._files.close)
            cleanup.callback(self._made.close)
            finish_swap(self._files)
            end = self._log.settled_end(queue.min_offset)
            queue = self._log.queue()
            plan = {
                "store": str(self._store.resolve()),
                "begin": queue.min_offset,
                "end": end,
                **self._log.identity(end),
            }
            if (known := self._converted(plan)) is not None:
                return known
            self._check_output()
            self._take_up(plan)
            terminal.expect(len(queue.files) + 2)
            moved = MovedRecords(self._files, queue)
            result = self._copy_log(queue, end, moved)
            self._copy_others(moved)
            terminal.done()
            self._rebuild(result)
            result = replace(result, queues_left_out=self._keep_ends(result.begin))
            terminal.done()
            self._made.replace(*_CONVERTED, data=json.dumps({"plan": plan, "result": asdict(result)}).encode())
            self._put_in_place()
        if result.uncommitted:
            _log.warning("%s", _uncommitted(result.uncommitted))
        return result

    # --- what there is --------------------------------------------------------------------------------------------

    def _check_store(self) -> None:
        holder = lock_holder(self._store)
        if holder is not None:
            raise StoreLockedError(f"{holder} runs on {self._store}", advice="stop it first", file=self._store)
        if self._config.broker_conf is not None:
            version = broker_version(self._config.broker.version, self._store)
            broker = BrokerConf.read(self._config.broker_conf, version)
            for name in _IN_ROCKSDB:
                if broker.text(name).strip().lower() == "true":
                    raise OptionError(
                        f"{broker.where(name)}: {name} is on, so RocksDB has physical offsets that reput does not move",
                        file=broker.path,
                    )
        if has_files(self._store.joinpath(*_COMPACTION_LOG)):
            raise OptionError(
                f"{self._store.joinpath(*_COMPACTION_LOG)} has compacted topics, which reput does not move",
                file=self._store,
            )

    def _converted(self, plan: dict[str, object]) -> Converted | None:
        """The result of an earlier run that ended here, or in the swap; None if there is none."""
        path = self._output.joinpath(*_CONVERTED)
        if not path.exists():
            return None
        try:
            noted = json.loads(path.read_bytes())
            result = Converted(**noted["result"])
        except (ValueError, TypeError, KeyError) as error:
            raise SinkError(f"{path} is not a note of a conversion ({error!r})", file=path) from error
        if noted["plan"] != plan:
            raise OutputError(
                f"{self._output} was made of {noted['plan']['store']} as it was then",
                advice="give a new directory",
                file=self._output,
            )
        if abort_left_by(self._output) is LeftBy.REPUT:
            clear_abort(self._files)
        return result

    def _check_output(self) -> None:
        """Raise OutputError if the output has anything but what a conversion that was stopped has left."""
        own = {REPUT, LOCK, f".{ABORT}.tmp"} | ({ABORT} if abort_left_by(self._output) is LeftBy.REPUT else set())
        for path in self._output.iterdir():
            if path.name not in own:
                raise OutputError(
                    f"{self._output} is not empty: it has {path.name}", advice="give a new directory", file=path
                )

    def _take_up(self, plan: dict[str, object]) -> None:
        """Continue a stopped conversion of the same log, or begin one."""
        path = self._output.joinpath(*_PLAN)
        try:
            known = json.loads(path.read_bytes())
        except (FileNotFoundError, ValueError):
            known = None
        if known == plan:
            _log.info("continuing the conversion that was stopped")
            return
        self._files.remove_tree(*REBUILD_ROOT)
        self._files.replace(*_PLAN, data=json.dumps(plan).encode())

    # --- what is made ---------------------------------------------------------------------------------------------

    def _copy_log(self, queue: MappedFileQueue, end: int, moved: MovedRecords) -> Converted:
        messages, writer = 0, CommitLogWriter(self._made, queue.min_offset, queue.mapped_file_size)
        for file in queue.files:
            known = moved.load(file)
            if known is None and file.file_from_offset < end:
                self._copy_segment(file, min(end, file.end), writer, moved)
                known = moved.load(file)
            if known is not None:
                messages += known[0]
                writer.end = known[1]
            terminal.done()
        if not messages:
            raise OutputError(f"the log of {self._store} has no message", file=self._store)
        for offset, time_ns in moved.times():  # a broker removes segments by the time of their last write
            path = self._made.root.joinpath(*segment_path(offset - offset % queue.mapped_file_size))
            os.utime(path, ns=(time_ns, time_ns))
        term, index = _last_entry(queue, moved.last)
        uncommitted = self._count_uncommitted(index)
        return Converted(messages, queue.min_offset, end, writer.end, uncommitted, last_term=term, last_index=index)

    def _copy_segment(self, file: MappedFile, end: int, writer: CommitLogWriter, moved: MovedRecords) -> None:
        options = DecodeOptions(check_crc=True)
        copy_records(
            read_windows(file, file.file_from_offset, end, options, decodes=False, passes_over=False), writer, moved
        )
        self._made.sync()
        moved.finish(file, writer.end)

    def _count_uncommitted(self, index: int | None) -> int:
        """Count the entries up to `index` that this node did not know to be committed, by DLedger's checkpoint."""
        # DLedger's own directory is the last of them, wherever its log is.
        path = self._config.log_directories[-1] / "checkpoint"
        found = _COMMITTED.search(path.read_text(errors="replace")) if path.is_file() else None
        return 0 if index is None or found is None else max(0, index - int(found[1]))

    def _copy_others(self, moved: MovedRecords) -> None:
        """Copy the broker's other files than log, queues and index; timers get the records' new offsets."""
        for folder in (CONFIG, _KV_STORE, TIMER_LOG):
            for path in sorted((self._store / folder).rglob("*")):
                if path.is_file():
                    parts = path.relative_to(self._store).parts
                    self._copy(path, parts, moved if folder == TIMER_LOG else None)
        for path in self._store.glob(f"{TIMER_WHEEL}*"):
            self._copy(path, (path.name,), None)
        for sign in SIGNS:
            if (self._store / sign.name).exists():
                sign.leave(self._made)
        self._made.sync()

    def _copy(self, path: Path, parts: RelativePath, moved: MovedRecords | None) -> None:
        """Copy a file of the store; holes stay holes. With `moved` it is a timer log's."""
        unit = TIMER_UNIT.itemsize if moved is not None else 1
        chunk = _READ_BYTES - _READ_BYTES % unit
        with open_for_reading(str(path)) as descriptor:
            size = os.fstat(descriptor).st_size
            self._made.create(*parts, size=size)
            for begin, stop in list(data_extents(descriptor)):
                end = min(size, stop + -stop % unit)
                for at in range(begin - begin % unit, end, chunk):
                    data = bytearray(os.pread(descriptor, min(chunk, end - at), at))
                    if moved is not None:
                        moved.timers(np.frombuffer(data, TIMER_UNIT, len(data) // unit))
                    self._made.write(*parts, offset=at, data=memoryview(data))

    def _rebuild(self, result: Converted) -> None:
        root, config = self._made.root, self._config
        version = version_text(broker_version(config.broker.version, self._store))
        plain = replace(
            config,
            store=root,
            commit_log=(root / COMMIT_LOG,),
            log_directories=(root / COMMIT_LOG,),
            source=replace(config.source, enable_dledger_commit_log=False),
            broker=replace(config.broker, version=version),
        )
        found = LogReader(plain.log_options()).settled_end(result.begin)
        if found != result.end:
            raise SinkError(f"the new log ends at {found}, and what was written at {result.end}", file=root)
        request = RebuildRequest(root, yes=True)
        if not (request.makes_queues(plain) or request.makes_rocksdb(plain) or request.makes_index(plain)):
            return
        made = rebuild(plain, request, "reput convert")
        if made.resumed_at == made.start and made.messages != result.messages:
            raise SinkError(f"{made.messages} of {counted(result.messages, 'message')} are in the new log", file=root)

    def _keep_ends(self, begin: int) -> int:
        """Copy the queues whose records have all expired: without their files, the next message would get number 0.

        Returns how many queues are left out, since no record explains them.
        """
        left_out = 0
        size = rounded_file_size(self._config.queue.mapped_file_size_consume_queue)
        for reader in load_queues(self._store, KIND, size):
            if self._made.root.joinpath(*reader.relative_path(0)[:-1]).exists():
                continue
            end = end_of_entries(reader)
            if end and reader.read(end - 1, 1)["physical_offset"][0] < begin:
                for file in reader.files:
                    self._copy(reader.path(file), reader.relative_path(file), None)
            elif end:
                left_out += 1
                _log.warning(
                    "%s: no message of it is in the log, so it is not in the new store",
                    queue_words((reader.topic, reader.queue_id)),
                )
        self._made.sync()
        return left_out

    def _put_in_place(self) -> None:
        self._made.close()
        names = [CONFIG, _KV_STORE, *sorted(path.name for path in self._made.root.glob("timer*")), COMMIT_LOG]
        names += [sign.name for sign in SIGNS]
        names += [CONSUME_QUEUE, ROCKSDB_QUEUES, CONSUME_QUEUE_EXT, BATCH_CONSUME_QUEUE, INDEX, STORE_CHECKPOINT]
        paths: list[RelativePath] = [(name,) for name in names if (self._made.root / name).exists()]
        mark_abort(self._files)
        database = CONSUME_QUEUE if rocksdb_queues(self._made.root) is not None else None
        swap(self._files, [(path, path) for path in (*paths, _CONVERTED)], may_empty=True, database=database)
        clear_abort(self._files)
