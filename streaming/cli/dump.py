"""`reput dump`."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from reput.source.errors import OptionError
from reput.streaming.cli.app import app, set_up_logging
from reput.streaming.cli.log_lines import write_error
from reput.streaming.cli.options import Json, LogConfig, Offsets, Period, StoreIfGiven, one_of
from reput.streaming.process.terminal import working


@app.command(
    epilog="Example: reput dump --store /data/store --broker-conf /data/broker.conf --topic orders --limit 20, or "
    "reput dump --file /data/store/consumequeue/orders/0/00000000000000000000 --json"
)
def dump(
    offsets: Offsets,
    period: Period,
    settings: LogConfig,
    store: StoreIfGiven = None,
    file: Annotated[
        Path | None,
        typer.Option(
            help="Print this file instead: of the log, a queue, its ext or batch files, the index, or the checkpoint."
        ),
    ] = None,
    file_kind: Annotated[
        str | None,
        typer.Option(
            help="The kind of --file, if its path does not say it: the directory that the file was in, such as index."
        ),
    ] = None,
    topic: Annotated[str | None, typer.Option(help="Only this topic's records.")] = None,
    queue_id: Annotated[int | None, typer.Option(min=0, help="Only records of queues with this number.")] = None,
    key: Annotated[str | None, typer.Option(help="Only records with this key, or with this unique key.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Print at most this many records or entries.")] = None,
    properties: Annotated[bool, typer.Option("--properties", help="Also print all properties.")] = False,
    body: Annotated[
        str | None,
        typer.Option(
            autocompletion=one_of("text", "hex"), help="Also print bodies: text (decompressed) or hex (as stored)."
        ),
    ] = None,
    body_bytes: Annotated[int, typer.Option(min=1, max=1 << 20, help="Print at most this many bytes of a body.")] = 256,
    as_json: Json = False,
) -> None:
    """Print the records of a log, or the content of one file.

    There is one line for each record or entry, and totals at the end.
    """
    from reput.streaming.config.stored_sizes import Kind, read_by_files  # noqa: PLC0415
    from reput.streaming.dump.dump import DumpRequest, Streams, dump_file, dump_store  # noqa: PLC0415
    from reput.streaming.dump.log_dump import (  # noqa: PLC0415
        RecordSelection,
        Shown,
    )
    from reput.streaming.dump.store_file import kind_named  # noqa: PLC0415

    set_up_logging()
    if (store is None) == (file is None):
        raise OptionError("exactly one of --store and --file wanted")
    if store is not None and file_kind is not None:
        raise OptionError("--file-kind goes with --file")
    shown = Shown(properties=properties, body=body, body_bytes_max=body_bytes)
    request = DumpRequest(
        offsets.begin, offsets.end, RecordSelection(topic, queue_id, key, *period.bounds), shown, limit, as_json
    )
    streams = Streams(sys.stdout, lambda text: write_error(f"reput: {text}"))
    line = nullcontext() if sys.stdout.isatty() else working("dumping")
    if file is not None:
        from reput.streaming.config.pipeline import load_file_options  # noqa: PLC0415

        options = load_file_options(settings.config, settings.broker_conf, settings.overrides())
        with line:
            dump_file(file, kind_named(file_kind), options, request, streams)
        return
    assert store is not None
    config = read_by_files(settings.load(store, only_reads=True), store, (Kind.SEGMENT,))
    with line:
        found = dump_store(config, request, streams)
    if not found and topic is not None:
        from reput.streaming.ask.known_names import QUEUE, TOPIC, known_names  # noqa: PLC0415

        known_names(config=config).check({TOPIC: topic, QUEUE: queue_id})
