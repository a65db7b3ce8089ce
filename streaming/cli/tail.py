"""`reput tail`."""

from __future__ import annotations

import json
from functools import partial
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
from reput.streaming.cli.settings import BrokerConf, ConfigFile, DLedger, Overrides, overrides_of, settings_of

_OR_SECTIONS = "Required, unless --config has sections of brokers."


@app.command(
    epilog="Example: reput tail --store /data/store --output /data/reput --table /data/messages --available-now"
)
def tail(
    context: typer.Context,
    store: Annotated[Path | None, typer.Option(help=f"{STORE_HELP} {_OR_SECTIONS}")] = None,
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
    with first_words("starting  loads Spark's modules"):
        from rich.console import Console  # noqa: PLC0415  --help need not wait for it and Spark's modules

        from reput.streaming.config.broker_sections import Configuration  # noqa: PLC0415
        from reput.streaming.config.master import check_paths_on  # noqa: PLC0415
        from reput.streaming.output.paths import OutputPaths  # noqa: PLC0415
        from reput.streaming.process.interruption import deferred  # noqa: PLC0415
        from reput.streaming.spark import session as spark  # noqa: PLC0415
        from reput.streaming.status.facts import facts_of, versions  # noqa: PLC0415
        from reput.streaming.status.progress import ProgressReporter  # noqa: PLC0415
        from reput.streaming.status.publisher import StatusPublisher  # noqa: PLC0415
        from reput.streaming.status.run_state import RunState  # noqa: PLC0415
        from reput.streaming.tail.tail import Tail  # noqa: PLC0415

    lines = set_up_logging(log_format, is_bounded=not available_now)

    def run_several(file: Configuration) -> None:
        from reput.streaming.cli.tail_brokers import tail_brokers  # noqa: PLC0415  one broker does without it

        for name, given in (("--broker-conf", broker_conf), ("--checkpoint", checkpoint)):
            if given is not None:
                words = f"{name} is one broker's, and {config} has sections of several"
                raise OptionError(words, advice="give it in the broker's section")
        tail_brokers(
            *(file, table, overrides_of(option, dledger=dledger)),
            available_now=available_now,
            verbose=verbose,
            has_lines=verbose or lines.is_json,
            as_json=as_json,
        )

    def run() -> None:
        if store is None and output is None:
            file = Configuration.read(config)
            if file.sections:
                run_several(file)
                return
        if store is None or output is None:
            raise MissingOptionError("--store" if store is None else "--output", context)
        settings = settings_of(store, config, broker_conf, option, dledger=dledger, output=output)
        check_paths_on(settings.spark.master, store=store, output=output, table=table, checkpoint=checkpoint)
        lines.broker = settings.broker.name
        paths = OutputPaths(output, table, checkpoint)
        state = RunState(settings.broker.name, facts_of(settings, paths))
        service = settings.tail
        publisher = StatusPublisher(
            [(state, output)], {"versions": versions()}, host=service.metrics_host, port=service.metrics_port or None
        )
        line_every_s = 0.0 if available_now else service.progress_every_ms / 1000
        # Where Spark or another program's reader has lines, there is no room for a screen.
        console = Console(stderr=True, force_terminal=False if verbose or lines.is_json else None)
        reporter = ProgressReporter(console, state, line_every_s=line_every_s, turn=publisher.turn)
        with publisher, reporter:
            reporter.starting("looks at the log and recovers the output")
            with Tail(settings, paths, reporter) as job:
                publisher.write_files()
                reporter.starting("starts Spark")
                sessions = spark.Sessions(
                    partial(
                        spark.start_session,
                        "reput tail",
                        master=settings.spark.master,
                        driver_memory=settings.spark.driver_memory,
                        log_file=None if verbose else job.spark_log,
                        settings=spark.TAIL_SETTINGS,
                        table=table,
                        log_max_bytes=settings.spark.log_max_bytes,
                    )
                )

                def stop() -> None:
                    publisher.stopping()
                    job.stop()

                try:
                    sessions.current()  # a signal ends the command at once meanwhile
                    reporter.starting("opens the table and starts the queries" if table else "starts the queries")
                    with deferred(stop):
                        job.run(sessions, available_now=available_now)
                finally:
                    sessions.end()
        summary = reporter.summary()
        typer.echo(json.dumps({"summary": summary}) if as_json else "\n".join(summary or ["the log has nothing new"]))

    run_or_fail(run)
