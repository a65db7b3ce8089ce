"""One commitlog as the data source and the pipeline see it: where to begin, where it ends, which log it is."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from reput.source import offset_range
from reput.source.dispatch_request import OffsetRange
from reput.source.errors import CommitLogRewoundError, DataLossError
from reput.source.mapped_file_queue import MappedFileQueue, open_for_reading
from reput.source.message_decoder import Verdict
from reput.source.offset_range import Boundaries
from reput.source.options import EARLIEST, LATEST, SourceOptions
from reput.source.range_reader import DecodeOptions
from reput.source.reput_end_offset import ReputEnd, ReputEndFinder

_log = logging.getLogger(__name__)

# What a writer leaves for a moment at the end of a log; anything else there is worth a word.
_QUIET_VERDICTS = (Verdict.EMPTY, Verdict.BLANK, Verdict.UNDERFLOW, Verdict.MESSAGE)


class LogReader:
    """Reads one commitlog by its options; lists the directory anew for each question."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._boundaries = Boundaries()
        self._finder = ReputEndFinder(
            check_crc=options.check_crc != "none",
            tail_guard_ms=options.tail_guard_ms,
            on_boundary=self._boundaries.note,
        )
        self.last_end: int | None = None
        #: What stands at the last end found, when that is nothing a growing log has there.
        self.bad_end: Verdict | None = None
        self._warned_at = -1

    @property
    def decode_options(self) -> DecodeOptions:
        """How tasks decode this log's records."""
        return DecodeOptions(self._options.check_crc == "all", self._options.delays_ms, self._options.on_damage)

    def queue(self) -> MappedFileQueue:
        """The segments as they are now; see ``MappedFileQueue.load`` for errors."""
        found = MappedFileQueue.load(
            self._options.path, self._options.mapped_file_size, dledger=self._options.enable_dledger_commit_log
        )
        return replace(found, files=tuple(replace(file, on_damage=self._options.on_damage) for file in found.files))

    def initial_offset(self) -> int:
        """Where the options say to begin, inside what the log still has.

        Raises
        ------
        OptionError
            The number given is not where a record begins.
        DataLossError
            The number given has expired, and `failOnDataLoss` is on.
        """
        queue = self.queue()
        if self._options.starting_timestamp is not None:
            return offset_range.find_timestamp(
                queue, self.settled_end(queue.min_offset), self._options.starting_timestamp
            )
        wanted = self._options.starting_offset
        if wanted == EARLIEST:
            return queue.min_offset
        if wanted == LATEST:
            return self.settled_end(queue.min_offset)
        assert isinstance(wanted, int)
        if wanted < queue.min_offset:
            msg = f"startingOffset={wanted}, and the log begins at {queue.min_offset}: older records have expired"
            if self._options.fail_on_data_loss:
                raise DataLossError(msg + "; set failOnDataLoss=false to begin at the log's beginning")
            _log.warning("%s; beginning at the log's beginning", msg)
            return queue.min_offset
        offset_range.check_begins_record(queue, wanted)
        return wanted

    def end(self, start: int) -> int:
        """The end of whole records, looking on from `start`, where a record begins."""
        queue = self.queue()
        self._check_no_hole(queue, start)
        return self._noted(self._finder.find(queue, max(start, queue.min_offset)))

    def settled_end(self, start: int) -> int:
        """The end as it stands now, with the last record waited for."""
        self._check_no_hole(self.queue(), start)
        return self._noted(self._finder.settle(self.queue, start))

    def align_down(self, start: int, offset: int) -> int:
        """The last place up to `offset` where a record begins, walking from `start` or a segment's beginning."""
        file = self.queue().find(offset)
        if file is None:
            return offset
        return offset_range.align_down(file, max(start, file.file_from_offset), offset, self._boundaries)

    def limit(self, start: int, end: int, bytes_max: int | None, messages_max: int | None) -> int:
        """See ``offset_range.limit``."""
        return offset_range.limit(self.queue(), start, end, bytes_max, messages_max, self._boundaries)

    def split(self, start: int, end: int) -> Iterator[OffsetRange]:
        """See ``offset_range.split``."""
        return offset_range.split(self.queue(), start, end, self._options.max_bytes_per_partition, self._boundaries)

    def look_at(self, offset: int, size: int) -> tuple[str, int, bytes]:
        """The segment that holds `offset`: its path, the byte of it, and at most `size` bytes from there on.

        Raises
        ------
        DataLossError
            The log has no such segment any more.
        """
        file = self.queue().find(offset)
        if file is None:
            msg = f"the log has no file with offset {offset} any more"
            raise DataLossError(msg)
        position = offset - file.file_from_offset
        with open_for_reading(file.path) as descriptor:
            return file.path, position, os.pread(descriptor, size, position)

    def identity(self, offset: int) -> dict[str, int]:
        """What tells this log from another in an offset: the first record of the segment that ends before `offset`.

        -1 where the log has no byte before `offset`.
        """
        file = self.queue().find(offset - 1) if offset > 0 else None
        first = offset_range.first_store_timestamp(file) if file is not None else None
        if file is None or first is None:
            return {"fileFromOffset": -1, "firstStoreTimestamp": -1}
        return {"fileFromOffset": file.file_from_offset, "firstStoreTimestamp": first}

    def check_identity(self, offset: int, known: dict[str, Any]) -> None:
        """Raise CommitLogRewoundError when `known`, an earlier `identity` of `offset`, is of another log."""
        now = self.identity(offset)
        if -1 in (now["fileFromOffset"], known["fileFromOffset"]):
            return
        if any(now[name] != known[name] for name in now):
            msg = (
                f"the checkpoint is of another log: the segment before offset {offset} began at "
                f"{known['fileFromOffset']} with a record stored at {known['firstStoreTimestamp']}, and now it is "
                f"{now}; give the store that the checkpoint was made for, or a new checkpoint and output"
            )
            raise CommitLogRewoundError(msg)

    def _check_no_hole(self, queue: MappedFileQueue, start: int) -> None:
        if self._options.fail_on_data_loss:
            queue.check_no_hole(start)

    def _noted(self, end: ReputEnd) -> int:
        self.bad_end = end.verdict if end.verdict not in _QUIET_VERDICTS else None
        if self.bad_end is not None and end.offset != self._warned_at:
            self._warned_at = end.offset
            _log.warning(
                "waiting at offset %d: what stands there is no record yet (%s); if the log goes on behind it, that "
                "record is damaged, and onDamage=quarantine goes on",
                end.offset + end.held_back,
                end.verdict.name,
            )
        self.last_end = end.offset
        return end.offset
