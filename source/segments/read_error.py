"""The errors for files and directories that the system refuses to read."""

from __future__ import annotations

import errno

from reput.source.errors import ReputError, StoreError, TransientError
from reput.source.system_errors import UNANSWERED, who_refuses

# Limits of the process say nothing about the file.
_LIMITS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


def read_error(path: str, error: OSError, offset: int | None = None) -> ReputError | None:
    """The error to raise for one that the system raised on `path`; None where it is not about that file.

    `offset` is the physical offset that was wanted, where it is known. A file that is gone has no error here: what that
    means depends on who was reading.
    """
    if isinstance(error, FileNotFoundError) or error.errno in _LIMITS or error.filename not in (None, path):
        return None
    where = path if offset is None else f"{path} at offset {offset}"
    kind, advice = (TransientError if error.errno in UNANSWERED else StoreError), None
    if kind is TransientError:
        advice = "look at the disk or mount that holds it, and start the same command again"
    words = error.strerror
    if isinstance(error, PermissionError):
        advice = "make it readable for the user that runs reput"
        words, advice = who_refuses(path) or (words, advice)
    return kind(f"cannot read {where}: {words}", advice=advice, file=path, physical_offset=offset)
