"""The command `reput query`: its options, the look-up they ask for, and its output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TextIO

from reput.source.errors import OptionError
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.query.output import FORMATS, lines, parse_time
from reput.streaming.query.store_lookup import (
    DEFAULT_QUERY_MAX_NUM,
    LONG_MAX,
    MAX_MSGS_NUM_BATCH,
    Answer,
    StoreLookup,
)

# The options that name what is looked for, each with those that it needs, then with those that it allows.
_QUEUE = {"topic", "queue_id"}
_WANTED = {
    "key": {"topic"},
    "unique_key": {"topic"},
    "msg_id": set[str](),
    "queue_offset": _QUEUE,
    "time": _QUEUE,
}
_ALLOWED = {
    "key": {"begin", "end", "max_num"},
    "unique_key": {"begin", "end", "max_num"},
    "msg_id": set[str](),
    "queue_offset": {"count"},
    "time": {"count"},
}


@dataclass(frozen=True)
class QueryOptions:
    """What is looked for, as given on the command line; None means not given."""

    topic: str | None = None
    key: str | None = None
    unique_key: str | None = None
    msg_id: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    time: str | None = None
    count: int | None = None
    begin: str | None = None
    end: str | None = None
    max_num: int | None = None

    def kind(self) -> str:
        """The option of `_WANTED` that is given.

        Raises
        ------
        OptionError
            None or several are given, an option that it needs is missing, or one is given that it does not allow.
        """
        given = {field.name for field in fields(self) if getattr(self, field.name) is not None}
        wanted = [name for name in _WANTED if name in given]
        if len(wanted) != 1:
            found = ", ".join(map(_flag, wanted)) or "none"
            raise OptionError(f"exactly one of {', '.join(map(_flag, _WANTED))} wanted, found {found}")
        kind = wanted[0]
        if missing := sorted(_WANTED[kind] - given):
            raise OptionError(f"{_flag(kind)} needs {' and '.join(map(_flag, missing))}")
        if foreign := sorted(given - {kind} - _WANTED[kind] - _ALLOWED[kind]):
            raise OptionError(f"{_flag(kind)} does not go with {', '.join(map(_flag, foreign))}")
        return kind


def _flag(name: str) -> str:
    return "--max" if name == "max_num" else f"--{name.replace('_', '-')}"


def run_query(
    options: QueryOptions,
    config: PipelineConfig,
    *,
    output: Path | None = None,
    output_format: str = "table",
    with_body: bool = False,
    out: TextIO,
    note: Callable[[str], object],
) -> int:
    """Look up, write the messages to `out` and pass notes on what was skipped to `note`; return how many were found.

    Raises
    ------
    OptionError
        The options do not go together, or one has a value that it does not allow.
    ReputError
        What was asked for does not exist, or a file cannot be read; see `StoreLookup`.
    """
    if output_format not in FORMATS:
        raise OptionError(f"--format {output_format}: one of {', '.join(FORMATS)} wanted")
    ask = _question(options)
    answer = ask(StoreLookup(config, output))
    out.writelines(f"{line}\n" for line in lines(answer.found, output_format, with_body=with_body))
    for text in answer.notes:
        note(text)
    return len(answer.found)


def _question(options: QueryOptions) -> Callable[[StoreLookup], Answer]:
    """The look-up that the options ask for; all options are checked."""
    kind, count = options.kind(), 1 if options.count is None else options.count
    topic, queue_id = options.topic or "", options.queue_id or 0
    if kind == "msg_id":
        msg_id = options.msg_id or ""
        return lambda store: store.by_msg_id(msg_id)
    if kind == "queue_offset":
        queue_offset = options.queue_offset or 0
        return lambda store: store.by_queue_offset(topic, queue_id, queue_offset, count)
    if kind == "time":
        timestamp = parse_time(options.time or "")
        return lambda store: store.by_time(topic, queue_id, timestamp, count)
    begin = 0 if options.begin is None else parse_time(options.begin)
    end = LONG_MAX if options.end is None else parse_time(options.end)
    if kind == "key":
        key, max_num = options.key or "", options.max_num or MAX_MSGS_NUM_BATCH
        return lambda store: store.by_key(topic, key, begin=begin, end=end, max_num=max_num)
    key, max_num = options.unique_key or "", options.max_num or DEFAULT_QUERY_MAX_NUM
    return lambda store: store.by_unique_key(topic, key, begin=begin, end=end, max_num=max_num)
