"""The row of segments, listed again only when something may have changed: a live log is looked at many times a second.

A directory's time of change shows that segments came, went or were renamed. It has a granularity, so a listing of a
directory that has just changed is not relied on. Where it is coarser, or a network's file system shows it late, a
listing is outdated after `_LISTED_EVERY_S`. The contents of segments are never judged by a time: a broker writes to
them through a mapping, which may leave their times as they were.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from reput.source.errors import SegmentError, StoreError, TransientError
from reput.source.log.mapped_file_queue import MappedFileQueue

_LISTED_EVERY_S = 5.0
_JUST_BEFORE_NS = 100_000_000
# A segment that is being made, or copied, has another size for so long at most.
_PATIENCE_S = 10.0

_log = logging.getLogger(__name__)
_Stamp = tuple[int, int, int]


class SegmentListing:
    """Lists the segments of one commitlog again and again."""

    def __init__(
        self,
        paths: Sequence[Path],
        mapped_file_size: int | None = None,
        *,
        dledger: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the arguments of ``MappedFileQueue.load``; `clock` is monotonic, in seconds."""
        self._paths = tuple(paths)
        self._mapped_file_size = mapped_file_size
        self._dledger = dledger
        self._clock = clock
        self._queue: MappedFileQueue | None = None
        self._stamps: list[_Stamp | None] = []
        self._is_settled = False
        self._listed_at = 0.0
        self._odd_since: float | None = None

    def load(self) -> MappedFileQueue:
        """The segments as they are now: the very same object as before while nothing has changed.

        Raises
        ------
        TransientError
            The log had segments before, and now it has none, or one of its directories has gone. No broker leaves such
            a log: it keeps its last segment.
        ReputError
            ``MappedFileQueue.load`` raised it. For files that form no row, that is only once they have formed none for
            some seconds, or when no row was listed before.
        """
        stamps = [_stamp(path) for path in self._paths]
        if self._queue is not None and self._is_known(self._queue, stamps):
            return self._queue
        found = self._list(stamps)
        self._check_stayed(stamps)
        self._check_not_gone(found, stamps)
        if self._queue is None or stamps != self._stamps or found != self._queue:
            self._queue = found
        newest = max((stamp[2] for stamp in stamps if stamp is not None), default=0)
        # A change that lies ahead was before the time of day was set back: the next one has another time.
        self._is_settled = abs(time.time_ns() - newest) > _JUST_BEFORE_NS and self._odd_since is None
        self._stamps, self._listed_at = stamps, self._clock()
        return self._queue

    def forget(self) -> None:
        """Have the next call list the directories, whatever their times of change are."""
        self._is_settled = False

    def _is_known(self, queue: MappedFileQueue, stamps: Sequence[_Stamp | None]) -> bool:
        if not self._is_settled or stamps != self._stamps or None in stamps:
            return False
        return queue.unfinished is None and self._clock() - self._listed_at < _LISTED_EVERY_S

    def _list(self, stamps: Sequence[_Stamp | None]) -> MappedFileQueue:
        try:
            found = MappedFileQueue.load(self._paths, self._mapped_file_size, dledger=self._dledger)
        except SegmentError as error:
            if self._queue is None:
                raise
            now = self._clock()
            if self._odd_since is None:
                self._odd_since = now
                _log.warning("%s; looking again for %d s", error, _PATIENCE_S)
            if now - self._odd_since >= _PATIENCE_S:
                raise
            return self._queue
        except StoreError as error:
            if self._queue is None or not self._queue.files or None not in stamps:
                raise
            away = self._paths[stamps.index(None)]
            raise _gone(away, f"{away} is gone") from error
        self._odd_since = None
        return found

    def _check_stayed(self, stamps: Sequence[_Stamp | None]) -> None:
        """Raise TransientError where another directory, or none, stands at a path since its `stamps`.

        Files that were looked at by then would be missing from the listing, as if they had expired.
        """
        for path, before in zip(self._paths, stamps, strict=True):
            if before is not None and before[:2] != (_stamp(path) or ())[:2]:
                raise _gone(path, f"{path} went while it was listed")

    def _check_not_gone(self, found: MappedFileQueue, stamps: Sequence[_Stamp | None]) -> None:
        """Raise TransientError where a directory lost all its segments as none does by expiry."""
        if self._queue is None:
            return
        had, has = ({file.path.rpartition("/")[0] for file in queue.files} for queue in (self._queue, found))
        for path, before, now in zip(self._paths, self._stamps, stamps, strict=True):
            # One of several directories may be empty after expiry, unless another directory stands there now.
            if str(path) in had and str(path) not in has and (not has or (before or ())[:2] != (now or ())[:2]):
                raise _gone(path, f"{path} holds no segment any more")


def _gone(path: Path, what: str) -> TransientError:
    return TransientError(
        f"{what}, and it held the commitlog that was being read: its volume was unmounted, or the directory replaced",
        advice="start the same command again when the log is back",
        file=path,
    )


def _stamp(path: Path) -> _Stamp | None:
    """The status fields that change when a segment comes or goes; None without such a directory."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns
