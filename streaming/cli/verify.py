"""`reput verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from reput.streaming.cli.app import app, set_up_logging
from reput.streaming.cli.options import LogConfig, QueuesIfGiven, Reporting, Store, table_option
from reput.streaming.process.terminal import working

_DIFFERS = 1


@app.command(epilog="Example: reput verify --store /data/store --broker-conf /data/broker.conf --table /data/messages")
def verify(
    store: Store,
    reporting: Reporting,
    settings: LogConfig,
    output: QueuesIfGiven = None,
    table: Annotated[Any, table_option("Also compare this Delta table with the log.")] = None,
    against: Annotated[
        Path | None, typer.Option(help="Also compare with another store or output of the same settings, file by file.")
    ] = None,
    manifest: Annotated[
        Path | None, typer.Option(help="Also check every file against a manifest written by --write-manifest.")
    ] = None,
    write_manifest: Annotated[
        Path | None, typer.Option(help="Write sizes and SHA-256 of all files to this file.")
    ] = None,
) -> int:
    """Prove that log, queues, index and table agree.

    Nothing is written. The exit code is 1 if something differs.
    """
    from reput.streaming.config.run_options import check_paths_on  # noqa: PLC0415
    from reput.streaming.config.stored_sizes import read_by_files  # noqa: PLC0415
    from reput.streaming.verify import report as verify_report  # noqa: PLC0415
    from reput.streaming.verify import verify as verify_command  # noqa: PLC0415

    set_up_logging(reporting.log_format)
    config = read_by_files(settings.load(store, output=output), output or store)
    check_paths_on(config.spark.master, store=store, output=output, table=table)
    digests = reporting.as_json
    request = verify_command.VerifyRequest(output or store, table, against, manifest, write_manifest, digests=digests)
    with working(f"comparing {store} with its log"):
        report = verify_command.verify(config, request)
    if reporting.as_json:
        typer.echo(verify_report.as_json(report))
    else:
        verify_report.print_report(report, Console())
    return _DIFFERS if report.differences else 0
