"""`reput recover` and `reput expire`."""

from __future__ import annotations

import typer

from reput.streaming.cli.app import app, set_up_logging
from reput.streaming.cli.options import DryRun, LogConfig, Output, Reporting, Store, Yes
from reput.streaming.process.terminal import working


@app.command(epilog="Example: reput recover --store /data/store --output /data/reput --dry-run")
def recover(
    store: Store, output: Output, reporting: Reporting, settings: LogConfig, dry_run: DryRun = False, yes: Yes = False
) -> None:
    """Repair queues and index after a crash or a lost file.

    The log decides: queues and index agree with it afterwards. It may have been cut, too.
    """
    from reput.streaming.recover import recover  # noqa: PLC0415
    from reput.streaming.recover import recover as maintenance  # noqa: PLC0415

    set_up_logging(reporting.log_format)
    config = settings.load(store, output=output)
    with working(f"comparing {output} with the log"):
        result = maintenance.recover_output(config, store, output, dry_run=dry_run, yes=yes)
    typer.echo(recover.as_json(result) if reporting.as_json else recover.recovery_text(result, dry_run=dry_run))


@app.command(epilog="Example: reput expire --store /data/store --output /data/reput --dry-run")
def expire(
    store: Store, output: Output, reporting: Reporting, settings: LogConfig, dry_run: DryRun = False, yes: Yes = False
) -> None:
    """Remove queue and index files whose records expired.

    Only leading files are removed, and only if the log has none of their records any more.
    """
    from reput.streaming.recover import recover  # noqa: PLC0415
    from reput.streaming.recover import recover as maintenance  # noqa: PLC0415

    set_up_logging(reporting.log_format)
    config = settings.load(store, output=output)
    with working(f"looking for expired files in {output}"):
        result = maintenance.expire_output(config, output, dry_run=dry_run, yes=yes)
    typer.echo(recover.as_json(result) if reporting.as_json else recover.retention_text(result, dry_run=dry_run))
