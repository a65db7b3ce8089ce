"""The `reput` command. Exit codes: 0 done, 1 failed, 2 wrong usage."""

from __future__ import annotations

import logging
import signal
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

import reput
from reput.source.errors import OptionError, ReputError, remote_error

app = typer.Typer(
    name="reput",
    help="RocketMQ's ReputMessageService outside the broker, on Spark.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)
_WRONG_USAGE = 2
_FAILED = 1

_errors = Console(stderr=True)


def _fail(error: BaseException, code: int) -> NoReturn:
    _errors.print(f"reput: {error}", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(code)


def _run_or_fail(action: object) -> None:
    assert callable(action)
    try:
        action()
    except OptionError as error:
        _fail(error, _WRONG_USAGE)
    except ReputError as error:
        _fail(error, _FAILED)
    except Exception as error:
        remote = remote_error(error)
        if remote is None:
            raise
        name, message = remote
        _fail(ReputError(message), _WRONG_USAGE if name == OptionError.__name__ else _FAILED)


def _set_up_logging() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger("reput")
    logger.handlers = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False


def _version(show: bool) -> None:
    if show:
        typer.echo(f"reput {reput.__version__}")
        raise typer.Exit


@app.callback()
def main_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """RocketMQ's ReputMessageService outside the broker, on Spark."""


@app.command(
    epilog="Example: reput tail --store /data/store --output /data/reput --table /data/messages --available-now"
)
def tail(
    store: Annotated[Path, typer.Option(help="The broker's store root, which holds commitlog/; only read.")],
    output: Annotated[Path, typer.Option(help="Gets consumequeue/ index/ checkpoint and reput's own folder reput/.")],
    table: Annotated[Path | None, typer.Option(help="The Delta table of message metadata; created if missing.")] = None,
    broker_conf: Annotated[
        Path | None, typer.Option(help="The broker's broker.conf: sizes, delay levels, index switches, paths.")
    ] = None,
    available_now: Annotated[
        bool, typer.Option("--available-now", help="Stop at the end of the log as it is now.")
    ] = False,
    dledger: Annotated[
        bool, typer.Option("--dledger", help="The log is DLedger's; same as -o enableDLegerCommitLog=true.")
    ] = False,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Spark's checkpoints. [default: OUTPUT/reput/spark-checkpoint]")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A file like conf/reput.toml; broker.conf and the command line beat it.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", help="name=value, any option of conf/reput.toml; may be repeated."),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Leave Spark's own messages on the terminal.")] = False,
) -> None:
    """Keep ConsumeQueue, IndexFile and the message table in step with a commitlog, until stopped."""
    from reput.streaming.config import load_config  # noqa: PLC0415  --help need not wait for Spark's modules
    from reput.streaming.progress import ProgressReporter  # noqa: PLC0415
    from reput.streaming.session import TAIL_SETTINGS, start_session  # noqa: PLC0415
    from reput.streaming.tail import Tail, TailPaths  # noqa: PLC0415

    _set_up_logging()
    reporter = ProgressReporter(_errors)

    def run() -> None:
        overrides = [*(option or ()), *(["enableDLegerCommitLog=true"] if dledger else [])]
        settings = load_config(store, config_file=config, broker_conf=broker_conf, overrides=overrides)
        with Tail(settings, TailPaths(output, table, checkpoint), reporter) as job:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: job.stop())
            spark = start_session(
                "reput tail",
                master=settings["sparkMaster"],
                driver_memory=settings["sparkDriverMemory"],
                log_file=None if verbose else job.spark_log,
                settings=TAIL_SETTINGS,
            )
            try:
                job.run(spark, available_now=available_now)
            finally:
                spark.stop()
        for line in reporter.summary() or ["the log has nothing new"]:
            typer.echo(line)

    _run_or_fail(run)


@app.command(
    epilog="Example: reput sql --table /data/messages "
    "\"SELECT topic, count(*) FROM messages WHERE tags = 'TagA' GROUP BY topic\""
)
def sql(
    statement: Annotated[str, typer.Argument(help="A query; the table is called messages.")],
    table: Annotated[Path, typer.Option(help="The Delta table that 'reput tail --table' keeps.")],
    output_format: Annotated[str, typer.Option("--format", help="table, csv or json (a line a row).")] = "table",
    verbose: Annotated[bool, typer.Option("--verbose", help="Leave Spark's own messages on the terminal.")] = False,
) -> None:
    """Run one SQL query over the message table."""
    from reput.streaming import sql as queries  # noqa: PLC0415
    from reput.streaming.session import start_session, temporary_log_file  # noqa: PLC0415

    def run() -> None:
        if output_format not in queries.FORMATS:
            msg = f"--format {output_format}: one of {', '.join(queries.FORMATS)} wanted"
            raise OptionError(msg)
        log_file = None if verbose else temporary_log_file()
        spark = start_session("reput sql", master="local[*]", driver_memory="2g", log_file=log_file)
        try:
            result = queries.query(spark, table, statement)
            queries.write_result(result, output_format, sys.stdout, Console())
        finally:
            spark.stop()
            if log_file is not None:
                log_file.unlink(missing_ok=True)

    _run_or_fail(run)


@app.command(
    epilog="Example: reput query --store /data/store --broker-conf /data/broker.conf --topic orders --key 123 --body"
)
def query(
    store: Annotated[Path, typer.Option(help="The broker's store root, which holds commitlog/; only read.")],
    topic: Annotated[str | None, typer.Option(help="The topic, with all but --msg-id.")] = None,
    key: Annotated[str | None, typer.Option(help="A key of the message.")] = None,
    unique_key: Annotated[str | None, typer.Option(help="The id that the client gave (UNIQ_KEY).")] = None,
    msg_id: Annotated[str | None, typer.Option(help="The offset message id that the broker gave.")] = None,
    queue_id: Annotated[int | None, typer.Option(min=0, help="The queue, with the next two.")] = None,
    queue_offset: Annotated[int | None, typer.Option(min=0, help="An offset in the queue.")] = None,
    time: Annotated[
        str | None,
        typer.Option(
            help="The first entry stored then or later (5.x's rule; 4.9.3 goes by file times and takes the nearest): "
            "milliseconds, or 2026-01-31T12:00:00Z."
        ),
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, help="Entries from there on. [default: 1]")] = None,
    begin: Annotated[str | None, typer.Option(help="Of a key: stored at this time or later.")] = None,
    end: Annotated[str | None, typer.Option(help="Of a key: stored at this time or earlier.")] = None,
    max_num: Annotated[
        int | None,
        typer.Option(
            "--max", min=1, help="Of a key: index entries, newest first. [default: a broker's limit, 64; unique: 32]"
        ),
    ] = None,
    body: Annotated[bool, typer.Option("--body", help="Show bodies too, decompressed; base64 if not UTF-8.")] = False,
    output_format: Annotated[str, typer.Option("--format", help="table or json (a line a message).")] = "table",
    output: Annotated[
        Path | None, typer.Option(help="Holds consumequeue/ and index/, if not the store itself.")
    ] = None,
    broker_conf: Annotated[
        Path | None, typer.Option(help="The broker's broker.conf: sizes of the index, delay levels, paths.")
    ] = None,
) -> None:
    """Find messages as a broker does, by key, id, queue offset or time, without broker, Spark or Java."""
    from reput.streaming.query import QueryOptions, run_query  # noqa: PLC0415

    options = QueryOptions(
        topic=topic,
        key=key,
        unique_key=unique_key,
        msg_id=msg_id,
        queue_id=queue_id,
        queue_offset=queue_offset,
        time=time,
        count=count,
        begin=begin,
        end=end,
        max_num=max_num,
    )

    def run() -> None:
        found = run_query(
            options,
            store,
            output=output,
            broker_conf=broker_conf,
            output_format=output_format,
            with_body=body,
            out=sys.stdout,
            note=lambda text: typer.echo(f"reput: {text}", err=True),
        )
        typer.echo(f"reput: {found} message{'' if found == 1 else 's'} found", err=True)

    _run_or_fail(run)


_Store = Annotated[Path, typer.Option(help="The broker's store root, which holds commitlog/; only read.")]
_Output = Annotated[Path, typer.Option(help="What 'reput tail' keeps, or a copy of a store.")]
_BrokerConf = Annotated[Path | None, typer.Option(help="The broker's broker.conf: sizes, index switches, paths.")]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Only tell what would be done.")]
_Json = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]


@app.command(epilog="Example: reput recover --store /data/store --output /data/reput --dry-run")
def recover(
    store: _Store,
    output: _Output,
    broker_conf: _BrokerConf = None,
    dry_run: _DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", help="Remove queues and index when the log is gone.")] = False,
    as_json: _Json = False,
) -> None:
    """Bring queues and index into agreement with the log after an unclean stop, a cut log or lost files."""
    from reput.streaming import maintenance, report  # noqa: PLC0415
    from reput.streaming.config import load_config  # noqa: PLC0415

    _set_up_logging()

    def run() -> None:
        settings = load_config(store, broker_conf=broker_conf)
        result = maintenance.recover_output(settings, store, output, dry_run=dry_run, yes=yes)
        typer.echo(report.as_json(result) if as_json else report.recovery_text(result, dry_run=dry_run))

    _run_or_fail(run)


@app.command(epilog="Example: reput expire --store /data/store --output /data/reput --dry-run")
def expire(
    store: _Store,
    output: _Output,
    broker_conf: _BrokerConf = None,
    dry_run: _DryRun = False,
    as_json: _Json = False,
) -> None:
    """Remove leading queue and index files of which the log has no record any more."""
    from reput.streaming import maintenance, report  # noqa: PLC0415
    from reput.streaming.config import load_config  # noqa: PLC0415

    _set_up_logging()

    def run() -> None:
        result = maintenance.expire_output(load_config(store, broker_conf=broker_conf), output, dry_run=dry_run)
        typer.echo(report.as_json(result) if as_json else report.retention_text(result, dry_run=dry_run))

    _run_or_fail(run)


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
