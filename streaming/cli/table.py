"""`reput table ...`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from reput.streaming.cli.app import app, set_up_logging
from reput.streaming.cli.options import Config, DryRun, Json, Table
from reput.streaming.process.terminal import terminal_width, working

# `working` begins before a command's modules are loaded: beside a thread such as deltalake's it would show nothing.
table = app.group("table", "Describe, maintain and repair a message table.", no_args_is_help=True)

_LEFT = 1

Broker = Annotated[str | None, typer.Option(help="Only this broker's rows. [default: every broker's]")]


@table.command(epilog="Example: reput table describe --table /data/messages")
def describe(table: Table, as_json: Json = False) -> None:
    """Show versions, rows, files, brokers and times.

    Also shows which readers can read the table, and which files wait to be merged.
    """
    from reput.streaming.output.paths import check_table  # noqa: PLC0415
    from reput.streaming.table import commands  # noqa: PLC0415

    check_table(table)
    state = commands.TableState(table)
    typer.echo(commands.describe_json(state) if as_json else commands.describe_text(state))


@table.command(epilog="Example: reput table history --table /data/messages --limit 20")
def history(
    table: Table,
    limit: Annotated[int, typer.Option(min=1, help="Print at most this many versions.")] = 50,
    as_json: Json = False,
) -> None:
    """Show what each version did and who made it.

    The newest version comes first. --json prints one line for each version.
    """
    from reput.sinks.table.history import log_entries  # noqa: PLC0415
    from reput.sinks.table.log import log_errors, read_snapshot  # noqa: PLC0415
    from reput.streaming.output.paths import check_table  # noqa: PLC0415
    from reput.streaming.table import commands  # noqa: PLC0415

    check_table(table)
    with log_errors(table):
        newest = read_snapshot(table)
        entries = list(log_entries(newest.storage, newest.version, limit))
    width = terminal_width(sys.stdout)
    for line in commands.history_json(entries) if as_json else commands.history_lines(entries, width):
        typer.echo(line)


@table.command(epilog="Example: reput table optimize --table /data/messages")
def optimize(table: Table, broker: Broker = None, as_json: Json = False) -> None:
    """Merge small files and sort large files.

    A running tail does the same, a little at a time. This command ends when nothing is left to merge or sort.
    """
    set_up_logging()
    with working("merging and sorting files"):
        from reput.streaming.table import commands  # noqa: PLC0415

        done = commands.optimize(table, broker)
    typer.echo(commands.as_json(done) if as_json else commands.optimize_text(done))


@table.command(epilog="Example: reput table vacuum --table /data/messages --dry-run")
def vacuum(
    table: Table,
    keep_versions: Annotated[
        int,
        typer.Option(
            min=20,
            help="Keep at least this many versions readable. The table's log is cut at a checkpoint before them.",
        ),
    ] = 1000,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Remove old commits, and files that only they need.

    Also removes files that interrupted writers left. Files that reput did not write stay, unless a commit removed them.
    A tail may keep the table meanwhile.
    """
    with working("looking for files that no version needs"):
        from reput.streaming.table import commands  # noqa: PLC0415

        done = commands.vacuum(table, keep_versions, dry_run=dry_run)
    typer.echo(commands.as_json(done) if as_json else commands.vacuum_text(done, dry_run=dry_run))


@table.command(epilog="Example: reput table repair --table /data/messages")
def repair(table: Table, as_json: Json = False) -> None:
    """Replace a damaged or missing checkpoint of the table's log.

    The new checkpoint is made from the commits.
    """
    with working("reading the table's log"):
        from reput.streaming.table import commands  # noqa: PLC0415

        done = commands.repair(table)
    typer.echo(commands.as_json(done) if as_json else commands.repair_text(done))


@table.command(epilog="Example: reput table expire --table /data/messages --config reput.toml --dry-run")
def expire(
    table: Table,
    settings: Config,
    broker: Broker = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Remove rows that have expired by tableRetention.

    A running tail does the same, a little at a time. Older versions of the table keep the rows until they are removed.
    """
    set_up_logging()
    with working("looking for expired rows" if dry_run else "removing expired rows"):
        from reput.streaming.config.pipeline import load_table_options  # noqa: PLC0415
        from reput.streaming.table import commands  # noqa: PLC0415

        retention = load_table_options(settings.config, settings.option or ())
        carry_out = commands.expiry_plan if dry_run else commands.expire
        done = carry_out(table, retention, broker)
    typer.echo(commands.as_json(done) if as_json else commands.expiry_text(done, dry_run=dry_run))


@table.command(epilog="Example: reput table forget --table /data/messages --key customer-17 --yes")
def forget(
    table: Table,
    topic: Annotated[list[str] | None, typer.Option(help="A topic; with keys or ids, only theirs in it.")] = None,
    key: Annotated[list[str] | None, typer.Option(help="A key of messages.")] = None,
    uniq_key: Annotated[list[str] | None, typer.Option(help="An id that a client gave (UNIQ_KEY).")] = None,
    msg_id: Annotated[list[str] | None, typer.Option(help="An offset message id.")] = None,
    broker: Broker = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Remove the rows. Without it, only print what would be removed.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Remove messages from every version of the table.

    Topics, keys and ids may be repeated. The exit code is 1 if a file still has such rows, or cannot be read.
    """
    set_up_logging()
    with working("removing rows" if yes else "looking for rows"):
        from reput.sinks.table.forget import ForgetRequest  # noqa: PLC0415
        from reput.streaming.table import commands  # noqa: PLC0415

        request = ForgetRequest(topic or (), key or (), uniq_key or (), msg_id or (), broker)
        commands.checked_request(request)
        done = commands.forget(table, request) if yes else commands.forgetting_plan(table, request)
    if isinstance(done, commands.ForgetPlan):
        typer.echo(commands.as_json(done) if as_json else commands.plan_text(done))
        return 0
    typer.echo(commands.as_json(done) if as_json else commands.forgotten_text(done))
    return 0 if done.left.is_clean else _LEFT
