"""`reput backup ...` and `reput restore`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reput.streaming.cli.app import DefaultCommand, app, set_up_logging, verdict
from reput.streaming.cli.options import Json, LogConfig, Reporting, Store, table_option
from reput.streaming.process.terminal import working

if TYPE_CHECKING:
    from reput.sinks.backup.restore_point import RestorePoint
    from reput.streaming.config.pipeline import PipelineConfig

backup = app.group("backup", "Back up a store, and prove, list and describe its backups.", kind=DefaultCommand)

_BROKEN = 1
_LAGGING = 10

Backup = Annotated[Any, table_option("The backup: a directory, or s3://BUCKET/PATH.", "--from")]


@backup.command(epilog="Example: reput backup --store /data/store --broker-conf /data/broker.conf --to /backup/a")
def create(
    store: Store,
    to: Annotated[Any, table_option("Where the backup is: a directory, or s3://BUCKET/PATH. Made if missing.")],
    reporting: Reporting,
    settings: LogConfig,
    keep_points: Annotated[
        int | None, typer.Option(min=1, help="Keep this many of the newest restore points. [default: all]")
    ] = None,
    keep_days: Annotated[
        float | None,
        typer.Option(min=0, help="Keep what a restore to any moment of the last days needs. [default: all]"),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Make restore points until stopped, beside a running broker.")
    ] = False,
    every: Annotated[
        float, typer.Option(min=0.1, help="With --follow: seconds between the begins of two restore points.")
    ] = 5.0,
) -> None:
    """Back up a store: all of it at first, then what is new.

    A broker may run on the store. Nothing is written there.
    """
    from reput.streaming.backup.backup import BackupRun, Retention, point_fields, point_line  # noqa: PLC0415
    from reput.streaming.config.stored_sizes import read_by_files  # noqa: PLC0415

    set_up_logging(reporting.log_format, is_bounded=follow)
    config = read_by_files(settings.load(store, only_reads=True, knows_rocksdb=True), store)
    run = BackupRun(config, to, Retention(keep_points, keep_days))
    if follow:
        from reput.streaming.backup.follow import BackupFollower, FollowState  # noqa: PLC0415

        with run.opened():
            BackupFollower(run, FollowState(config.broker.name, str(to)), config.tail, every_s=every).follow()
        return
    with working(f"backing up {store}"), run.opened():
        point = run.step()
        gone = run.expire()
    last = run.last
    assert last is not None, "a first step makes a restore point"
    if reporting.as_json:
        typer.echo(json.dumps({**point_fields(last), "new": point is not None, "expired": gone}))
    else:
        typer.echo(point_line(last) if point is not None else f"nothing is new since {point_line(last)}")


@backup.command(epilog="Example: reput backup status --store /data/store --from /backup/a")
def status(
    store: Store,
    source: Backup,
    settings: LogConfig,
    within: Annotated[
        float, typer.Option(min=0, help="The exit code is 10 if messages have been unprotected for longer, in seconds.")
    ] = 10.0,
    as_json: Json = False,
) -> int:
    """Show how much of a store's log no restore point has yet.

    Nothing is written, and a backup may run meanwhile.
    """
    from reput.streaming.backup.backup import status_of  # noqa: PLC0415

    found = status_of(settings.load(store, only_reads=True, knows_rocksdb=True), source)
    typer.echo(found.to_json() if as_json else found.text())
    return _LAGGING if found.left.bytes and found.left.seconds > within else 0


@backup.command("list", epilog="Example: reput backup list --from /backup/broker-a")
def list_points(source: Backup, as_json: Json = False) -> None:
    """List the restore points, the oldest first."""
    from reput.sinks.backup import backup_store  # noqa: PLC0415
    from reput.streaming.backup.backup import list_json, point_line  # noqa: PLC0415

    found = backup_store.Backup(source)
    points = [found.point(number) for number in found.numbers()]
    typer.echo(list_json(points) if as_json else "\n".join(map(point_line, points)) or "there is no restore point")


@backup.command(epilog="Example: reput backup describe --from /backup/broker-a")
def describe(
    source: Backup,
    point: Annotated[int | None, typer.Option(min=1, help="The restore point. [default: the newest]")] = None,
    as_json: Json = False,
) -> None:
    """Show what a restore point consists of, and the settings that it was made with."""
    from reput.sinks.backup import backup_store  # noqa: PLC0415
    from reput.source.errors import OptionError  # noqa: PLC0415
    from reput.streaming.backup.backup import describe_fields, describe_lines  # noqa: PLC0415

    found = backup_store.Backup(source)
    numbers = found.numbers()
    if not numbers or (point is not None and point not in numbers):
        has = f"{numbers[0]} to {numbers[-1]}" if numbers else "none"
        raise OptionError(f"{source} has no such restore point: it has {has}")
    chosen = found.point(point or numbers[-1])
    typer.echo(json.dumps(describe_fields(chosen)) if as_json else "\n".join(describe_lines(chosen)))


@backup.command(epilog="Example: reput backup verify --from /backup/broker-a")
def verify(
    source: Backup,
    settings: LogConfig,
    sample: Annotated[
        bool,
        typer.Option(
            "--sample",
            help="Also restore one of them, any one, into a directory below TMPDIR, verify it and remove it.",
        ),
    ] = False,
    point: Annotated[int | None, typer.Option(min=1, help="Restore this restore point; with --sample.")] = None,
    as_json: Json = False,
) -> int:
    """Prove that every restore point can be restored.

    The whole backup is read and compared with its digests. The exit code is 1 if a restore point is broken, or if there
    is none.
    """
    from reput.sinks.backup import backup_store  # noqa: PLC0415
    from reput.source.errors import OptionError  # noqa: PLC0415
    from reput.streaming.backup.backup import proof_json, proof_lines  # noqa: PLC0415

    if not sample and (given := ["--point"] * (point is not None) + settings.flags):
        raise OptionError(f"{', '.join(given)}: only with --sample")
    with working(f"reading {source}"):
        found = backup_store.Backup(source)
        proof = found.verify()
    is_good = bool(proof.points) and not proof.faults
    points = [point] if point is not None else [each for each in found.numbers() if each not in proof.broken]
    restored: dict[str, Any] | None = None
    if sample and points:
        from reput.streaming.backup.restore import restore_sample  # noqa: PLC0415

        with working(f"restoring a restore point of {source}"):
            made = restore_sample(source, points, _load_restored(settings))
        restored = {"point": made.point, "begin": made.begin, "end": made.end, "messages": made.messages}
    if as_json:
        typer.echo(proof_json(proof, restored))
        return 0 if is_good else _BROKEN
    *lines, last = proof_lines(proof)
    if restored is not None:
        lines.append(
            "restored restore point {point} into a scratch directory, which is removed: offsets {begin} to {end}, "
            "messages: {messages}; verify finds no difference".format(**restored)
        )
    typer.echo("\n".join([*lines, verdict(last, is_good=is_good)]))
    return 0 if is_good else _BROKEN


def _load_restored(settings: LogConfig) -> Callable[[Path, RestorePoint], PipelineConfig]:
    """Return a function that loads the configuration of a store that is being restored."""
    from reput.streaming.backup.backup import settings_at  # noqa: PLC0415

    def load(work: Path, made: RestorePoint) -> PipelineConfig:
        return settings.load(work, settings_at(made, settings.option or (), settings.broker_conf), knows_rocksdb=True)

    return load


@app.command(epilog="Example: reput restore --from /backup/broker-a --to /data/store --at 2026-01-31T14:03:00Z")
def restore(
    source: Backup,
    to: Annotated[Path, typer.Option(help="The store to make: an empty directory, or a new one.")],
    reporting: Reporting,
    settings: LogConfig,
    at: Annotated[
        str | None,
        typer.Option(help="The moment: 2026-01-31T14:03:00Z or milliseconds. [default: the newest restore point]"),
    ] = None,
    offset: Annotated[
        int | None, typer.Option(min=0, help="Restore the log up to this physical offset, where a record ends.")
    ] = None,
    point: Annotated[int | None, typer.Option(min=1, help="Restore this restore point.")] = None,
    topic: Annotated[
        list[str] | None, typer.Option(help="Only the messages of this topic; repeat it for several topics.")
    ] = None,
    since: Annotated[str | None, typer.Option(help="Only messages that were stored at this time or later.")] = None,
) -> int:
    """Make a store as it was at a moment, from a backup.

    Queues and index are made from the log, and the store is verified before it is put in place. The exit code is 1 if a
    broker would lose something at its start.
    """
    from reput.streaming.backup.partial_log import MessageChoice  # noqa: PLC0415
    from reput.streaming.backup.restore import RestoreRequest, predicted  # noqa: PLC0415
    from reput.streaming.backup.restore import restore as restore_command  # noqa: PLC0415
    from reput.streaming.query.options import parse_time  # noqa: PLC0415

    set_up_logging(reporting.log_format)
    part = MessageChoice(tuple(dict.fromkeys(topic or ())), None if since is None else parse_time(since))
    request = RestoreRequest(source, to, None if at is None else parse_time(at), offset, point, part)
    load = _load_restored(settings)
    with working(f"restoring {to}"):
        made = restore_command(request, load)
        broker = predicted(request, made, load, settings.broker_conf)
    if reporting.as_json:
        typer.echo(json.dumps({**asdict(made), "broker": broker.words}))
    else:
        typer.echo("\n".join([made.text(), verdict(broker.words, is_good=broker.is_harmless)]))
    return 0 if broker.is_harmless else _BROKEN
