"""The error tree. Every error says where (file, offset), what was found, and what to do next.

ReputError
├── OptionError                    a wrong or unknown option, or one with a value outside its limits
│   └── ForeignSettingsError       settings that are not those of the broker whose store it is
├── UnknownNameError               a topic, queue, group or broker that was asked about and that nothing names
├── StoreError                     a store that cannot be read as one
│   ├── SegmentError               names, sizes or holes among the files of a commitlog
│   ├── CorruptRecordError         a record in the middle of the log that fails its checks
│   ├── DataLossError              the log no longer holds what was still to be read
│   ├── CommitLogRewoundError      a record already dispatched is no longer where it was
│   └── UnexplainedError           the log does not explain what an output has, which a command would replace or remove
├── OutputError                    an output that cannot be written, or is not ours to write
│   ├── OutputFullError            no room on its disk, or a quota is reached; also a TransientError
│   ├── OutputFailingError         its disk or its server fails; also a MayPassError
│   ├── OutputAwayError            a directory of it that existed before is missing; also a MayPassError
│   ├── StoreLockedError           a broker or another reput works on the same output
│   └── RowsLostError              a table that lost rows which its transactions brought
├── SinkError                      files of an output that contradict the progress recorded for them
│   └── TransactionAlreadyCommittedError  a commit that the table has already
├── LaterFormatError               a file of reput's own in a format of a later release
├── EnvironmentSetupError          Java, Spark or a package that is missing or too old
├── TransientError                 a fault that may pass by itself: the same command may succeed later
├── MayPassError                   a fault that a running command waits out, and that ends one that starts
├── ExpressionSyntaxError          a subscription's SQL92 expression that cannot be compiled
├── ExpressionEvaluationError      an expression that these properties make no sense for; counts as no match
└── DefectError                    an unforeseen failure: a defect of reput

An error's `exit_code` is that of the command. Its `code` is the same in every release. A supervisor starts reput again
only after `TRY_AGAIN`: the others need a person.
"""

from __future__ import annotations

import errno
import json
import os
import pwd
import shlex
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Final

from reput.source.printable import printable

FAILED: Final = 1
WRONG_USAGE: Final = 2
UNKNOWN_NAME: Final = 4
TRY_AGAIN: Final = 75  # EX_TEMPFAIL of sysexits.h

# The advice of an UnexplainedError, in every command that has --yes.
GIVE_YES: Final = "give the right --store, or --yes to go by this log all the same"

# The begin of the line of an error's text that has its fields; see `reported_through_spark`.
_FIELDS: Final = "reput-error: "


class ReputError(Exception):
    """Base of every error that reput raises on purpose; the command line prints it as one line.

    Parameters
    ----------
    cause
        Where, and what was found.
    advice
        What to do about it; None if `cause` says it.
    file
        The file, directory or place on S3 of the error; None if it has none or several.
    physical_offset
        The offset in the log, if it is about one.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = FAILED

    def __init__(
        self,
        cause: str,
        *,
        advice: str | None = None,
        file: object = None,
        physical_offset: int | None = None,
    ) -> None:
        super().__init__(cause if advice is None else f"{cause}; {advice}")
        self.cause = cause
        self.advice = advice
        self.file = None if file is None else str(file)
        self.physical_offset = physical_offset

    def to_json(self) -> str:
        """The error as one line of JSON: ``code``, ``message``, ``cause``, ``advice``, ``file``, ``physicalOffset``."""
        fields = {
            "code": self.code,
            "exitCode": self.exit_code,
            "message": str(self),
            "cause": self.cause,
            "advice": self.advice,
            "file": self.file,
            "physicalOffset": self.physical_offset,
            **self._further_fields(),
        }
        return json.dumps({"error": {name: value for name, value in fields.items() if value is not None}})

    def _further_fields(self) -> dict[str, object]:
        """More fields of `to_json`, by name."""
        return {}

    @staticmethod
    def from_json(text: str) -> ReputError:
        """The error that `to_json` wrote at the beginning of `text`; a `ReputError` if its class is not loaded here.

        Raises
        ------
        ValueError
            `text` does not begin with such an error.
        """
        try:
            fields = json.JSONDecoder().raw_decode(text)[0]["error"]
            kind = next((kind for kind in _kinds(ReputError) if kind.code == fields["code"]), ReputError)
            return kind(
                fields["cause"],
                advice=fields.get("advice"),
                file=fields.get("file"),
                physical_offset=fields.get("physicalOffset"),
            )
        except (LookupError, TypeError, AttributeError) as error:
            raise ValueError(text) from error


def _kinds(kind: type[ReputError]) -> Iterator[type[ReputError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _kinds(each)


class OptionError(ReputError):
    """An option is unknown, or its value is not allowed."""

    code = "wrong-option"
    exit_code = WRONG_USAGE


class ForeignSettingsError(OptionError):
    """The settings are not those of the broker whose files a command would replace or change; nothing was changed."""

    code = "foreign-settings"


class UnknownNameError(ReputError):
    """A topic, queue, group or broker in a question is unknown; an empty answer would be misleading.

    Attributes
    ----------
    nearest
        Known names that look like the given one, the nearest first.
    """

    code = "unknown-name"
    exit_code = UNKNOWN_NAME

    def __init__(self, cause: str, *, nearest: Sequence[str] = (), advice: str | None = None, **more: Any) -> None:
        if nearest and advice is None:
            advice = f"is {' or '.join(map(printable, nearest))} meant?"
        super().__init__(cause, advice=advice, **more)
        self.nearest = tuple(nearest)

    def _further_fields(self) -> dict[str, object]:
        return {"nearest": list(self.nearest)}


class StoreError(ReputError):
    """The store cannot be read as a RocketMQ store."""

    code = "store"


class SegmentError(StoreError):
    """The commitlog's files do not form a row: a name, a size or a hole."""

    code = "segments"


class CorruptRecordError(StoreError):
    """A record in the middle of the log fails its checks."""

    code = "corrupt-record"


class DataLossError(StoreError):
    """The log no longer holds the offset to be read next."""

    code = "data-loss"


class CommitLogRewoundError(StoreError):
    """A record that was dispatched is no longer at its offset: the log was cut and written again."""

    code = "log-rewound"


class UnexplainedError(StoreError):
    """The log does not explain what an output has: it is gone, cut, or another store's; nothing was changed."""

    code = "unexplained-output"


class OutputError(ReputError):
    """The output cannot be written, or is not reput's to write."""

    code = "output"


class StoreLockedError(OutputError):
    """Another process, a broker or a reput, holds the lock of this output."""

    code = "output-locked"


class SinkError(ReputError):
    """The files of an output contradict the progress recorded for them."""

    code = "contradiction"


class RowsLostError(OutputError):
    """The table has lost rows that its transactions brought; the message names the command that makes them again."""

    code = "rows-lost"


class LaterFormatError(ReputError):
    """A file that reput keeps for itself has a format of a later release; nothing was changed."""

    code = "later-format"


class EnvironmentSetupError(ReputError):
    """Something the machine must provide is missing or too old."""

    code = "environment"


class TransientError(ReputError):
    """A fault that may pass by itself, such as a process that died or a full disk; nothing was lost."""

    code = "try-again"
    exit_code = TRY_AGAIN


class MayPassError(ReputError):
    """Something fails or is missing that a run may have had before; a run then waits for it.

    A command that starts cannot know whether it ever existed: the path may be wrong, and a person must look.
    """

    code = "may-pass"


class OutputFullError(OutputError, TransientError):
    """There is no room for the output: its disk is full, or a quota is reached; with room, the run continues."""

    code = "output-full"
    exit_code = TRY_AGAIN


class OutputFailingError(OutputError, MayPassError):
    """The disk or the server of an output fails or does not answer, or a limit of the machine is reached."""

    code = "output-failing"


class OutputAwayError(OutputError, MayPassError):
    """A directory or file of an output that must exist is missing.

    A start may make a new one instead of waiting. So a run that gives up on it does not ask to be started again.
    """

    code = "output-away"


@contextmanager
def reported_through_spark() -> Iterator[None]:
    """Put the fields of an error that is raised inside into its text: Spark passes nothing else between processes.

    Its message is one line, for people who read Spark's error, and the next line is `to_json`. No name and no bytes of
    the log begin a line of either. Errors that led to it may have such lines, and are left out.
    """
    try:
        yield
    except ReputError as error:
        error.args = (f"{printable(str(error))}\n{_FIELDS}{error.to_json()}",)
        raise error from None


def remote_error(text: str) -> ReputError | None:
    """The last error, with its fields, that `reported_through_spark` put into Spark's text; None if there is none."""
    for line in reversed(text.split("\n")):
        if line.startswith(_FIELDS):
            with suppress(ValueError):
                return ReputError.from_json(line[len(_FIELDS) :])
    return None


# ----------------------------------------------------------------------------------------------------------------------
# The meaning of errors of the system: no room, a disk or a server that fails, a file that is missing.
#
# Some reach the driver only as the words of Spark, Java or a library. These words are listed only here.

#: A full disk, and a quota that is reached.
NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
#: A disk, a network or a mount that does not answer. The error does not say whether it will answer again.
UNANSWERED: Final = frozenset(
    {
        *(errno.EIO, errno.ESTALE, errno.ENXIO, errno.ENODEV, errno.EREMOTEIO, errno.ENOMEDIUM, errno.EINTR),
        *(errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETUNREACH),
        *(errno.ENOTCONN, errno.ECONNABORTED, errno.ECONNREFUSED, errno.ECONNRESET),
    }
)
#: This process or the machine has too little of something at the moment.
SHORT: Final = frozenset({errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.EBUSY})
#: A file or directory that does not exist.
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
    """The directory or file on the way to `path` that this user may not enter or read, and what to do.

    None if the system lets this user read `path`. A file that is named in an error need not exist: the system says only
    that the way to it is barred.
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
    """The class for an error about an output: by the number of a system's error, or by the words of a library's."""
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


#: The version of files that name none, because their first format had no version.
FIRST_FORMAT = 1


def check_format(what: object, found: object, known: int, *, file: object = None) -> int:
    """Return the version `found` in `what` if this release reads it.

    Parameters
    ----------
    what
        The owner of the version, in most cases a path, for the error's text.
    known
        The last version that this release reads.
    file
        The file that has it, as in ``ReputError``.

    Raises
    ------
    LaterFormatError
        A later release wrote it. It must neither be taken for damaged nor be overwritten.
    ValueError
        `found` is not a version.
    """
    if type(found) is not int or found < FIRST_FORMAT:
        raise ValueError(f"its version is {found!r}")
    if found > known:
        raise LaterFormatError(
            f"{what} has format {found}, which a later release of reput wrote; this one reads formats up to {known}",
            advice="continue with that release or a later one",
            file=file,
        )
    return found
