"""Reading the files that configure reput."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reput.source.errors import OptionError
from reput.source.options import shown

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# Real files have some kilobytes.
_BYTES_MAX = 1024 * 1024


def read_config_file(path: Path, what: str) -> bytes:
    """The bytes of a configuration file, or of a pipe.

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


#: The name of the tables ``[[broker]]``, one for each of several brokers; in other files it is that of an option.
BROKER = "broker"


def read_toml(path: Path) -> tuple[dict[str, str], list[dict[str, str]]]:
    """What a file such as ``conf/reput.toml`` says, as text: its options, and what each ``[[broker]]`` has.

    Raises
    ------
    OptionError
        The file cannot be read, is not TOML in UTF-8, or has an option twice or one that is no text, number or switch.
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
    """What an error calls the ``[[broker]]`` of that number, counted from 1."""
    return f"{path}: [[{BROKER}]] {number}"


def _texts(where: str, table: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in table.items():
        if name.lower() in map(str.lower, found):
            msg = f"{where}: {shown(name)} is there twice; case does not tell options apart"
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
