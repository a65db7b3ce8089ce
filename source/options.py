"""The source's options, named as in Spark's Kafka source and in broker.conf: unit, default, limit, reason of each.

An option is a field of a frozen dataclass, and the field holds everything about it: a new option needs only a field.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, TypeVar

from reput.source.errors import OptionError
from reput.source.printable import printable
from reput.source.record.damage import BROKER, QUARANTINE, STOP
from reput.source.record.message_properties import DEFAULT_MESSAGE_DELAY_LEVEL, parse_delay_levels

EARLIEST: Final = "earliest"
LATEST: Final = "latest"

# The greatest int and long of Java, the longest time of a timer, and the longest wait for the last record: an hour.
INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
WAIT_MS_MAX: Final = INT_MAX
_GUARD_MS_MAX: Final = 3_600_000

_NUMBER = re.compile(r"[0-9]+")
_SIZE = re.compile(r"([0-9]+)([kmgt]?)", re.IGNORECASE)
_FACTORS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SHOWN_MAX = 60
# Where a field of a dataclass keeps its option.
_OPTION = "option"

Parsed = TypeVar("Parsed")
Default = TypeVar("Default")
Group = TypeVar("Group")


@dataclass(frozen=True)
class Option:
    """One option: its parser, its allowed values in words, its default and the reason for it."""

    name: str
    parse: Callable[[str], Any]
    allowed: str
    default: Any
    reason: str


def option(name: str, parse: Callable[[str], Parsed], allowed: str, default: Default, reason: str) -> Parsed | Default:
    """A field of a frozen dataclass that is an option; its type is that of `parse`, or the default's."""
    found: Parsed | Default = field(default=default, metadata={_OPTION: Option(name, parse, allowed, default, reason)})
    return found


def options_of(*groups: type[Any]) -> tuple[Option, ...]:
    """The options that are fields of dataclasses, in their order."""
    return tuple(spec for group in groups for spec in _fields(group).values())


def filled(group: type[Group], values: Mapping[str, Any]) -> Group:
    """A dataclass of options, filled from values by option name; values of other options are ignored."""
    return group(**{name: values[spec.name] for name, spec in _fields(group).items() if spec.name in values})


def values_of(group: Any) -> dict[str, Any]:
    """The values of a dataclass of options, by option name."""
    return {spec.name: getattr(group, name) for name, spec in _fields(type(group)).items()}


def _fields(group: type[Any]) -> dict[str, Option]:
    return {each.name: each.metadata[_OPTION] for each in fields(group) if _OPTION in each.metadata}


# The most names to compare with a given one: comparing millions of light queues would take minutes.
_COMPARED_MAX = 50_000
_NEAREST_MAX = 3
# A given name of this length also matches names that contain it; a message names at most this many options.
_PART_MIN, _FEW = 4, 20
_ALL_OPTIONS = "conf/reput.toml has all options, each with a line on what it does"


def shown(text: str, length_max: int = _SHOWN_MAX) -> str:
    """`text` as an error shows it: on one line, and cut at `length_max` characters."""
    safe = printable(text)
    return safe if len(safe) <= length_max else f"{safe[:length_max]}... ({len(text)} characters)"


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """The names that look most like `name`, the nearest first; names that differ only in case come before others."""
    from difflib import get_close_matches  # noqa: PLC0415  rarely needed

    some = sorted(known)[:_COMPARED_MAX]
    same = [each for each in some if each.casefold() == name.casefold()]
    return list(dict.fromkeys([*same, *get_close_matches(name, some, _NEAREST_MAX)]))[:_NEAREST_MAX]


def text(given: str) -> str:
    """Parse printable text that is not empty; spaces around it are removed."""
    if not given.strip() or not given.isprintable():
        raise ValueError(given)
    return given.strip()


def whole_number(minimum: int, maximum: int = LONG_MAX) -> Callable[[str], int]:
    """A parser of whole numbers from `minimum` to `maximum`; `number_allowed` describes them."""

    def parse(text: str) -> int:
        match = _NUMBER.fullmatch(text.strip())
        value = int(match[0]) if match else minimum - 1
        if not minimum <= value <= maximum:
            raise ValueError(text)
        return value

    return parse


def number_allowed(minimum: int, maximum: int = LONG_MAX) -> str:
    """The values that `whole_number` allows, in words."""
    return f"a whole number from {minimum} to {maximum}"


def byte_count(minimum: int, maximum: int = LONG_MAX) -> Callable[[str], int]:
    """A parser of bytes from `minimum` to `maximum`: a number, or one with k, m, g or t (powers of 1024)."""

    def parse(text: str) -> int:
        match = _SIZE.fullmatch(text.strip())
        value = int(match[1]) * _FACTORS[match[2].lower()] if match else minimum - 1
        if not minimum <= value <= maximum:
            raise ValueError(text)
        return value

    return parse


def bytes_allowed(minimum: int, maximum: int = LONG_MAX) -> str:
    """The values that `byte_count` allows, in words."""
    return f"bytes: {number_allowed(minimum, maximum)}, or one with k, m, g or t"


def one_of(*words: str) -> Callable[[str], str]:
    """A parser of one of some words."""

    def parse(text: str) -> str:
        if text.strip().lower() not in words:
            raise ValueError(text)
        return text.strip().lower()

    return parse


def boolean(text: str) -> bool:
    """Parse ``true`` or ``false``."""
    return one_of("true", "false")(text) == "true"


def offset_or_word(*words: str) -> Callable[[str], int | str]:
    """A parser of one of some words, or of a physical offset."""

    def parse(text: str) -> int | str:
        return whole_number(0)(text) if _NUMBER.fullmatch(text.strip()) else one_of(*words)(text)

    return parse


def paths(text: str) -> tuple[Path, ...]:
    """Parse one or several directories separated by commas, as in ``storePathCommitLog``."""
    found = tuple(Path(path.strip()) for path in text.split(",") if path.strip())
    if not found or "\0" in text:
        raise ValueError(text)
    return found


def _delay_levels(text: str) -> tuple[int, ...]:
    return parse_delay_levels(text.strip() or text)  # a value of only blanks is invalid; an empty one means no levels


def parse_given(specs: Iterable[Option], given: Mapping[str, str], where: str = "") -> dict[str, Any]:
    """The values of the `given` options by option name; names are compared without regard to case, as in Spark.

    Raises
    ------
    OptionError
        An option is unknown, or its value is not allowed; the message begins with `where` and says what is allowed.
    """
    by_name = {spec.name.lower(): spec for spec in specs}
    values = {}
    for name, text in given.items():
        spec = by_name.get(name.lower())
        if spec is None:
            raise OptionError(f"{where}unknown option '{shown(name)}'; {_meant(name, by_name.values())}")
        values[spec.name] = parse_value(spec, str(text), where)
    return values


def _meant(name: str, specs: Iterable[Option]) -> str:
    """Advice for an unknown option name: the options that look like it, or all of them if they are few."""
    known = sorted(spec.name for spec in specs)
    near = nearest(name, known)
    if len(name) >= _PART_MIN:
        near += [each for each in known if name.casefold() in each.casefold() and each not in near]
    if near:
        return f"did you mean {' or '.join(near[:_NEAREST_MAX])}?"
    return f"the options are {', '.join(known)}" if len(known) <= _FEW else _ALL_OPTIONS


def parse_value(spec: Option, text: str, where: str = "") -> Any:
    """The value of one option.

    Raises
    ------
    OptionError
        The value is not allowed; the message begins with `where` and says what is allowed.
    """
    try:
        return spec.parse(text)
    except ValueError:
        raise OptionError(f"{where}{spec.name}={shown(text)}: {spec.allowed} wanted") from None


_SWITCH = "true or false"
_BYTES = bytes_allowed(1)


@dataclass(frozen=True)
class LogOptions:
    """How a log is read: the options that the source and the commands have in common."""

    starting_offset: int | str = option(
        "startingOffset",
        offset_or_word(EARLIEST, LATEST),
        "earliest, latest or a physical offset",
        EARLIEST,
        "a first run takes all that the log still has",
    )
    starting_timestamp: int | None = option(
        "startingTimestamp",
        whole_number(0),
        f"milliseconds since 1970: {number_allowed(0)}, a store timestamp; replaces startingOffset",
        None,
        "unset: startingOffset decides",
    )
    max_messages_per_trigger: int | None = option(
        "maxMessagesPerTrigger",
        whole_number(1),
        number_allowed(1),
        None,
        "unset: a micro-batch takes all there is",
    )
    fail_on_data_loss: bool = option(
        "failOnDataLoss",
        boolean,
        _SWITCH,
        True,
        "records that expired unread are a loss that an operator must hear of",
    )
    check_crc: str = option(
        "checkCrc",
        one_of("tail", "all", "none"),
        "tail, all or none",
        "tail",
        "torn records are at the tail; the broker's replay checks no body at all",
    )
    on_damage: str = option(
        "onDamage",
        one_of(STOP, QUARANTINE, BROKER),
        "stop, quarantine or broker",
        STOP,
        "damage in the middle of the log ends the run: an operator must decide about missing messages; quarantine "
        "leaves out and records the damaged record alone, broker what a broker's replay leaves out",
    )
    tail_guard_ms: int = option(
        "tailGuardMs",
        whole_number(0, _GUARD_MS_MAX),
        f"milliseconds: {number_allowed(0, _GUARD_MS_MAX)}",
        500,
        "above the 200 ms in which a broker with transientStorePoolEnable completes a record",
    )
    mapped_file_size: int | None = option(
        "mappedFileSizeCommitLog",
        byte_count(1, INT_MAX),
        bytes_allowed(1, INT_MAX),
        None,
        "unset: inferred from the files and checked",
    )
    enable_dledger_commit_log: bool = option(
        "enableDLegerCommitLog",
        boolean,
        _SWITCH,
        False,
        "the broker's own switch and default; its log is in dledger-SELFID/data and has another framing",
    )
    delays_ms: tuple[int, ...] = option(
        "messageDelayLevel",
        _delay_levels,
        "delays with blanks between, each a number and s, m, h or d",
        parse_delay_levels(DEFAULT_MESSAGE_DELAY_LEVEL),
        "the broker's default levels",
    )


@dataclass(frozen=True)
class SourceOptions(LogOptions):
    """All options of the Spark source."""

    path: tuple[Path, ...] = option(
        "path", paths, "the commitlog directory, or several with commas between", (), "no default: required"
    )
    rows: str = option(
        "rows",
        one_of("messages", "ranges"),
        "messages or ranges",
        "messages",
        "messages are what a reader wants; ranges are for sinks that read the log themselves",
    )
    ending_offset: int | str = option(
        "endingOffset",
        offset_or_word(LATEST),
        "latest or a physical offset (exclusive); batch reads only",
        LATEST,
        "a batch reads to the end of the log at its start",
    )
    max_bytes_per_trigger: int | None = option(
        "maxBytesPerTrigger", byte_count(1), _BYTES, None, "unset: a micro-batch takes all there is"
    )
    max_bytes_per_partition: int = option(
        "maxBytesPerPartition",
        byte_count(1),
        _BYTES,
        64 * 1024 * 1024,
        "a task of about 0.1 s, enough of them for every core, few enough to plan",
    )
    answers_at: str | None = option(
        "answersAt",
        text,
        "a socket of `reput tail`",
        None,
        "unset: the process that Spark asks where the log ends looks itself; in reput tail its driver does",
    )
    include_body: bool = option(
        "includeBody", boolean, _SWITCH, False, "metadata is a fraction of the log; bodies are most of it"
    )

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> SourceOptions:
        """Parse Spark's options.

        Raises
        ------
        OptionError
            An option is unknown, its value is not allowed, or it excludes another one that is given.
        """
        options = filled(cls, parse_given(SOURCE_OPTIONS, given))
        if not options.path:
            raise OptionError("path is missing: the commitlog directory, or several with commas between")
        if options.include_body and options.rows == "ranges":
            raise OptionError("includeBody=true needs rows=messages: ranges have no bodies")
        if options.on_damage == BROKER and options.check_crc == "all":
            raise OptionError("onDamage=broker and checkCrc=all exclude each other: a broker's replay checks no body")
        return options


SOURCE_OPTIONS: Final = options_of(SourceOptions)
