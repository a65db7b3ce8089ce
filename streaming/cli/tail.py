"""`reput tail`."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from reput.streaming.cli.app import Json, Store, Verbose, app, run_or_fail, set_up_logging, table_option
from reput.streaming.cli.settings import BrokerConf, ConfigFile, DLedger, Overrides, settings_of


@app.command(
    epilog="Example: reput tail --store /data/store --output /data/reput --table /data/messages --available-now"
)
def tail(
    store: Store,
    output: Annotated[Path, typer.Option(help="Gets consumequeue/ index/ checkpoint and reput's own folder reput/.")],
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
) -> None:
    """Keep ConsumeQueue, IndexFile and the message table in step with a commitlog, until stopped."""
    from rich.console import Console  # noqa: PLC0415  --help need not wait for it and Spark's modules

    from reput.streaming.config.master import check_paths_on  # noqa: PLC0415
    from reput.streaming.output.paths import OutputPaths  # noqa: PLC0415
    from reput.streaming.output.progress import ProgressReporter  # noqa: PLC0415
    from reput.streaming.process.interruption import deferred  # noqa: PLC0415
    from reput.streaming.spark import session as spark  # noqa: PLC0415
    from reput.streaming.tail.tail import Tail  # noqa: PLC0415

    set_up_logging()
    reporter = ProgressReporter(Console(stderr=True))

    def run() -> None:
        settings = settings_of(store, config, broker_conf, option, dledger=dledger, output=output)
        check_paths_on(settings.spark.master, store=store, output=output, table=table, checkpoint=checkpoint)
        with Tail(settings, OutputPaths(output, table, checkpoint), reporter) as job:
            sessions = spark.Sessions(
                partial(
                    spark.start_session,
                    "reput tail",
                    master=settings.spark.master,
                    driver_memory=settings.spark.driver_memory,
                    log_file=None if verbose else job.spark_log,
                    settings=spark.TAIL_SETTINGS,
                    table=table,
                )
            )
            try:
                sessions.current()  # a signal ends the command at once meanwhile
                with deferred(job.stop):
                    job.run(sessions, available_now=available_now)
            finally:
                sessions.end()
        summary = reporter.summary()
        typer.echo(json.dumps({"summary": summary}) if as_json else "\n".join(summary or ["the log has nothing new"]))

    run_or_fail(run)
