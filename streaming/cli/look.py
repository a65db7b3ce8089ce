"""The commands that look into a store, an output or a table: `query`, `dump`, `quarantine`, `offsets` and `report`."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from reput.source.errors import OptionError, SinkError
from reput.source.printable import counted, printable
from reput.streaming.cli.app import app, set_up_logging
from reput.streaming.cli.log_lines import write_error
from reput.streaming.cli.options import (
    At,
    Config,
    Json,
    LogConfig,
    Offsets,
    Output,
    Period,
    QueuesIfGiven,
    StoreIfGiven,
    TableToRead,
    one_of,
    table_option,
    version_or_time,
)
from reput.streaming.process.terminal import working


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
        if broker is None and topic is None and queue_id is None:
            return  # all rows of a table would be read for the names in it
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
        from reput.streaming.query.store_lookup import run_query  # noqa: PLC0415

        config = settings.load(store, output=output, only_reads=True, knows_rocksdb=True, reads_backup=True)
        if config.backup is not None and output is None:
            from reput.streaming.backup.opened import made_from_log  # noqa: PLC0415  few stores are backups

            output = made_from_log(config, options.needs(), shown["note"])
        config = read_by_files(config, output or config.store, (Kind.SEGMENT, Kind.INDEX))
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
            help="Print this file instead: of the log, a queue, its ext or batch files, the index, or the checkpoint; "
            "or the directory of a RocksDB database: of queues, or rocksdbstore."
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
    from reput.streaming.dump.entry_files import kind_named  # noqa: PLC0415
    from reput.streaming.dump.log_dump import RecordSelection, Shown  # noqa: PLC0415

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
    config = settings.load(store, only_reads=True, reads_backup=True)
    config = read_by_files(config, config.store, (Kind.SEGMENT,))
    with line:
        found = dump_store(config, request, streams)
    if not found and topic is not None:
        from reput.streaming.ask.known_names import QUEUE, TOPIC, known_names  # noqa: PLC0415

        known_names(config=config).check({TOPIC: topic, QUEUE: queue_id})


quarantine = app.group("quarantine", "List the ranges that were left out of the log.", no_args_is_help=True)


@quarantine.callback()
def about() -> None:
    """List the ranges that were left out of the log under onDamage=quarantine or onDamage=broker."""


@quarantine.command("list", epilog="Example: reput quarantine list --output /data/reput")
def list_ranges(output: Output, as_json: Json = False) -> None:
    """Print one line for each range that was left out.

    The ranges are in the order of the log. --json prints all fields, with the first 64 bytes of each range.
    """
    from reput.sinks.quarantine import load_quarantine  # noqa: PLC0415

    lines = sorted(load_quarantine(output), key=lambda line: line.physical_offset)
    if as_json:
        for line in lines:
            typer.echo(json.dumps(asdict(line)))
        return
    for line in lines:
        where = f"{line.file} byte {line.position}" if line.file else "not in the log any more"
        typer.echo(
            printable(
                f"{line.physical_offset}: {line.length} bytes, {line.cause}, {where}, found {line.found_at} "
                f"({line.policy}), begins {line.head[:32] or '-'}"
            )
        )
    typer.echo(f"reput: {counted(len(lines), 'range')} left out", err=True)


_FORMATS = ("table", "csv", "json", "consumerOffset.json")


@app.command(
    epilog="Example: reput offsets --table /data/messages --at 2026-01-31T12:00:00Z --format consumerOffset.json "
    "--result offsets.json"
)
def offsets(
    table: TableToRead,
    at: Annotated[str, typer.Option(help="The time: 2026-01-31T12:00:00Z, or milliseconds since 1970.")],
    settings: LogConfig,
    store: StoreIfGiven = None,
    broker: Annotated[str | None, typer.Option(help="Only offsets of this broker.")] = None,
    output_format: Annotated[
        str,
        typer.Option(
            "--format",
            autocompletion=one_of(*_FORMATS),
            help="table, csv, json (one line a row), or consumerOffset.json, the file that a broker reads.",
        ),
    ] = "table",
    as_json: Annotated[bool, typer.Option("--json", help="Same as --format json; errors are JSON, too.")] = False,
    result: Annotated[
        Path | None, typer.Option(help="Write to this file. It is replaced when it is complete. Never in a store.")
    ] = None,
) -> None:
    """Show where consumer groups were at a time.

    Reads the ledger of consumption beside the table. No offset is ahead of what was seen by then. With --store, each is
    compared with the present one.
    """
    if as_json:
        if output_format not in ("table", "json"):
            raise OptionError(f"--json does not go with --format {output_format}")
        output_format = "json"
    if output_format not in _FORMATS:
        raise OptionError(f"--format {output_format}: one of {', '.join(_FORMATS)} wanted")
    from reput.streaming.ask import offsets_at as command  # noqa: PLC0415  --help need not wait for the modules
    from reput.streaming.config.consumer_offsets import CONSUMER_OFFSETS  # noqa: PLC0415
    from reput.streaming.query.options import parse_time  # noqa: PLC0415
    from reput.streaming.sql.output import output_file, standard_output, write_result  # noqa: PLC0415

    if result is not None:
        command.check_not_in_a_store(result)
    now = None
    if store is not None:
        config = settings.load(store, only_reads=True, reads_backup=True)
        now = command.offsets_now(config)
    found = command.offsets_at(table, parse_time(at), broker)
    if output_format == CONSUMER_OFFSETS or now is not None:
        command.one_broker(found)
    with standard_output() if result is None else output_file(result, table, option="--result") as out:
        if output_format == CONSUMER_OFFSETS:
            command.write_consumer_offsets(found, out)
        else:
            write_result(command.as_rows(found, now), output_format, out)
    if now is not None:
        sys.stdout.flush()
        typer.echo(printable(f"reput: {command.difference(found, now)}"), err=True)


@app.command(epilog="Example: reput report --table /data/messages --html report.html")
def report(
    table: TableToRead,
    html: Annotated[Path, typer.Option(help="The page, a single file. It is replaced when the page is complete.")],
    period: Period,
    settings: Config,
    at: At = None,
    topic: Annotated[str | None, typer.Option(help="Only topics that match; * stands for any text.")] = None,
    title: Annotated[str | None, typer.Option(help="The page's heading.")] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="The directory that the table's tail keeps. Adds damage, and how far the tail is behind."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write an HTML page about the message table.

    The page is a single file, for readers who have never seen reput.
    """
    if title is not None and not title.strip():
        raise OptionError("--title is empty")
    with working("reading the table"):  # before deltalake is loaded, which has a thread of its own
        from reput.streaming.config.pipeline import load_sql_options  # noqa: PLC0415
        from reput.streaming.report.figures import Selection  # noqa: PLC0415
        from reput.streaming.report.table_report import write_report  # noqa: PLC0415

        options, _ = load_sql_options(settings.config, settings.option or [])
        selection = Selection(topic, *period.bounds)
        wanted = None if at is None else version_or_time(at)
        told = write_report(table, html, selection, at=wanted, title=title, output=output, options=options)
    typer.echo(json.dumps({"html": str(html), "report": told}) if as_json else printable(told))
