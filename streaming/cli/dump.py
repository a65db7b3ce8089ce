"""`reput dump`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from reput.source.errors import OptionError
from reput.streaming.cli.app import STORE_HELP, app, run_or_fail, set_up_logging
from reput.streaming.cli.settings import BrokerConf, ConfigFile, DLedger, Overrides, overrides_of, settings_of


@app.command(
    epilog="Example: reput dump --store /data/store --broker-conf /data/broker.conf --topic orders --limit 20, or "
    "reput dump --file /data/store/consumequeue/orders/0/00000000000000000000 --json"
)
def dump(
    store: Annotated[Path | None, typer.Option(help=f"{STORE_HELP} Its log is shown.", readable=False)] = None,
    file: Annotated[
        Path | None,
        typer.Option(help="One file instead: of the log, a queue, its ext or batch files, the index; the checkpoint."),
    ] = None,
    file_kind: Annotated[
        str | None,
        typer.Option(help="What --file is, if its path does not say so: the directory it was in, such as index."),
    ] = None,
    begin: Annotated[int | None, typer.Option("--from", min=0, help="From this physical offset on.")] = None,
    end: Annotated[int | None, typer.Option("--to", min=0, help="Up to this physical offset, exclusive.")] = None,
    topic: Annotated[str | None, typer.Option(help="Only this topic's records.")] = None,
    queue_id: Annotated[int | None, typer.Option(min=0, help="Only records of queues with this number.")] = None,
    key: Annotated[str | None, typer.Option(help="Only records with this key, or with this unique key.")] = None,
    since: Annotated[
        str | None, typer.Option(help="Stored at this time or later: milliseconds, or 2026-01-31T12:00:00Z.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Stored before this time.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many records or entries.")] = None,
    properties: Annotated[bool, typer.Option("--properties", help="Show all properties, too.")] = False,
    body: Annotated[
        str | None, typer.Option(help="Show bodies, too: as text, decompressed, or as hex, as stored.")
    ] = None,
    body_bytes: Annotated[int, typer.Option(min=1, max=1 << 20, help="Of each body at most so many bytes.")] = 256,
    broker_conf: BrokerConf = None,
    dledger: DLedger = False,
    config: ConfigFile = None,
    option: Overrides = None,
    as_json: Annotated[bool, typer.Option("--json", help="A line of JSON each, the totals last.")] = False,
) -> None:
    """Show the records of a log, or what stands in one file of a store, a line each; totals at the end."""
    from reput.streaming.config.stored_sizes import Kind, read_by_files  # noqa: PLC0415
    from reput.streaming.dump.dump import DumpRequest, Streams, dump_file, dump_store  # noqa: PLC0415
    from reput.streaming.dump.record_rows import Selection, Shown  # noqa: PLC0415
    from reput.streaming.dump.store_file import kind_named  # noqa: PLC0415
    from reput.streaming.query.lines import check_period, parse_time  # noqa: PLC0415

    set_up_logging()
    if (store is None) == (file is None):
        raise OptionError("exactly one of --store and --file wanted")
    if store is not None and file_kind is not None:
        raise OptionError("--file-kind goes with --file")

    def note(text: str) -> None:
        typer.echo(f"reput: {text}", err=True)

    times = [None if text is None else parse_time(text) for text in (since, until)]
    check_period("--since", times[0], "--until", times[1])
    request = DumpRequest(
        begin,
        end,
        Selection(topic, queue_id, key, *times),
        Shown(properties=properties, body=body, body_bytes_max=body_bytes),
        limit,
        as_json,
    )

    def run() -> None:
        streams = Streams(sys.stdout, note)
        if store is not None:
            settings = settings_of(store, config, broker_conf, option, dledger=dledger, only_reads=True)
            settings = read_by_files(settings, store, (Kind.SEGMENT,))
            if not dump_store(settings, request, streams) and topic is not None:
                from reput.streaming.ask.known_names import QUEUE, TOPIC, known_names  # noqa: PLC0415

                known_names(config=settings).check({TOPIC: topic, QUEUE: queue_id})
            return
        from reput.streaming.config.pipeline import load_file_options  # noqa: PLC0415

        assert file is not None
        of_file = load_file_options(config, broker_conf, overrides_of(option, dledger=dledger))
        dump_file(file, kind_named(file_kind), of_file, request, streams)

    run_or_fail(run)
