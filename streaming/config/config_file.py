"""Reading the files that configure reput."""

from __future__ import annotations

import sys
from pathlib import Path

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


def read_toml(path: Path) -> dict[str, str]:
    """The options of a file such as ``conf/reput.toml``, as text.

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
    found: dict[str, str] = {}
    for name, value in table.items():
        if name.lower() in map(str.lower, found):
            msg = f"{path}: {shown(name)} is there twice; case does not tell options apart"
            raise OptionError(msg)
        found[name] = _text(path, name, value)
    return found


def _text(path: Path, name: str, value: object) -> str:
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
    msg = f"{path}: {shown(name)} is {what}; text, a whole number, true or false wanted"
    raise OptionError(msg)
