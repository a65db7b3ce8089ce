"""`reput rebuild`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from reput.streaming.cli.app import Json, Store, Verbose, Yes, app, run_or_fail, set_up_logging, table_option
from reput.streaming.cli.log_lines import LogFormat, LogFormatOption
from reput.streaming.cli.settings import BrokerConf, ConfigFile, DLedger, Overrides, settings_of

# If reput's own processes read the log, Spark only commits what they wrote to the table.
_COMMITTER = "local[1]"


@app.command(epilog="Example: reput rebuild --store /data/store --broker-conf /data/broker.conf --output /data/reput")
def rebuild(
    store: Store,
    output: Annotated[
        Path, typer.Option(help="Its consumequeue/ index/ checkpoint are replaced at the end; may be the store itself.")
    ],
    broker_conf: BrokerConf = None,
    dledger: DLedger = False,
    table: Annotated[
        Any,
        table_option(
            "The Delta table; gets what it has not yet. With --only table, rows that it lost or has wrongly are "
            "replaced, too, in one commit: those of --from and --to, or all that differ.",
        ),
    ] = None,
    topic: Annotated[
        str | None, typer.Option(help="Make only this topic's queues again, in an output that has the others.")
    ] = None,
    queue_id: Annotated[int | None, typer.Option(min=0, help="Of --topic, only this queue.")] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(help="A topic that gets no queues; its keys are in the index all the same. May be repeated."),
    ] = None,
    only: Annotated[
        str | None, typer.Option(help="consumequeue, index or table: leave the others as they are.")
    ] = None,
    start: Annotated[
        int | None, typer.Option("--from", min=0, help="First physical offset; where a record begins. [default: all]")
    ] = None,
    end: Annotated[
        int | None, typer.Option("--to", min=0, help="Physical offset to stop at (exclusive). [default: all]")
    ] = None,
    restore_forgotten: Annotated[
        bool,
        typer.Option("--restore-forgotten", help="With --only table: also what 'reput table forget' removed."),
    ] = False,
    master: Annotated[
        str | None,
        typer.Option(
            help="local[N]: N processes of this machine. Else a Spark cluster's URL, which sees store and output too. "
            "Same as -o sparkMaster=URL. [default: local[*], all cores]"
        ),
    ] = None,
    config: ConfigFile = None,
    option: Overrides = None,
    yes: Yes = False,
    as_json: Json = False,
    log_format: LogFormatOption = LogFormat.TEXT,
    verbose: Verbose = False,
) -> None:
    """Make queues, index and table from a commitlog, in parallel; stopped, the same command goes on.

    The output keeps what it has until all is made. 'reput tail' goes on where the rebuild ended.
    """
    began = time.monotonic()
    from reput.streaming.config.master import check_paths_on  # noqa: PLC0415  --help need not wait for the modules
    from reput.streaming.rebuild.rebuild import Rebuild  # noqa: PLC0415
    from reput.streaming.rebuild.report import RebuildProgress  # noqa: PLC0415
    from reput.streaming.rebuild.request import RebuildRequest  # noqa: PLC0415
    from reput.streaming.tasks.task_session import task_session  # noqa: PLC0415

    set_up_logging(log_format)

    def run() -> None:
        overrides = [*(option or ()), *([f"sparkMaster={master}"] if master else [])]
        request = RebuildRequest(
            output, table, topic, queue_id, tuple(exclude or ()), only, start, end, yes, restore_forgotten
        )
        settings = settings_of(
            store, config, broker_conf, overrides, dledger=dledger, output=output, makes_all=request.is_whole
        )
        check_paths_on(settings.spark.master, store=store, output=output, table=table)
        with Rebuild(settings, request, RebuildProgress(began)) as job:
            spark_log = None if verbose else job.spark_log
            read, written = job.shared()
            committer = _COMMITTER if request.makes_table else None
            with task_session(
                settings,
                "reput rebuild",
                table_master=committer,
                spark_log=spark_log,
                with_rows=job.makes_rows,
                table=table,
                read=read,
                written=written,
            ) as session:
                report = job.run(session.tasks, session.spark() if request.makes_table else None)
        typer.echo(report.to_json() if as_json else report.text())

    run_or_fail(run)
