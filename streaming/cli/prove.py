"""The commands that prove a store: `reput verify` and `reput doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from reput.streaming.cli.app import app, set_up_logging, verdict
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
    from rich.console import Console  # noqa: PLC0415  --help need not wait for it

    from reput.streaming.config.run_options import check_paths_on  # noqa: PLC0415
    from reput.streaming.config.stored_sizes import read_by_files  # noqa: PLC0415
    from reput.streaming.verify import verify as command  # noqa: PLC0415

    set_up_logging(reporting.log_format)
    config = read_by_files(settings.load(store, output=output, knows_rocksdb=True), output or store)
    check_paths_on(config.spark.master, store=store, output=output, table=table)
    digests = reporting.as_json
    request = command.VerifyRequest(output or store, table, against, manifest, write_manifest, digests=digests)
    with working(f"comparing {store} with its log"):
        report = command.verify(config, request)
    if reporting.as_json:
        typer.echo(command.as_json(report))
    else:
        command.print_report(report, Console())
    return _DIFFERS if report.differences else 0


_HARMS = 1


_BOTH, _ALL = "both", "all"


def _release(text: str) -> str:
    """`text` if it names a release that doctor knows, both or all.

    Raises
    ------
    typer.BadParameter
        It does not.
    """
    from reput.source.releases import FIRST, LAST, version_of, version_text  # noqa: PLC0415

    version = version_of(text)
    if text not in (_BOTH, _ALL) and (version is None or not FIRST <= version <= LAST):
        known = f"{version_text(FIRST)} to {version_text(LAST)}"
        raise typer.BadParameter(f"{text!r}: a release from {known}, {_BOTH!r} (4.9.3 and 5.5.0) or {_ALL!r} wanted")
    return text


@app.command(epilog="Example: reput doctor --store /data/store --broker-conf /data/broker.conf --release 5.5.0")
def doctor(
    store: Store,
    reporting: Reporting,
    settings: LogConfig,
    release: Annotated[
        str | None,
        typer.Option(
            parser=_release,
            metavar="RELEASE",
            help="The broker to be started, or all for a table. [default: each that may have kept the store]",
        ),
    ] = None,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Try a setting of broker.conf. [default: none]"),
    ] = None,
) -> int:
    """Predict what a broker would do with a store at start.

    Nothing is written. The exit code is 1 if the broker would lose something, or would not start.
    """
    from reput.source.releases import CHANGING_RELEASES, version_of  # noqa: PLC0415
    from reput.streaming.config.config_file import Configuration  # noqa: PLC0415
    from reput.streaming.doctor import doctor as command  # noqa: PLC0415
    from reput.streaming.doctor.start_settings import RELEASES  # noqa: PLC0415

    set_up_logging(reporting.log_format)
    section = Configuration.read(settings.config).section_of(store)
    conf = settings.broker_conf or (section.broker_conf if section else None)
    changes = command.changes_of(change or ())
    config = settings.load(store, only_reads=True, changes=changes)
    versions = list(CHANGING_RELEASES) if release == _ALL else list(RELEASES)
    if release is None:
        versions = list(command.releases_of(config))
    elif (asked := version_of(release)) is not None:
        versions = [asked]
    with working(f"examining {store}"):
        found = command.examine(config, conf, versions, passes_over=release == _ALL)
    if reporting.as_json:
        typer.echo(command.as_json(store, found))
    elif release == _ALL:
        typer.echo(command.as_table(found))
    else:
        good = {each.prediction.release: each.prediction.is_harmless for each in found.diagnoses}
        for line in command.as_text(store, found).splitlines():
            named = line.partition(" ")[0]
            typer.echo(verdict(line, is_good=good[named]) if named in good else line)
    return 0 if found.is_harmless else _HARMS
