"""`reput table ...`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from reput.source.resource_limits import SPARK, check_limits
from reput.streaming.cli.app import Application, DryRun, Json, Verbose, app, run_or_fail, set_up_logging, table_option
from reput.streaming.cli.settings import ConfigFile, Overrides

table = Application(
    help="What a message table is and what was done to it; its upkeep by hand; rows that are to be forgotten.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(table, name="table")

_STARTS_SPARK = ("optimize", "expire", "forget")
_LEFT = 1

Broker = Annotated[str | None, typer.Option(help="Only this broker's rows. [default: every broker's]")]
Table = Annotated[Any, table_option("The Delta table that 'reput tail --table' keeps.")]


@table.callback()
def about(context: typer.Context) -> None:
    """What a message table is and what was done to it; its upkeep by hand; rows that are to be forgotten."""
    if context.invoked_subcommand in _STARTS_SPARK:
        run_or_fail(lambda: check_limits(SPARK))


@table.command(epilog="Example: reput table describe --table /data/messages")
def describe(table: Table, as_json: Json = False) -> None:
    """Tell versions, rows, files, brokers, times, who can read it, and what awaits merging; without Spark."""
    from reput.sinks.table.table_state import TableState  # noqa: PLC0415
    from reput.streaming.output.table_path import check_table  # noqa: PLC0415
    from reput.streaming.table import report  # noqa: PLC0415

    def run() -> None:
        check_table(table)
        state = TableState(table)
        typer.echo(report.describe_json(state) if as_json else report.describe_text(state))

    run_or_fail(run)


@table.command(epilog="Example: reput table history --table /data/messages --limit 20")
def history(
    table: Table,
    limit: Annotated[int, typer.Option(min=1, help="At most so many versions.")] = 50,
    as_json: Json = False,
) -> None:
    """Tell what each version did and who made it, newest first; with --json a line a version. Without Spark."""
    from reput.sinks.table.file_list import log_errors  # noqa: PLC0415
    from reput.sinks.table.history import log_entries  # noqa: PLC0415
    from reput.sinks.table.table_state import TableState  # noqa: PLC0415
    from reput.streaming.output.table_path import check_table  # noqa: PLC0415
    from reput.streaming.table import report  # noqa: PLC0415

    def run() -> None:
        check_table(table)
        with log_errors(table):
            state = TableState(table)
            entries = list(log_entries(state.storage, state.version, limit))
        for line in report.history_json(entries) if as_json else report.history_lines(entries):
            typer.echo(line)

    run_or_fail(run)


@table.command(epilog="Example: reput table optimize --table /data/messages")
def optimize(
    table: Table,
    broker: Broker = None,
    config: ConfigFile = None,
    option: Overrides = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Merge small files and sort large ones until nothing is due, as a tail does bit by bit."""
    from reput.streaming.config.pipeline import load_spark_options  # noqa: PLC0415
    from reput.streaming.output.table_path import check_table  # noqa: PLC0415
    from reput.streaming.table import optimize as merging  # noqa: PLC0415
    from reput.streaming.table import report  # noqa: PLC0415

    set_up_logging()

    def run() -> None:
        options = load_spark_options(config, option or ())
        check_table(table)
        with merging.table_session("reput table optimize", options, table, verbose=verbose) as spark:
            done = merging.optimize(spark, table, broker)
        typer.echo(report.as_json(done) if as_json else report.optimize_text(done))

    run_or_fail(run)


@table.command(epilog="Example: reput table vacuum --table /data/messages --dry-run")
def vacuum(
    table: Table,
    keep_versions: Annotated[
        int, typer.Option(min=20, help="Versions that stay readable; the log is cut at a checkpoint before them.")
    ] = 1000,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Remove old commits, data files that only they had, and what writers that died left; without Spark.

    A tail may be at work on the table. Files that reput did not write stay unless a commit removed them.
    """
    from reput.streaming.table import report  # noqa: PLC0415
    from reput.streaming.table import vacuum as cleaning  # noqa: PLC0415

    def run() -> None:
        done = cleaning.vacuum(table, keep_versions, dry_run=dry_run)
        typer.echo(report.as_json(done) if as_json else report.vacuum_text(done, dry_run=dry_run))

    run_or_fail(run)


@table.command(epilog="Example: reput table repair --table /data/messages")
def repair(table: Table, as_json: Json = False) -> None:
    """Replace a damaged or missing checkpoint by one made from the commits; without Spark."""
    from reput.streaming.table import repair as repairing  # noqa: PLC0415
    from reput.streaming.table import report  # noqa: PLC0415

    def run() -> None:
        done = repairing.repair(table)
        typer.echo(report.as_json(done) if as_json else report.repair_text(done))

    run_or_fail(run)


@table.command(epilog="Example: reput table expire --table /data/messages --config reput.toml --dry-run")
def expire(
    table: Table,
    broker: Broker = None,
    dry_run: DryRun = False,
    config: ConfigFile = None,
    option: Overrides = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Remove rows that have expired by tableRetention, as a tail does bit by bit; older versions keep them a while."""
    from reput.streaming.config.pipeline import load_table_options  # noqa: PLC0415
    from reput.streaming.table import expire as expiring  # noqa: PLC0415
    from reput.streaming.table import report  # noqa: PLC0415

    set_up_logging()

    def run() -> None:
        retention, spark = load_table_options(config, option or ())
        if dry_run:
            done = expiring.plan(table, retention, broker)
        else:
            done = expiring.expire(table, retention, broker, spark, verbose=verbose)
        typer.echo(report.as_json(done) if as_json else report.expiry_text(done, dry_run=dry_run))

    run_or_fail(run)


@table.command(epilog="Example: reput table forget --table /data/messages --key customer-17 --yes")
def forget(
    table: Table,
    topic: Annotated[list[str] | None, typer.Option(help="A topic; with keys or ids, only theirs in it.")] = None,
    key: Annotated[list[str] | None, typer.Option(help="A key of messages.")] = None,
    uniq_key: Annotated[list[str] | None, typer.Option(help="An id that a client gave (UNIQ_KEY).")] = None,
    msg_id: Annotated[list[str] | None, typer.Option(help="An offset message id.")] = None,
    broker: Broker = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; otherwise it is only told what would be done.")] = False,
    config: ConfigFile = None,
    option: Overrides = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Remove messages' rows from every version and file of the table; topics, keys and ids may be repeated.

    Exit code 1: a file still has such rows, or cannot be looked into.
    """
    from reput.sinks.table.forget_request import ForgetRequest  # noqa: PLC0415
    from reput.streaming.config.pipeline import load_spark_options  # noqa: PLC0415
    from reput.streaming.table import forget as forgetting  # noqa: PLC0415
    from reput.streaming.table import report  # noqa: PLC0415

    set_up_logging()
    is_clean = True

    def run() -> None:
        nonlocal is_clean
        request = ForgetRequest(topic or (), key or (), uniq_key or (), msg_id or (), broker)
        options = load_spark_options(config, option or ())
        forgetting.checked(request)
        if not yes:
            plan = forgetting.plan(table, request)
            typer.echo(report.as_json(plan) if as_json else report.plan_text(plan))
            return
        done = forgetting.forget(table, request, options, verbose=verbose)
        typer.echo(report.as_json(done) if as_json else report.forgotten_text(done))
        is_clean = done.left.is_clean

    run_or_fail(run)
    if not is_clean:
        raise typer.Exit(_LEFT)
