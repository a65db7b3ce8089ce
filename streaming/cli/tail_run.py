"""`reput tail` once its settings are known: of one broker, or of several in one process.

Of several brokers there is one for each section of a configuration file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import typer
from rich.console import Console

from reput.sinks.table.location import TableLocation
from reput.source.errors import ReputError
from reput.streaming.cli.app import report_error
from reput.streaming.cli.log_lines import LogLines, write_error
from reput.streaming.config.config_file import BrokerSection, Configuration, check_names
from reput.streaming.config.pipeline import PipelineConfig, load_config, load_process_options
from reput.streaming.config.run_options import SparkOptions, check_paths_on
from reput.streaming.output.paths import OutputPaths, refuse_paths_in
from reput.streaming.process.failures import failure_of, one_line
from reput.streaming.process.interruption import deferred
from reput.streaming.spark import session as spark
from reput.streaming.spark.session import Sessions
from reput.streaming.status.progress import ProgressReporter
from reput.streaming.status.publisher import StatusPublisher
from reput.streaming.status.run_state import RunState
from reput.streaming.status.status_document import facts_of, versions
from reput.streaming.tail.brokers import BrokerRun, Brokers
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
    reporter = ProgressReporter(_console(lines, verbose=verbose), state, line_every_s=line_every_s, turn=publisher.turn)
    with publisher, reporter:
        reporter.starting("looks at the log and recovers the output")
        with Tail(settings, paths, reporter) as job:
            publisher.write_files()
            reporter.starting("starts Spark")
            sessions = _sessions(settings.spark, job.spark_log, settings=spark.TAIL_SETTINGS, verbose=verbose)

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


def tail_brokers(
    file: Configuration,
    table: TableLocation | None,
    overrides: Sequence[str],
    lines: LogLines,
    *,
    available_now: bool,
    verbose: bool,
    as_json: bool,
) -> None:
    """Run the tails of the brokers of `file`, and print what each did.

    The last three are the command's options of these names.

    Raises
    ------
    ReputError
        The options do not go together, or do not allow a start.
    typer.Exit
        A broker failed. The exit code is that of the gravest failure.
    """
    process, of_spark = load_process_options(file, overrides)
    check_paths_on(of_spark.master, table=table)
    runs = _runs(file, table, overrides, available_now=available_now)
    facts = {"versions": versions()}
    outputs = [section.output for section in file.sections]
    states = [run.state for run in runs]
    publisher = StatusPublisher(
        list(zip(states, outputs, strict=True)), facts, host=process.metrics_host, port=process.metrics_port or None
    )
    brokers = Brokers(
        runs,
        partial(_sessions, of_spark, settings=spark.SEVERAL_BROKERS_SETTINGS, verbose=verbose),
        _console(lines, verbose=verbose),
        facts,
        available_now=available_now,
    )

    def stop() -> None:
        publisher.stopping()
        brokers.stop()

    with publisher, deferred(stop):
        try:
            brokers.run(publisher.turn)
        finally:
            brokers.end_spark()
    _tell(runs, as_json=as_json)
    if brokers.exit_code:
        raise typer.Exit(brokers.exit_code)


def _runs(
    file: Configuration, table: TableLocation | None, overrides: Sequence[str], *, available_now: bool
) -> list[BrokerRun]:
    """Return a run for each section; one whose settings cannot be loaded ends with that error, the others run."""
    loaded: list[tuple[BrokerSection, PipelineConfig | ReputError]] = []
    for section in file.sections:
        try:
            config = load_config(section.store, config_file=file, overrides=overrides, output=section.output)
        except Exception as error:  # noqa: BLE001  it is this broker's
            loaded.append((section, failure_of(error)))
        else:
            loaded.append((section, config))
    configs = [(section, config) for section, config in loaded if isinstance(config, PipelineConfig)]
    check_names([(section, config.broker.name) for section, config in configs])
    directories = [directory for _, config in configs for directory in config.log_directories]
    for section, _ in configs:
        refuse_paths_in(directories, OutputPaths(section.output, table, section.checkpoint))
    return [_run(section, config, table, available_now=available_now) for section, config in loaded]


def _run(
    section: BrokerSection, config: PipelineConfig | ReputError, table: TableLocation | None, *, available_now: bool
) -> BrokerRun:
    paths = OutputPaths(section.output, table, section.checkpoint)
    if isinstance(config, PipelineConfig):
        state = RunState(config.broker.name, facts_of(config, paths))
        line_every_s = 0.0 if available_now else config.tail.progress_every_ms / 1000
        return BrokerRun(state, section.output, partial(Tail, config, paths), line_every_s=line_every_s)
    error = config

    def fail(_: ProgressReporter) -> Tail:
        raise error

    name = section.options.get("broker") or str(section.store)
    return BrokerRun(RunState(name, {"store": str(section.store), "output": str(section.output)}), section.output, fail)


def _console(lines: LogLines, *, verbose: bool) -> Console:
    """Return where progress is shown; if Spark or another program's reader has lines, there is no room for a screen."""
    return Console(stderr=True, force_terminal=False if verbose or lines.is_json else None)


def _sessions(options: SparkOptions, spark_log: Path, *, settings: Mapping[str, str], verbose: bool) -> Sessions:
    return Sessions(
        partial(
            spark.start_session,
            "reput tail",
            master=options.master,
            driver_memory=options.driver_memory,
            log_file=None if verbose else spark_log,
            settings=settings,
            with_delta=False,  # the table is committed to without Spark
            log_max_bytes=options.log_max_bytes,
        )
    )


def _tell(runs: Sequence[BrokerRun], *, as_json: bool) -> None:
    """Print the summary of each broker to standard output, and the error that ended it to standard error."""
    if as_json:
        typer.echo(json.dumps({"brokers": {run.state.broker: {"summary": run.summary} for run in runs}}))
    else:
        for run in runs:
            lines = run.summary or ["the log has nothing new" if run.failure is None else "nothing was kept"]
            typer.echo("\n".join(f"{run.state.broker}: {line}" for line in lines))
    for run in runs:
        if run.failure is None:
            continue
        if as_json:
            write_error(json.dumps({"broker": run.state.broker, **json.loads(run.failure.to_json())}))
        else:
            report_error(f"{run.state.broker}: {one_line(str(run.failure))}")
