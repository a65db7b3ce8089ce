"""`reput tail`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from reput.source.errors import OptionError
from reput.streaming.cli.app import (
    STORE_HELP,
    Json,
    MissingOptionError,
    Verbose,
    app,
    run_or_fail,
    set_up_logging,
    table_option,
)
from reput.streaming.cli.first_words import first_words
from reput.streaming.cli.log_lines import LogFormat, LogFormatOption
from reput.streaming.cli.settings import BrokerConf, ConfigFile, DLedger, Overrides, overrides_of

_OR_SECTIONS = "Required, unless --config has sections of brokers."


@app.command(
    epilog="Example: reput tail --store /data/store --output /data/reput --table /data/messages --available-now"
)
def tail(
    context: typer.Context,
    store: Annotated[Path | None, typer.Option(help=f"{STORE_HELP} {_OR_SECTIONS}", readable=False)] = None,
    output: Annotated[
        Path | None,
        typer.Option(help=f"Gets consumequeue/ index/ checkpoint and reput's own folder reput/. {_OR_SECTIONS}"),
    ] = None,
    table: Annotated[Any, table_option("The Delta table of message metadata; created if missing.")] = None,
    broker_conf: BrokerConf = None,
    available_now: Annotated[
        bool, typer.Option("--available-now", help="Stop at the end of the log as it is now.")
    ] = False,
    dledger: DLedger = False,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Spark's checkpoints. [default: OUTPUT/reput/spark-checkpoint]")
    ] = None,
    config: ConfigFile = None,
    option: Overrides = None,
    verbose: Verbose = False,
    as_json: Json = False,
    log_format: LogFormatOption = LogFormat.TEXT,
) -> None:
    """Keep ConsumeQueue, IndexFile and the message table in step with a commitlog, until stopped.

    Several brokers are kept by one process if --config has a section [[broker]] for each.
    """
    with first_words("starting  loads Spark's modules"):  # --help need not wait for them
        from reput.streaming.cli.tail_broker import tail_broker  # noqa: PLC0415
        from reput.streaming.config.broker_sections import Configuration  # noqa: PLC0415
        from reput.streaming.config.pipeline import load_config  # noqa: PLC0415
        from reput.streaming.output.paths import OutputPaths  # noqa: PLC0415

    lines = set_up_logging(log_format, is_bounded=not available_now)
    how = {"available_now": available_now, "verbose": verbose, "as_json": as_json}

    def run() -> None:
        overrides = overrides_of(option, dledger=dledger)
        if store is None and output is None and (file := Configuration.read(config)).sections:
            from reput.streaming.cli.tail_brokers import tail_brokers  # noqa: PLC0415  one broker does without it

            for name, given in (("--broker-conf", broker_conf), ("--checkpoint", checkpoint)):
                if given is not None:
                    words = f"{name} is one broker's, and {config} has sections of several"
                    raise OptionError(words, advice="give it in the broker's section")
            tail_brokers(file, table, overrides, lines, **how)
            return
        if store is None or output is None:
            raise MissingOptionError("--store" if store is None else "--output", context)
        settings = load_config(store, config_file=config, broker_conf=broker_conf, overrides=overrides, output=output)
        tail_broker(settings, OutputPaths(output, table, checkpoint), lines, **how)

    run_or_fail(run)
