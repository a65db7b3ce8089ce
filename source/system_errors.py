"""What errors of the system mean: no room, a disk or a server that fails, a file that is missing.

Some reach the driver only as the words of Spark, Java or a library. The words are listed here, too, and nowhere else.
"""

from __future__ import annotations

import errno
import os
import pwd
import shlex
import stat
from pathlib import Path
from typing import Final

from reput.source.errors import OutputAwayError, OutputError, OutputFailingError, OutputFullError

#: A full disk, and a quota that is reached.
NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
#: A disk, a network or a mount that does not answer. It may do so again; whether it will is not in the error.
UNANSWERED: Final = frozenset(
    {
        *(errno.EIO, errno.ESTALE, errno.ENXIO, errno.ENODEV, errno.EREMOTEIO, errno.ENOMEDIUM, errno.EINTR),
        *(errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETUNREACH),
        *(errno.ENOTCONN, errno.ECONNABORTED, errno.ECONNREFUSED, errno.ECONNRESET),
    }
)
#: What this process, or the machine, has too little of just now.
SHORT: Final = frozenset({errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.EBUSY})
#: A file or directory that is not there.
MISSING: Final = frozenset({errno.ENOENT, errno.ENOTDIR})

_NO_ROOM_WORDS = tuple(os.strerror(number) for number in sorted(NO_ROOM))
_UNANSWERED_WORDS = (
    *(os.strerror(number) for number in (errno.EIO, errno.ESTALE, errno.ECONNREFUSED, errno.ENETUNREACH)),
    # Hadoop's client of S3, and Java's sockets.
    "Unable to execute HTTP request",
    "UnknownHostException",
    "SocketTimeoutException",
    "Status Code: 5",
)


def who_refuses(path: str) -> tuple[str, str] | None:
    """Which directory or file on the way to `path` this user may not enter or read, and what to do.

    None where the system lets this user read it. A file that is named in an error need not exist: the system says only
    that the way there is barred.
    """
    place = Path(path).absolute()
    ways = [*((above, os.X_OK, "entered") for above in reversed(place.parents)), (place, os.R_OK, "read")]
    for way, mode, verb in (*ways, (place, os.X_OK, "entered")):
        try:
            status = way.stat()
        except OSError:
            return None
        if mode == os.X_OK and not stat.S_ISDIR(status.st_mode):
            return None
        if not os.access(way, mode, effective_ids=os.access in os.supports_effective_ids):
            kind = "directory" if stat.S_ISDIR(status.st_mode) else "file"
            me, owner = _user(os.geteuid()), _user(status.st_uid)
            whose = f"it belongs to {owner}, with the mode {stat.filemode(status.st_mode)}"
            grant = f"setfacl -R -m u:{me}:rX {shlex.quote(str(way))}"
            return (
                f"the {kind} {way} cannot be {verb} by user {me}: {whose}",
                f"run reput as {owner}, or let {me} read it ({grant})",
            )
    return None


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def says_no_room(text: str) -> bool:
    """Whether a text has the system's words for `NO_ROOM`."""
    return any(words in text for words in _NO_ROOM_WORDS)


def says_unanswered(text: str) -> bool:
    """Whether a text says that a disk or a server fails or does not answer."""
    return any(words in text for words in _UNANSWERED_WORDS)


def output_error_of(error: BaseException) -> type[OutputError]:
    """The class for an error about an output: of the system, by its number, or of a library, by its words."""
    number = error.errno if isinstance(error, OSError) else None
    if number is None:
        if isinstance(error, FileNotFoundError):
            return OutputAwayError
        if isinstance(error, ConnectionError | TimeoutError):
            return OutputFailingError
        text = str(error)
        return OutputFullError if says_no_room(text) else OutputFailingError if says_unanswered(text) else OutputError
    if number in NO_ROOM:
        return OutputFullError
    if number in MISSING:
        return OutputAwayError
    return OutputFailingError if number in UNANSWERED | SHORT else OutputError
