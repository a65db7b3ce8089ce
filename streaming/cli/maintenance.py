"""`reput recover` and `reput expire`."""

from __future__ import annotations

import typer

from reput.streaming.cli.app import DryRun, Json, Output, Store, Yes, app, run_or_fail, set_up_logging
from reput.streaming.cli.log_lines import LogFormat, LogFormatOption
from reput.streaming.cli.settings import BrokerConf, ConfigFile, DLedger, Overrides, settings_of


@app.command(epilog="Example: reput recover --store /data/store --output /data/reput --dry-run")
def recover(
    store: Store,
    output: Output,
    broker_conf: BrokerConf = None,
    dledger: DLedger = False,
    config: ConfigFile = None,
    option: Overrides = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
    log_format: LogFormatOption = LogFormat.TEXT,
) -> None:
    """Bring queues and index into agreement with the log after an unclean stop, a cut log or lost files."""
    from reput.streaming.recover import recover as maintenance  # noqa: PLC0415
    from reput.streaming.recover import report  # noqa: PLC0415

    set_up_logging(log_format)

    def run() -> None:
        settings = settings_of(store, config, broker_conf, option, dledger=dledger, output=output)
        result = maintenance.recover_output(settings, store, output, dry_run=dry_run, yes=yes)
        typer.echo(report.as_json(result) if as_json else report.recovery_text(result, dry_run=dry_run))

    run_or_fail(run)


@app.command(epilog="Example: reput expire --store /data/store --output /data/reput --dry-run")
def expire(
    store: Store,
    output: Output,
    broker_conf: BrokerConf = None,
    dledger: DLedger = False,
    config: ConfigFile = None,
    option: Overrides = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
    log_format: LogFormatOption = LogFormat.TEXT,
) -> None:
    """Remove leading queue and index files of which the log has no record any more."""
    from reput.streaming.recover import recover as maintenance  # noqa: PLC0415
    from reput.streaming.recover import report  # noqa: PLC0415

    set_up_logging(log_format)

    def run() -> None:
        settings = settings_of(store, config, broker_conf, option, dledger=dledger, output=output)
        result = maintenance.expire_output(settings, output, dry_run=dry_run, yes=yes)
        typer.echo(report.as_json(result) if as_json else report.retention_text(result, dry_run=dry_run))

    run_or_fail(run)
