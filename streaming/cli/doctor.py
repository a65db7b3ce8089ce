"""`reput doctor`."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from reput.streaming.cli.app import Json, Store, app, run_or_fail, set_up_logging
from reput.streaming.cli.log_lines import LogFormat, LogFormatOption
from reput.streaming.cli.settings import BrokerConf, ConfigFile, Overrides, settings_of

_HARMS = 1


class Release(Enum):
    """Which broker is asked about."""

    BOTH = "both"
    V4 = "4.9.3"
    V5 = "5.5.0"


@app.command(epilog="Example: reput doctor --store /data/store --broker-conf /data/broker.conf --release 5.5.0")
def doctor(
    store: Store,
    broker_conf: BrokerConf = None,
    release: Annotated[
        Release | None,
        typer.Option(help="The broker that is to be started. [default: each that may have kept the store]"),
    ] = None,
    config: ConfigFile = None,
    option: Overrides = None,
    as_json: Json = False,
    log_format: LogFormatOption = LogFormat.TEXT,
) -> None:
    """Say what a broker would do with a store at its start; exit code 1 when it would lose something, or not start."""
    from reput.streaming.config.broker_sections import Configuration  # noqa: PLC0415
    from reput.streaming.doctor import doctor as doctor_command  # noqa: PLC0415
    from reput.streaming.doctor import report  # noqa: PLC0415
    from reput.streaming.doctor.start_settings import RELEASES  # noqa: PLC0415

    set_up_logging(log_format)
    is_harmless = True

    def run() -> None:
        nonlocal is_harmless
        section = Configuration.read(config).section_of(store)
        conf = broker_conf or (section.broker_conf if section else None)
        settings = settings_of(store, config, broker_conf, option, dledger=False, only_reads=True)
        versions = [version for version in RELEASES if release in (Release.BOTH, _RELEASE[version])]
        if release is None:
            versions = list(doctor_command.releases_of(settings))
        found = doctor_command.examine(settings, conf, versions)
        typer.echo(report.as_json(store, found) if as_json else report.as_text(store, found))
        is_harmless = found.is_harmless

    run_or_fail(run)
    if not is_harmless:
        raise typer.Exit(_HARMS)


_RELEASE = {(4, 9, 3): Release.V4, (5, 5, 0): Release.V5}
