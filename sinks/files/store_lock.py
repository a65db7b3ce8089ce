"""The store's `lock`: reput locks the same byte as a broker, so that each keeps the other out.

``DefaultMessageStore#start`` takes ``FileChannel.tryLock(0, 1, false)``, a POSIX record lock like ``fcntl.lockf``.
"""

from __future__ import annotations

import fcntl
import os
import struct
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from reput.sinks.files.store_path import LOCK
from reput.source.errors import UNANSWERED, OutputAwayError, OutputError, StoreLockedError, output_error_of

_FLOCK = struct.Struct("hhqqi4x")
_held: set[str] = set()


class StoreLock:
    """The lock of one output while the object is open; the system frees it when the process dies."""

    def __init__(self, root: Path) -> None:
        """Take the lock.

        Raises
        ------
        StoreLockedError
            A broker or another reput holds it; the message names the process if the system does.
        OutputError
            The output cannot be written.
        """
        self._root = root
        path = root / LOCK
        self._key = str(path.resolve())
        if self._key in _held:
            # The system would grant it, and closing the second descriptor would drop the first one's lock.
            raise StoreLockedError(f"{path} is locked by this very process", advice="give another --output", file=path)
        try:
            root.mkdir(parents=True, exist_ok=True)
            # Closing any descriptor of this file would drop the lock, so this one is opened once and kept.
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise OutputError(
                f"cannot write {path}: {error.strerror}", advice="the output needs a writable directory", file=path
            ) from error
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            holder = self._holder()
            os.close(self._descriptor)
            raise StoreLockedError(
                f"{path} is locked{holder}: a broker or another reput works on this output",
                advice="stop it first, or give another --output",
                file=path,
            ) from error
        try:
            if os.fstat(self._descriptor).st_size == 0:
                os.pwrite(self._descriptor, b"lock", 0)  # as a broker does
                os.fsync(self._descriptor)  # `abort_file` compares the time of this write, also after a power failure
        except OSError as error:
            os.close(self._descriptor)
            raise output_error_of(error)(f"cannot write {path}: {error.strerror}", file=path) from error
        _held.add(self._key)

    def _holder(self) -> str:
        question = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        answer = _FLOCK.unpack(fcntl.fcntl(self._descriptor, fcntl.F_GETLK, question))
        kind, process = answer[0], answer[4]
        return f" by process {process}" if kind != fcntl.F_UNLCK and process > 0 else ""

    def check_in_place(self) -> None:
        """Check that the output is where it was when it was locked.

        Raises
        ------
        OutputAwayError
            It is missing, and its files still exist: it was renamed, or its disk was unmounted.
        OutputFailingError
            Its disk does not answer.
        OutputError
            It was removed or replaced.
        """
        ours = os.fstat(self._descriptor)
        try:
            found = os.stat(self._root / LOCK)
        except OSError as error:
            # A mount point may be closed to this user. Files without a name will not come back.
            kind = output_error_of(error) if error.errno in UNANSWERED else OutputAwayError
            kind, what = (kind, "cannot be reached") if ours.st_nlink else (OutputError, "was removed")
            raise kind(
                f"the output {self._root} {what} while reput writes to it ({error.strerror}: its file {LOCK})",
                file=self._root,
            ) from error
        if not os.path.samestat(found, ours):
            raise OutputError(
                f"the output {self._root} was replaced by another one while reput wrote to it", file=self._root
            )

    def close(self) -> None:
        """Release the lock; the file stays, as a broker leaves it."""
        _held.discard(self._key)
        os.close(self._descriptor)

    def __enter__(self) -> StoreLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def is_locked(root: Path) -> bool:
    """Whether a process other than this one holds the lock of this output.

    Raises
    ------
    OutputError
        The lock cannot be examined.
    """
    return _holder(root) is not None


def lock_holder(root: Path) -> str | None:
    """Return the holder of this output's lock, other than this process, in words; None if no holder is known.

    The holder of a lock that this user may not examine is unknown.
    """
    with suppress(OutputError):
        return _holder(root)
    return None


def _holder(root: Path) -> str | None:
    path = root / LOCK
    try:
        with path.open("rb") as file:
            question = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
            answer = _FLOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, question))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise OutputError(f"cannot read {path}: {error.strerror}", file=path) from error
    kind, process = answer[0], answer[4]
    if kind == fcntl.F_UNLCK:
        return None
    return f"a broker or another reput{f' (process {process})' if process > 0 else ''}"
