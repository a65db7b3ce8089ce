"""`reput query`."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reput.source.errors import OptionError, SinkError
from reput.source.printable import counted
from reput.streaming.cli.app import STORE_HELP, app, run_or_fail, table_option
from reput.streaming.cli.settings import BrokerConf, ConfigFile, DLedger, Overrides, settings_of

if TYPE_CHECKING:
    from reput.streaming.config.pipeline import PipelineConfig


@app.command(
    epilog="Example: reput query --store /data/store --broker-conf /data/broker.conf --topic orders --key 123 --body, "
    "or reput query --table /data/messages --key 123"
)
def query(
    store: Annotated[Path | None, typer.Option(help=STORE_HELP, readable=False)] = None,
    table: Annotated[
        Any,
        table_option("The message table, instead of a store; it has what expired from the log, too."),
    ] = None,
    broker: Annotated[str | None, typer.Option(help="Of a table: only this broker's messages.")] = None,
    topic: Annotated[
        str | None, typer.Option(help="The topic, with all but --msg-id; a key of a table needs none.")
    ] = None,
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
    """Find messages by key, id, queue offset or time: as a broker does, or in the table; without Spark or Java."""
    from reput.streaming.query.options import QueryOptions  # noqa: PLC0415

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
        broker=broker,
    )
    if (store is None) == (table is None):
        raise OptionError("exactly one of --store and --table wanted")

    def note(text: str) -> None:
        typer.echo(f"reput: {text}", err=True)

    def in_table() -> int:
        # Without the modules of the other look-up, which take half a second.
        from reput.streaming.query.table_query import run_table_query  # noqa: PLC0415

        given = {"--output": output, "--broker-conf": broker_conf, "--config": config, "--option": option}
        if foreign := [name for name, value in given.items() if value] + ["--dledger"] * dledger:
            raise OptionError(f"--table does not go with {', '.join(foreign)}")
        assert table is not None
        found = run_table_query(options, table, output_format=output_format, with_body=body, out=sys.stdout, note=note)
        if not found:
            check_names()
        return found

    def in_store() -> int:
        from reput.streaming.config.stored_sizes import Kind, read_by_files  # noqa: PLC0415
        from reput.streaming.query.query import run_query  # noqa: PLC0415

        assert store is not None
        settings = settings_of(store, config, broker_conf, option, dledger=dledger, output=output, only_reads=True)
        settings = read_by_files(settings, output or store, (Kind.SEGMENT, Kind.INDEX))
        try:
            shown = partial(run_query, output_format=output_format, with_body=body, out=sys.stdout, note=note)
            found = shown(options, settings, output=output)
        except SinkError as error:
            if error.file is not None and not Path(error.file).exists():  # there is no such queue
                check_names(settings)
            raise
        if not found:
            check_names(settings)
        return found

    def check_names(settings: PipelineConfig | None = None) -> None:
        """Raise UnknownNameError if nothing can be found because a name is a typo."""
        from reput.streaming.ask.known_names import BROKER, QUEUE, TOPIC, known_names  # noqa: PLC0415

        given = {BROKER: broker, TOPIC: topic, QUEUE: queue_id}
        known_names(table, settings, output=output).check(given)

    def run() -> None:
        found = in_store() if table is None else in_table()
        typer.echo(f"reput: {counted(found, 'message')} found", err=True)

    run_or_fail(run)
