"""The row of index files, and the sink that keeps it (``IndexService`` of 4.9.3)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import datetime, timedelta

from reput.sinks.anomalies import NO_ANOMALIES, AnomalyCounts
from reput.sinks.dispatch.batch import LogicBatch
from reput.sinks.dispatch.entries import KeyEntries
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.sink_progress import KeepsProgress, ProgressFile, SinkProgress
from reput.sinks.files.store_path import INDEX, index_file
from reput.sinks.formats.index_file import IndexHeader
from reput.sinks.index.index_file import IndexFile
from reput.sinks.index.index_reader import index_file_names, open_index_file
from reput.sinks.sink import not_yet_written
from reput.source.errors import SinkError

_log = logging.getLogger(__name__)

MAX_HASH_SLOT_NUM = 5_000_000
MAX_INDEX_NUM = 20_000_000
_NAME_FORMAT = "%Y%m%d%H%M%S%f"
_MILLISECOND = timedelta(milliseconds=1)


def index_file_name(now: float, last: str | None) -> str:
    """A new file's name: local time `now` (seconds since 1970) as ``yyyyMMddHHmmssSSS``.

    The name is always after `last`: the broker would give two files of one millisecond the same path, and a clock that
    went back would put the file before its predecessors.
    """
    seconds, milliseconds = divmod(int(now * 1000), 1000)
    moment = datetime.fromtimestamp(seconds) + milliseconds * _MILLISECOND  # noqa: DTZ006  local time, as the broker's
    if last is not None:
        try:
            moment = max(moment, datetime.strptime(last + "000", _NAME_FORMAT) + _MILLISECOND)  # noqa: DTZ007
        except ValueError:  # a broker takes any number for a name
            return max(moment.strftime(_NAME_FORMAT)[:-3], f"{int(last) + 1:017d}")
    return moment.strftime(_NAME_FORMAT)[:-3]


class IndexSink(KeepsProgress):
    """Keeps ``index/`` from the log."""

    name = "index"

    def __init__(
        self,
        files: DurableFiles,
        max_hash_slot_num: int = MAX_HASH_SLOT_NUM,
        max_index_num: int = MAX_INDEX_NUM,
        clock: Callable[[], float] = time.time,
        *,
        count_of_empty: int = 0,
    ) -> None:
        """`clock` (seconds since 1970) only names new files.

        `count_of_empty` is the count in a file's header before its first key: 0 up to 4.9.x. 5.x writes its counters at
        every stop, and so 1, the number of the first entry.
        """
        self._files = files
        self._max_hash_slot_num = max_hash_slot_num
        self._max_index_num = max_index_num
        self._clock = clock
        self._count_of_empty = count_of_empty
        self._record = ProgressFile(files, self.name)
        self._file: IndexFile | None = None
        self._last_full_timestamp = 0

    @property
    def index_msg_timestamp(self) -> int:
        """The store checkpoint's third field: the end (ms) of the last file that has a successor; 0 without one."""
        return self._last_full_timestamp

    @property
    def files(self) -> DurableFiles:
        """What writes the index files; of those before the last one the sink keeps nothing else."""
        return self._files

    def recover(self, start_offset: int) -> SinkProgress:
        """Go on at the progress record; later files and keys are dropped. See ``Sink.recover``."""
        record = self._record.load()
        names = index_file_names(self._files.root)
        if record is not None and record.state["file"] is not None and record.state["file"] not in names:
            if names:
                raise SinkError(
                    f"{self._files.root / INDEX} has no file {record.state['file']}, which was the last one written",
                    advice=f"remove {INDEX}/ and {self._record.path} to derive the index from the log again",
                    file=self._files.root / INDEX,
                )
            _log.warning("%s is gone; deriving it from the log again", self._files.root / INDEX)
            record = None
        if record is None:
            record = self._adopt(names, start_offset)
        last = record.state["file"]
        for name in names:
            if last is None or name > last:
                self._files.remove(*index_file(name))
        if last is not None:
            self._file = self._open(last, IndexHeader(**record.state["header"]))
            self._file.recover()
        self._last_full_timestamp = record.state["index_msg_timestamp"]
        self._files.sync()
        self._record.store(record)
        return record

    def write(self, batch: LogicBatch, *, slots_later: bool = False) -> AnomalyCounts:
        """Add the batch's keys; see ``Sink.write``. The index has no anomalies: its records come in log order.

        With `slots_later` the slots of the last file are written by `finish`; `recover` makes them again where `finish`
        was not reached.
        """
        rest = not_yet_written(self.name, self.end_offset, batch)
        if rest is None:
            return NO_ANOMALIES
        last_key = -1
        for keys in rest.entries.keys_by_piece():
            self._put(keys)
            last_key = int(keys.offsets[-1]) if len(keys.offsets) else last_key
        # Every message first looks for a file to write to, so one without keys behind a full file makes the next.
        last = batch.last_record.offset if batch.last_record is not None else -1
        if last >= self.end_offset and (self._file is None or (self._file.is_full and last > last_key)):
            self._roll()
        if self._file is not None and last_key >= 0:
            self._file.flush(slots=not slots_later)
        self._files.sync()
        self._record.advance(batch.end, batch.last_record, self._state())
        return NO_ANOMALIES

    def finish(self) -> None:
        """Complete what `write` left for later, durably."""
        if self._file is not None:
            self._file.flush()
            self._files.sync()

    def _put(self, keys: KeyEntries) -> None:
        done = 0
        while done < len(keys.hashes):
            file = self._file if self._file is not None and not self._file.is_full else self._roll()
            until = done + min(file.room, len(keys.hashes) - done)
            some = KeyEntries(keys.hashes[done:until], keys.offsets[done:until], keys.timestamps[done:until])
            file.put(some)
            done = until

    def _roll(self) -> IndexFile:
        """Create the next file; its begin and end are the last file's end, where that is above 0."""
        last = self._file
        header = IndexHeader(index_count=self._count_of_empty)
        if last is not None:
            last.flush()
            timestamp, offset = max(0, last.header.end_timestamp), max(0, last.header.end_phy_offset)
            header = replace(
                header,
                begin_timestamp=timestamp,
                end_timestamp=timestamp,
                begin_phy_offset=offset,
                end_phy_offset=offset,
            )
            self._last_full_timestamp = last.header.end_timestamp
        self._file = self._open(index_file_name(self._clock(), last.name if last else None), header)
        self._file.create()
        return self._file

    def _open(self, name: str, header: IndexHeader) -> IndexFile:
        return IndexFile(self._files, name, self._max_hash_slot_num, self._max_index_num, header)

    def _adopt(self, names: list[str], start_offset: int) -> SinkProgress:
        """Go on behind a broker's files; without any, begin at `start_offset`."""
        headers = [self._header(name) for name in names]
        state = {
            "file": names[-1] if names else None,
            "header": asdict(headers[-1]) if names else None,
            "index_msg_timestamp": headers[-2].end_timestamp if len(names) > 1 else 0,
        }
        # A cleanly closed index has all keys of its last record; the next one begins somewhere behind it.
        known = headers[-1].end_phy_offset + 1 if headers and max(h.index_count for h in headers) > 1 else 0
        start = max(start_offset, known)
        return SinkProgress(start, start, None, state)

    def _header(self, name: str) -> IndexHeader:
        with open_index_file(self._files.root.joinpath(*index_file(name))) as file:
            return file.header()

    def _state(self) -> dict[str, object]:
        return {
            "file": self._file.name if self._file else None,
            "header": asdict(self._file.header) if self._file else None,
            "index_msg_timestamp": self._last_full_timestamp,
        }
