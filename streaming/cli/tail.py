"""`reput tail`; `reput status`, which shows its state; and `reput prepare`, after which it starts sooner."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from reput.source.errors import OptionError
from reput.streaming.cli.app import MissingOptionError, app, set_up_logging
from reput.streaming.cli.options import STORE_HELP, Json, LogConfig, Output, Reporting, Verbose, table_option
from reput.streaming.process.terminal import first_words

_OR_SECTIONS = "Required, unless --config has sections of brokers."


@app.command(
    epilog="Example: reput tail --store /data/store --output /data/reput --table /data/messages --available-now"
)
def tail(
    context: typer.Context,
    reporting: Reporting,
    settings: LogConfig,
    store: Annotated[Path | None, typer.Option(help=f"{STORE_HELP} {_OR_SECTIONS}", readable=False)] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            help="The directory to write: consumequeue/, index/, checkpoint, and reput/ for reput's own files. "
            f"{_OR_SECTIONS}"
        ),
    ] = None,
    table: Annotated[Any, table_option("The Delta table of messages' metadata. It is created if missing.")] = None,
    available_now: Annotated[
        bool, typer.Option("--available-now", help="Stop at the end that the log has at the start.")
    ] = False,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="The directory of Spark's checkpoints. [default: OUTPUT/reput/spark-checkpoint]"),
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Keep queues, index and table in step with a commitlog.

    It runs until it is stopped. One process keeps several brokers if --config has a section [[broker]] for each.
    """
    with first_words("starting  loads Spark's modules"):  # --help need not wait for them
        from reput.streaming.cli.tail_run import tail_broker  # noqa: PLC0415
        from reput.streaming.config.config_file import Configuration  # noqa: PLC0415
        from reput.streaming.output.paths import OutputPaths  # noqa: PLC0415

    lines = set_up_logging(reporting.log_format, is_bounded=not available_now)
    how = {"available_now": available_now, "verbose": verbose, "as_json": reporting.as_json}
    if store is None and output is None and (file := Configuration.read(settings.config)).sections:
        from reput.streaming.cli.tail_run import tail_brokers  # noqa: PLC0415  one broker does without it

        for name, given in (("--broker-conf", settings.broker_conf), ("--checkpoint", checkpoint)):
            if given is not None:
                words = f"{name} is one broker's, and {settings.config} has sections of several"
                raise OptionError(words, advice="give it in the broker's section")
        tail_brokers(file, table, settings.overrides(), lines, **how)
        return
    if store is None or output is None:
        raise MissingOptionError("--store" if store is None else "--output", context)
    tail_broker(settings.load(store, output=output), OutputPaths(output, table, checkpoint), lines, **how)


@app.command(epilog="Example: reput status --output /data/reput")
def status(output: Output, as_json: Json = False) -> int:
    """Show what the tail of an output does, or how it ended.

    The exit code is for scripts. 0: running or starting; 3: stopped; 10: lagging; 11: waiting; 12: degraded.
    """
    from reput.streaming.status.status_document import exit_code_of, status_of, status_text  # noqa: PLC0415

    found = status_of(output)
    typer.echo(json.dumps(found) if as_json else status_text(found))
    return exit_code_of(found)


@app.command(epilog="Example: reput prepare")
def prepare(as_json: Json = False) -> None:
    """Make Spark start in half the time.

    Run this once, and again after each new Java, Spark or Delta.
    """
    from reput.streaming import prepare as preparation  # noqa: PLC0415

    set_up_logging()
    archive = preparation.prepare().archive
    size = archive.stat().st_size
    if as_json:
        typer.echo(json.dumps({"archive": str(archive), "bytes": size}))
    else:
        typer.echo(f"{archive} ({size / 1e6:.0f} MB): Spark now starts in about half the time")
