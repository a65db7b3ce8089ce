"""What errors of the system mean: no room, a disk or a server that fails, a file that is missing.

Some reach the driver only as the words of Spark, Java or a library. The words are listed here, too, and nowhere else.
"""

from __future__ import annotations

import errno
import os
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
