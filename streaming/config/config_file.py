"""The file of ``--config``: its options, and a section ``[[broker]]`` for each of several brokers.

A section has the places of its broker's store and output, and options of its own, but none that apply to the whole
process.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from reput.source.errors import OptionError
from reput.source.options import parse_given, shown
from reput.streaming.config.run_options import OF_PROCESS
from reput.streaming.config.settings import PIPELINE_OPTIONS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# Real files have a few kilobytes.
_BYTES_MAX = 1024 * 1024


def read_config_file(path: Path, what: str) -> bytes:
    """Return the bytes of a configuration file, or of a pipe.

    Raises
    ------
    OptionError
        The file cannot be read, or is too large for a configuration.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        msg = f"cannot read {what} {path}: {why}"
        raise OptionError(msg) from error
    if len(data) > _BYTES_MAX:
        msg = f"cannot read {what} {path}: it has more than {_BYTES_MAX} bytes; is it another file?"
        raise OptionError(msg)
    return data


#: The name of the tables ``[[broker]]``; without such tables, it is the name of an option.
BROKER = "broker"


def read_toml(path: Path) -> tuple[dict[str, str], list[dict[str, str]]]:
    """Return the texts in a file such as ``conf/reput.toml``: its options, and those of each ``[[broker]]``.

    Raises
    ------
    OptionError
        The file cannot be read, is not TOML in UTF-8, or has an option twice or with a value that is not a text, number
        or switch.
    """
    data = read_config_file(path, "the configuration")
    try:
        table = tomllib.loads(data.decode("utf-8").removeprefix("\ufeff"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        msg = f"cannot read the configuration {path}: line {line} is not UTF-8 (byte {data[error.start]:#04x})"
        raise OptionError(msg) from error
    except (ValueError, RecursionError) as error:
        msg = f"cannot read the configuration {path}: {shown(str(error) or 'it is nested too deeply', 200)}"
        raise OptionError(msg) from error
    sections = table.get(BROKER)
    if not isinstance(sections, list) or not all(isinstance(each, dict) for each in sections):
        return _texts(str(path), table), []
    del table[BROKER]
    brokers = [_texts(section_name(path, number), each) for number, each in enumerate(sections, 1)]
    return _texts(str(path), table), brokers


def section_name(path: Path, number: int) -> str:
    """Return the words for the ``[[broker]]`` of that number, counted from 1, in an error."""
    return f"{path}: [[{BROKER}]] {number}"


def _texts(where: str, table: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in table.items():
        if name.lower() in map(str.lower, found):
            msg = f"{where}: {shown(name)} is given twice; upper and lower case make no difference"
            raise OptionError(msg)
        found[name] = _text(where, name, value)
    return found


def _text(where: str, name: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        try:
            return str(value)
        except ValueError:  # Python's limit on digits
            pass
    kind = {dict: "a table", list: "an array", float: "a number with a fraction", int: "too large a number"}
    what = kind.get(type(value), "a date or time")
    msg = f"{where}: {shown(name)} is {what}; text, a whole number, true or false wanted"
    raise OptionError(msg)


_STORE, _OUTPUT, _BROKER_CONF, _CHECKPOINT = "store", "output", "brokerConf", "checkpoint"
#: The settings of a section that are not options.
PATHS: Final = (_STORE, _OUTPUT, _BROKER_CONF, _CHECKPOINT)
_REQUIRED: Final = (_STORE, _OUTPUT)


@dataclass(frozen=True)
class BrokerSection:
    """One ``[[broker]]``; all paths are absolute.

    Attributes
    ----------
    file, number
        The file, and the number of this section in it, counted from 1.
    store, output, broker_conf, checkpoint
        The values of ``--store``, ``--output``, ``--broker-conf`` and ``--checkpoint`` in the command of one broker.
    options
        Values by name of the section's own options.
    """

    file: Path
    number: int
    store: Path
    output: Path
    broker_conf: Path | None
    checkpoint: Path | None
    options: Mapping[str, Any]

    @property
    def where(self) -> str:
        """The words for this section in an error."""
        return section_name(self.file, self.number)


@dataclass(frozen=True)
class Configuration:
    """A configuration file: values of options by name, and the brokers' sections. There may be no file."""

    path: Path | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    sections: tuple[BrokerSection, ...] = ()

    @classmethod
    def read(cls, path: Path | None) -> Configuration:
        """Read a file.

        Raises
        ------
        OptionError
            It cannot be read, an option is unknown or its value not allowed, a section lacks its store or output or has
            an option of the whole process, or two sections share a path.
        """
        if path is None:
            return cls()
        options, sections = read_toml(path)
        found = tuple(_section(path, number, each) for number, each in enumerate(sections, 1))
        _check_distinct(found)
        return cls(path, parse_given(PIPELINE_OPTIONS, options, f"{path}: "), found)

    def section_of(self, store: Path) -> BrokerSection | None:
        """Return the section of the broker with that store; None if the file has no sections.

        Raises
        ------
        OptionError
            It has sections, but none with that store.
        """
        if not self.sections:
            return None
        for each in self.sections:
            if each.store.resolve() == store.resolve():
                return each
        raise OptionError(
            f"{self.path}: no [[{BROKER}]] has the store {store}",
            advice="give the --store of one of them, or a file without sections",
        )


def check_names(sections: Sequence[tuple[BrokerSection, str]]) -> None:
    """Raise OptionError if two sections belong to brokers of the same name; each section comes with that name."""
    named: dict[str, BrokerSection] = {}
    for section, name in sections:
        other = named.setdefault(name, section)
        if other is not section:
            raise OptionError(
                f"{section.where}: its broker is called {shown(name)}, as that of section {other.number}",
                advice=f"give each a name of its own: {BROKER} = NAME in its section",
            )


def _section(file: Path, number: int, given: Mapping[str, str]) -> BrokerSection:
    where = section_name(file, number)
    paths: dict[str, Path] = {}
    options: dict[str, str] = {}
    by_lower = {name.lower(): name for name in PATHS}
    for name, text in given.items():
        if name.lower() in by_lower:
            paths[by_lower[name.lower()]] = _path(where, name, text)
        else:
            options[name] = text
    for name in _REQUIRED:
        if name not in paths:
            raise OptionError(f"{where}: {name} is missing")
    values = parse_given(PIPELINE_OPTIONS, options, f"{where}: ")
    for name in values:
        if name in OF_PROCESS:
            raise OptionError(
                f"{where}: {name} is one for all brokers of a process",
                advice=f"give it above the first [[{BROKER}]], or on the command line",
            )
    return BrokerSection(
        *(file, number, paths[_STORE], paths[_OUTPUT], paths.get(_BROKER_CONF), paths.get(_CHECKPOINT)), options=values
    )


def _path(where: str, name: str, text: str) -> Path:
    path = Path(text.strip())
    if not path.is_absolute() or "\0" in text:
        raise OptionError(f"{where}: {name}={shown(text)}: an absolute path wanted")
    return path


def _check_distinct(sections: Sequence[BrokerSection]) -> None:
    """Raise OptionError if two sections have the same store, or if one writes where another one works."""
    for one, other in itertools.combinations(sections, 2):
        if one.store.resolve() == other.store.resolve():
            raise OptionError(f"{other.where}: its {_STORE} {other.store} is that of section {one.number}")
    for one, other in itertools.permutations(sections, 2):
        for name, path in _written(one):
            for other_name, taken in ((_STORE, other.store), *_written(other)):
                if path.resolve() == taken.resolve():
                    raise OptionError(f"{one.where}: its {name} {path} is the {other_name} of section {other.number}")
                if taken.resolve() in path.resolve().parents:
                    raise OptionError(
                        f"{one.where}: its {name} {path} is inside the {other_name} of section {other.number}"
                    )


def _written(section: BrokerSection) -> Iterator[tuple[str, Path]]:
    yield _OUTPUT, section.output
    if section.checkpoint is not None:
        yield _CHECKPOINT, section.checkpoint
