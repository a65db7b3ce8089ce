"""The commands that write an output: `reput rebuild`, `queues`, `convert`, `recover` and `expire`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from reput.streaming.cli.app import app, set_up_logging
from reput.streaming.cli.options import (
    DryRun,
    LogConfig,
    Offsets,
    Output,
    Reporting,
    Store,
    StoreOrBackup,
    Verbose,
    Yes,
    one_of,
    table_option,
)
from reput.streaming.process.terminal import working


@app.command(epilog="Example: reput rebuild --store /data/store --broker-conf /data/broker.conf --output /data/reput")
def rebuild(
    store: StoreOrBackup,
    output: Annotated[
        Path,
        typer.Option(
            help="The directory to write. Its consumequeue/, index/ and checkpoint are replaced at the end. May be the "
            "store itself."
        ),
    ],
    offsets: Offsets,
    reporting: Reporting,
    settings: LogConfig,
    table: Annotated[
        Any,
        table_option(
            "The Delta table. It gets the rows that it does not have yet. With --only table, rows that are missing or "
            "wrong between --from and --to are also replaced, in one commit.",
        ),
    ] = None,
    topic: Annotated[
        str | None, typer.Option(help="Make only this topic's queues, in an output that has the others.")
    ] = None,
    queue_id: Annotated[int | None, typer.Option(min=0, help="Make only this queue of --topic.")] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(help="Make no queues of this topic; the index still has its keys. May be repeated."),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            autocompletion=one_of("consumequeue", "index", "table"),
            help="Make only this and leave the others as they are: consumequeue, index or table.",
        ),
    ] = None,
    restore_forgotten: Annotated[
        bool,
        typer.Option(
            "--restore-forgotten", help="With --only table: also restore rows that 'reput table forget' removed."
        ),
    ] = False,
    master: Annotated[
        str | None,
        typer.Option(
            help="local[N] runs N processes on this machine. A Spark cluster's URL needs a cluster that sees store and "
            "output. Same as -o sparkMaster=URL. [default: local[*], all cores]"
        ),
    ] = None,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes", help="Follow this log even if it does not explain what the output has, or moves its queue entries."
        ),
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Make queues, index and table again from a commitlog.

    The log is read in parallel. The output keeps its files until the new ones are complete. If the rebuild is stopped,
    the same command continues it. 'reput tail' continues where the rebuild ended.
    """
    began = time.monotonic()
    from reput.streaming.config.run_options import check_paths_on  # noqa: PLC0415  --help need not wait for the modules
    from reput.streaming.rebuild import rebuild as command  # noqa: PLC0415
    from reput.streaming.rebuild.plan import RebuildRequest  # noqa: PLC0415

    set_up_logging(reporting.log_format)
    request = RebuildRequest(
        output, table, topic, queue_id, tuple(exclude or ()), only, offsets.begin, offsets.end, yes, restore_forgotten
    )
    of_master = [f"sparkMaster={master}"] if master else []
    how = {"output": output, "makes_all": request.is_whole, "knows_rocksdb": True}
    config = settings.load(store, of_master, reads_backup=True, **how)
    check_paths_on(config.spark.master, store=store, output=output, table=table)
    with working("rebuilding"):
        report = command.rebuild(config, request, "reput rebuild", began=began, verbose=verbose)
    typer.echo(report.to_json() if reporting.as_json else report.text())


@app.command(epilog="Example: reput queues --store /data/store --broker-conf /data/broker.conf --to rocksdb")
def queues(
    store: Annotated[Path, typer.Option(help="The broker's store root. The broker is stopped.", readable=False)],
    to: Annotated[
        str,
        typer.Option(autocompletion=one_of("rocksdb", "files"), help="Where the queues are moved: rocksdb or files."),
    ],
    reporting: Reporting,
    settings: LogConfig,
) -> None:
    """Move a stopped broker's queues from files into RocksDB, or back.

    The store keeps its queues until the new ones are complete and have been compared with the old ones. If the command
    is stopped, run it again.
    """
    from reput.streaming.rebuild.queues import QueueMove  # noqa: PLC0415

    set_up_logging(reporting.log_format)
    config = settings.load(store, output=store, knows_rocksdb=True)
    with working(f"moving the queues of {store}"):
        result = QueueMove(config, to).run()
    typer.echo(result.to_json() if reporting.as_json else result.text())


@app.command(epilog="Example: reput convert --store /data/store --broker-conf /data/broker.conf --output /data/plain")
def convert(
    store: Annotated[Path, typer.Option(help="The broker's store root. The broker is stopped.", readable=False)],
    output: Annotated[Path, typer.Option(help="The directory of the new store. It is empty, or does not exist yet.")],
    reporting: Reporting,
    settings: LogConfig,
) -> None:
    """Write a DLedger store's messages into a store with a plain log.

    The old store is only read. If the command is stopped, run it again; the new store is complete when it succeeds.
    """
    from reput.streaming.convert.convert import Conversion  # noqa: PLC0415

    set_up_logging(reporting.log_format)
    config = settings.load(store, ["enableDLegerCommitLog=true"], knows_rocksdb=True)
    with working(f"converting {store}"):
        result = Conversion(config, output).run()
    typer.echo(result.to_json() if reporting.as_json else result.text(output))


@app.command(epilog="Example: reput recover --store /data/store --output /data/reput --dry-run")
def recover(
    store: Store, output: Output, reporting: Reporting, settings: LogConfig, dry_run: DryRun = False, yes: Yes = False
) -> None:
    """Cut queues and index back to what the log says.

    Each is cut where it first disagrees with the log, after a crash, a cut log or a lost file. 'reput tail' with the
    same --store and --output then writes the rest; 'reput rebuild' makes all of it again at once.
    """
    from reput.streaming.recover import recover as command  # noqa: PLC0415

    set_up_logging(reporting.log_format)
    config = settings.load(store, output=output)
    with working(f"comparing {output} with the log"):
        result = command.recover_output(config, store, output, dry_run=dry_run, yes=yes)
    typer.echo(command.as_json(result) if reporting.as_json else command.recovery_text(result, dry_run=dry_run))


@app.command(epilog="Example: reput expire --store /data/store --output /data/reput --dry-run")
def expire(
    store: Store, output: Output, reporting: Reporting, settings: LogConfig, dry_run: DryRun = False, yes: Yes = False
) -> None:
    """Remove queue and index files whose records expired.

    Only leading files are removed, and only if the log has none of their records any more.
    """
    from reput.streaming.recover import recover as command  # noqa: PLC0415

    set_up_logging(reporting.log_format)
    config = settings.load(store, output=output)
    with working(f"looking for expired files in {output}"):
        result = command.expire_output(config, output, dry_run=dry_run, yes=yes)
    typer.echo(command.as_json(result) if reporting.as_json else command.retention_text(result, dry_run=dry_run))
