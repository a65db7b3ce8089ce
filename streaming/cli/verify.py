"""`reput verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from reput.streaming.cli.app import Json, Store, app, run_or_fail, set_up_logging, table_option
from reput.streaming.cli.log_lines import LogFormat, LogFormatOption
from reput.streaming.cli.settings import BrokerConf, ConfigFile, DLedger, Overrides, settings_of

_DIFFERS = 1


@app.command(epilog="Example: reput verify --store /data/store --broker-conf /data/broker.conf --table /data/messages")
def verify(
    store: Store,
    output: Annotated[
        Path | None, typer.Option(help="Holds consumequeue/ and index/, if not the store itself; only read.")
    ] = None,
    broker_conf: BrokerConf = None,
    dledger: DLedger = False,
    table: Annotated[Any, table_option("The Delta table to compare with the log, too.")] = None,
    against: Annotated[
        Path | None, typer.Option(help="Another store or output with the same settings, to compare with file by file.")
    ] = None,
    manifest: Annotated[
        Path | None, typer.Option(help="Check every file against a manifest that was written before.")
    ] = None,
    write_manifest: Annotated[
        Path | None, typer.Option(help="Write sizes and SHA-256 of all files to this file.")
    ] = None,
    config: ConfigFile = None,
    option: Overrides = None,
    as_json: Json = False,
    log_format: LogFormatOption = LogFormat.TEXT,
) -> None:
    """Prove that log, queues, index and table agree, writing nothing; exit code 1 when something differs."""
    from reput.streaming.config.master import check_paths_on  # noqa: PLC0415
    from reput.streaming.config.stored_sizes import read_by_files  # noqa: PLC0415
    from reput.streaming.verify import report as verify_report  # noqa: PLC0415
    from reput.streaming.verify import verify as verify_command  # noqa: PLC0415

    set_up_logging(log_format)
    found = 0

    def run() -> None:
        nonlocal found
        settings = settings_of(store, config, broker_conf, option, dledger=dledger, output=output)
        settings = read_by_files(settings, output or store)
        check_paths_on(settings.spark.master, store=store, output=output, table=table)
        request = verify_command.VerifyRequest(
            output or store, table, against, manifest, write_manifest, digests=as_json
        )
        report = verify_command.verify(settings, request)
        if as_json:
            typer.echo(verify_report.as_json(report))
        else:
            verify_report.print_report(report, Console())
        found = report.differences

    run_or_fail(run)
    if found:
        raise typer.Exit(_DIFFERS)
