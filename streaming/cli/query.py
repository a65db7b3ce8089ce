"""`reput query`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from reput.streaming.cli.app import Store, app, run_or_fail
from reput.streaming.cli.settings import BrokerConf, ConfigFile, DLedger, Overrides, settings_of


@app.command(
    epilog="Example: reput query --store /data/store --broker-conf /data/broker.conf --topic orders --key 123 --body"
)
def query(
    store: Store,
    topic: Annotated[str | None, typer.Option(help="The topic, with all but --msg-id.")] = None,
    key: Annotated[str | None, typer.Option(help="A key of the message.")] = None,
    unique_key: Annotated[str | None, typer.Option(help="The id that the client gave (UNIQ_KEY).")] = None,
    msg_id: Annotated[str | None, typer.Option(help="The offset message id that the broker gave.")] = None,
    queue_id: Annotated[int | None, typer.Option(min=0, help="The queue, with the next two.")] = None,
    queue_offset: Annotated[int | None, typer.Option(min=0, help="An offset in the queue.")] = None,
    time: Annotated[
        str | None,
        typer.Option(
            help="The first entry stored then or later (5.x's rule; 4.9.3 goes by file times and takes the nearest): "
            "milliseconds, or 2026-01-31T12:00:00Z."
        ),
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, help="Entries from there on. [default: 1]")] = None,
    begin: Annotated[str | None, typer.Option(help="Of a key: stored at this time or later.")] = None,
    end: Annotated[str | None, typer.Option(help="Of a key: stored at this time or earlier.")] = None,
    max_num: Annotated[
        int | None,
        typer.Option(
            "--max", min=1, help="Of a key: index entries, newest first. [default: a broker's limit, 64; unique: 32]"
        ),
    ] = None,
    body: Annotated[bool, typer.Option("--body", help="Show bodies too, decompressed; base64 if not UTF-8.")] = False,
    output_format: Annotated[str, typer.Option("--format", help="table or json (a line a message).")] = "table",
    output: Annotated[
        Path | None, typer.Option(help="Holds consumequeue/ and index/, if not the store itself.")
    ] = None,
    broker_conf: BrokerConf = None,
    dledger: DLedger = False,
    config: ConfigFile = None,
    option: Overrides = None,
) -> None:
    """Find messages as a broker does, by key, id, queue offset or time, without broker, Spark or Java."""
    from reput.streaming.query.query import QueryOptions, run_query  # noqa: PLC0415

    options = QueryOptions(
        topic=topic,
        key=key,
        unique_key=unique_key,
        msg_id=msg_id,
        queue_id=queue_id,
        queue_offset=queue_offset,
        time=time,
        count=count,
        begin=begin,
        end=end,
        max_num=max_num,
    )

    def run() -> None:
        settings = settings_of(store, config, broker_conf, option, dledger=dledger, output=output, only_reads=True)
        found = run_query(
            options,
            settings,
            output=output,
            output_format=output_format,
            with_body=body,
            out=sys.stdout,
            note=lambda text: typer.echo(f"reput: {text}", err=True),
        )
        typer.echo(f"reput: {found} message{'' if found == 1 else 's'} found", err=True)

    run_or_fail(run)
