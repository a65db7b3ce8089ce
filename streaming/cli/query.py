"""`reput query`."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from reput.source.errors import OptionError, SinkError
from reput.source.printable import counted
from reput.streaming.cli.app import app
from reput.streaming.cli.options import Json, LogConfig, Period, QueuesIfGiven, StoreIfGiven, table_option


@app.command(
    epilog="Example: reput query --store /data/store --broker-conf /data/broker.conf --topic orders --key 123 --body, "
    "or reput query --table /data/messages --key 123",
    old_names={"--unique-key": "--uniq-key", "--begin": "--since", "--max": "--limit", "--count": "--limit"},
)
def query(
    period: Period,
    settings: LogConfig,
    store: StoreIfGiven = None,
    table: Annotated[
        Any,
        table_option("Search the message table instead of a store. It also has messages that expired from the log."),
    ] = None,
    broker: Annotated[str | None, typer.Option(help="Only this broker's messages; with --table.")] = None,
    topic: Annotated[
        str | None,
        typer.Option(help="The topic. --msg-id needs none; with --table, --key and --uniq-key need none."),
    ] = None,
    key: Annotated[str | None, typer.Option(help="A key of the message.")] = None,
    uniq_key: Annotated[str | None, typer.Option(help="The id that the client gave (UNIQ_KEY).")] = None,
    msg_id: Annotated[str | None, typer.Option(help="The offset message id that the broker gave.")] = None,
    queue_id: Annotated[int | None, typer.Option(min=0, help="The queue; with --queue-offset or --time.")] = None,
    queue_offset: Annotated[int | None, typer.Option(min=0, help="An offset in the queue.")] = None,
    time: Annotated[
        str | None,
        typer.Option(
            help="Find the queue's first entry stored then or later: 2026-01-31T12:00:00Z or milliseconds. "
            "This is 5.x's rule; 4.9.3 looks at the times of files and takes the nearest entry."
        ),
    ] = None,
    end: Annotated[str | None, typer.Option(hidden=True)] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Read at most this many entries of the queue, or of the index, newest first. [default: 1 of a queue; "
            "of a key a broker's limit, 64; of a unique key 32]",
        ),
    ] = None,
    body: Annotated[bool, typer.Option("--body", help="Also print bodies, decompressed; base64 if not UTF-8.")] = False,
    output_format: Annotated[str, typer.Option("--format", hidden=True, help="table or json.")] = "table",
    as_json: Json = False,
    output: QueuesIfGiven = None,
) -> None:
    """Find messages by key, id, queue offset or time.

    A store is searched as a broker searches it. Neither a store nor a table needs Spark or Java.
    """
    from reput.streaming.query.options import QueryOptions  # noqa: PLC0415

    options = QueryOptions(
        topic=topic,
        key=key,
        uniq_key=uniq_key,
        msg_id=msg_id,
        queue_id=queue_id,
        queue_offset=queue_offset,
        time=time,
        since=period.since,
        until=period.until,
        end=end,
        limit=limit,
        broker=broker,
    )
    if (store is None) == (table is None):
        raise OptionError("exactly one of --store and --table wanted")
    shown: dict[str, Any] = {
        "output_format": "json" if as_json else output_format,
        "with_body": body,
        "out": sys.stdout,
        "note": lambda text: typer.echo(f"reput: {text}", err=True),
    }

    def check_names(config: Any = None) -> None:
        """Raise UnknownNameError if nothing can be found because a name is a typo."""
        from reput.streaming.ask.known_names import BROKER, QUEUE, TOPIC, known_names  # noqa: PLC0415

        known_names(table, config, output=output).check({BROKER: broker, TOPIC: topic, QUEUE: queue_id})

    if store is None:
        # Without the modules of the other look-up, which take half a second.
        from reput.streaming.query.table_query import run_table_query  # noqa: PLC0415

        if foreign := ["--output"] * (output is not None) + settings.flags:
            raise OptionError(f"--table does not go with {', '.join(foreign)}")
        found = run_table_query(options, table, **shown)
    else:
        from reput.streaming.config.stored_sizes import Kind, read_by_files  # noqa: PLC0415
        from reput.streaming.query.query import run_query  # noqa: PLC0415

        config = settings.load(store, output=output, only_reads=True)
        config = read_by_files(config, output or store, (Kind.SEGMENT, Kind.INDEX))
        check_names = partial(check_names, config)
        try:
            found = run_query(options, config, output=output, **shown)
        except SinkError as error:
            if error.file is not None and not Path(error.file).exists():  # there is no such queue
                check_names()
            raise
    if not found:
        check_names()
    typer.echo(f"reput: {counted(found, 'message')} found", err=True)
