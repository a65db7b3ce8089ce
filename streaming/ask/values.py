"""The values of a question's parameters: parsed from texts, and written into the statement as literals.

A literal of a text stays one literal whatever the text contains: quotes, backslashes, line ends.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Final, TypeAlias

import pyarrow as pa

from reput.source.errors import OptionError
from reput.source.printable import printable
from reput.source.times import time_of
from reput.streaming.ask.question import Parameter, Question
from reput.streaming.query.options import check_period, parse_time
from reput.streaming.sql.output import Relations

Value: TypeAlias = str | int | datetime | None

# The parameters that bound a period, in every question that has them.
_SINCE: Final = "since"
_UNTIL: Final = "until"
_NOW: Final = "now"
_WITH: Final = "WITH "
_AGO: Final = re.compile(r"([0-9]{1,9})([smhd])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_INTEGER: Final = re.compile(r"-?[0-9]{1,18}")
# Both engines have these names.
_TYPES: Final = {"text": "STRING", "integer": "BIGINT", "time": "TIMESTAMP"}
# Characters that must be escaped in Spark's literals, where a backslash begins an escape.
_SPARK_ESCAPED: Final = re.compile(r"['\\\x00-\x1f\x7f]")


def values_of(question: Question, given: Mapping[str, str | None], clock: Callable[[], datetime]) -> dict[str, Value]:
    """Return the value of each parameter of `question`; None if it is not given, or NULL.

    `clock` returns the present time, with its zone.

    Raises
    ------
    OptionError
        A text is not a value of its parameter's type, a required parameter is not given, or ``until`` is before
        ``since``.
    """
    now = clock()
    found: dict[str, Value] = {}
    for parameter in question.parameters:
        text = given.get(parameter.name)
        text = parameter.default if text is None else text
        if text is None and parameter.is_required:
            raise OptionError(f"{question.name} needs {flag(parameter)}: {parameter.meaning}")
        found[parameter.name] = None if text is None else _value(parameter, text, now)
    since, until = found.get(_SINCE), found.get(_UNTIL)
    if isinstance(since, datetime) and isinstance(until, datetime):
        check_period(f"--{_SINCE}", since, f"--{_UNTIL}", until)
    return found


def flag(parameter: Parameter) -> str:
    """Return the command-line option of a parameter."""
    return f"--{parameter.name.replace('_', '-')}"


def _value(parameter: Parameter, text: str, now: datetime) -> Value:
    if parameter.kind == "integer":
        if _INTEGER.fullmatch(text) is None:
            raise OptionError(f"{flag(parameter)} {printable(text)}: a whole number wanted")
        return int(text)
    if parameter.kind == "time":
        return _time(flag(parameter), text, now)
    if "\0" in text or not _is_unicode(text):
        raise OptionError(f"{flag(parameter)} {printable(text)!r}: no text that a message can have")
    return text


def _time(name: str, text: str, now: datetime) -> datetime:
    """Parse a moment: a time as in ``parse_time``, ``now``, or a duration before now, such as ``2h``."""
    ago = _AGO.fullmatch(text)
    try:
        if text == _NOW:
            return now
        if ago is not None:
            return now - timedelta(seconds=int(ago.group(1)) * _SECONDS[ago.group(2)])
        return time_of(parse_time(text))
    except OverflowError:
        raise OptionError(f"{name} {printable(text)}: no time of the years 1 to 9999") from None
    except OptionError as error:
        raise OptionError(f"{name}: {error}, or how long ago, such as 30m, 2h or 7d") from None


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def literal(kind: str, value: Value, *, for_spark: bool) -> str:
    """Return `value` of type `kind` as a literal of Spark or DuckDB."""
    if value is None:
        return f"CAST(NULL AS {_TYPES[kind]})"
    if isinstance(value, datetime):
        utc = value.astimezone(timezone.utc).replace(tzinfo=None)
        return f"TIMESTAMP '{utc.isoformat(sep=' ', timespec='milliseconds')}'"
    if isinstance(value, int):
        return f"CAST({value} AS BIGINT)"
    return "'" + (_SPARK_ESCAPED.sub(_escape, value) if for_spark else value.replace("'", "''")) + "'"


def _escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found.group()):04x}"


def statement_of(question: Question, values: Mapping[str, Value], *, for_spark: bool) -> str:
    """Return the question's file with its values as literals, for Spark or DuckDB."""
    kinds = {parameter.name: parameter.kind for parameter in question.parameters}
    literals = {name: literal(kinds[name], value, for_spark=for_spark) for name, value in values.items()}
    return question.with_values(literals)


def with_relations(statement: str, relations: Relations, *, for_spark: bool) -> str:
    """Return a question's statement with the relations that it reads written into it, as queries of its WITH."""
    if not relations:
        return statement
    queries = ", ".join(_query_of(name, rows, for_spark=for_spark) for name, rows in relations.items())
    header = re.match(r"(?:--.*\n)*", statement)
    assert header is not None
    rest = statement[header.end() :]
    rest = f", {rest.removeprefix(_WITH)}" if rest.startswith(_WITH) else f"\n{rest}"
    return f"{header.group()}{_WITH}{queries}{rest}"


def _query_of(name: str, rows: pa.Table, *, for_spark: bool) -> str:
    kinds = [_kind_of(each.type) for each in rows.schema]
    columns = f"{name}({', '.join(rows.schema.names)})"
    if not rows.num_rows:
        nulls = ", ".join(literal(kind, None, for_spark=for_spark) for kind in kinds)
        return f"{columns} AS (SELECT {nulls} WHERE false)"
    values = (
        ", ".join(literal(kind, value, for_spark=for_spark) for kind, value in zip(kinds, row, strict=True))
        for row in zip(*rows.to_pydict().values(), strict=True)
    )
    lines = ",\n".join(f"  ({each})" for each in values)
    return f"{columns} AS (VALUES\n{lines}\n)"


def _kind_of(kind: pa.DataType) -> str:
    return "text" if pa.types.is_string(kind) else "time" if pa.types.is_timestamp(kind) else "integer"
