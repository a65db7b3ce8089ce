"""`reput tail` of one broker, once its settings are known."""

from __future__ import annotations

import json
from functools import partial

import typer
from rich.console import Console

from reput.streaming.cli.log_lines import LogLines
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.config.run_options import check_paths_on
from reput.streaming.output.paths import OutputPaths
from reput.streaming.process.interruption import deferred
from reput.streaming.spark import session as spark
from reput.streaming.spark.session import Sessions
from reput.streaming.status.progress import ProgressReporter
from reput.streaming.status.publisher import StatusPublisher
from reput.streaming.status.run_state import RunState
from reput.streaming.status.status_document import facts_of, versions
from reput.streaming.tail.tail import Tail


def tail_broker(
    settings: PipelineConfig,
    paths: OutputPaths,
    lines: LogLines,
    *,
    available_now: bool,
    verbose: bool,
    as_json: bool,
) -> None:
    """Run the tail, and print what it did; the last three are the command's options of these names.

    Raises
    ------
    ReputError
        With a message for the user.
    """
    output, table = paths.output, paths.table
    check_paths_on(settings.spark.master, store=settings.store, output=output, table=table, checkpoint=paths.checkpoint)
    lines.broker = settings.broker.name
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
            sessions = Sessions(
                partial(
                    spark.start_session,
                    "reput tail",
                    master=settings.spark.master,
                    driver_memory=settings.spark.driver_memory,
                    log_file=None if verbose else job.spark_log,
                    settings=spark.TAIL_SETTINGS,
                    with_delta=False,  # the table is committed to without Spark
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
