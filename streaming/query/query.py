"""The command `reput query --store`: a look-up in a store, and its output."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.process.terminal import terminal_width
from reput.streaming.query.lines import check_format, lines, parse_time
from reput.streaming.query.message_row import message_row
from reput.streaming.query.options import QueryOptions
from reput.streaming.query.store_lookup import LONG_MAX, LONG_MIN, Answer, StoreLookup


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
    check_format(output_format)
    ask = _question(options)
    lookup = StoreLookup(config, output)
    answer = ask(lookup)
    if not answer.found:
        for other in options.in_other_cases():
            if (found := _question(other)(lookup)).found:
                answer = found
                answer.notes.append(f"the unique key is {other.uniq_key}, in other cases than were given")
                break
    rows = [message_row(one, with_body=with_body) for one in answer.found]
    out.writelines(f"{line}\n" for line in lines(rows, output_format, terminal_width(out)))
    for text in answer.notes:
        note(text)
    return len(answer.found)


def _question(options: QueryOptions) -> Callable[[StoreLookup], Answer]:
    """The look-up that the options ask for; all options are checked."""
    kind, count = options.kind(), options.entries
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
    since, last = options.period
    begin, end = LONG_MIN if since is None else since, LONG_MAX if last is None else last
    if kind == "key":
        key = options.key or ""
        return lambda store: store.by_key(topic, key, begin=begin, end=end, max_num=options.most)
    key = options.uniq_key or ""
    return lambda store: store.by_unique_key(topic, key, begin=begin, end=end, max_num=options.most)
