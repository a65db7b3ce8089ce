"""`reput doctor`."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from reput.streaming.cli.app import app, set_up_logging, verdict
from reput.streaming.cli.options import LogConfig, Reporting, Store
from reput.streaming.process.terminal import working

_HARMS = 1


class Release(Enum):
    """The broker that a prediction is about."""

    BOTH = "both"
    V4 = "4.9.3"
    V5 = "5.5.0"


_RELEASE = {(4, 9, 3): Release.V4, (5, 5, 0): Release.V5}


@app.command(epilog="Example: reput doctor --store /data/store --broker-conf /data/broker.conf --release 5.5.0")
def doctor(
    store: Store,
    reporting: Reporting,
    settings: LogConfig,
    release: Annotated[
        Release | None,
        typer.Option(help="The broker that will be started. [default: each that may have kept the store]"),
    ] = None,
) -> int:
    """Predict what a broker would do with a store at start.

    Nothing is written. The exit code is 1 if the broker would lose something, or would not start.
    """
    from reput.streaming.config.config_file import Configuration  # noqa: PLC0415
    from reput.streaming.doctor import doctor as doctor_command  # noqa: PLC0415
    from reput.streaming.doctor import report  # noqa: PLC0415
    from reput.streaming.doctor.start_settings import RELEASES  # noqa: PLC0415

    set_up_logging(reporting.log_format)
    section = Configuration.read(settings.config).section_of(store)
    conf = settings.broker_conf or (section.broker_conf if section else None)
    config = settings.load(store, only_reads=True)
    versions = [version for version in RELEASES if release in (Release.BOTH, _RELEASE[version])]
    if release is None:
        versions = list(doctor_command.releases_of(config))
    with working(f"examining {store}"):
        found = doctor_command.examine(config, conf, versions)
    if reporting.as_json:
        typer.echo(report.as_json(store, found))
    else:
        good = {each.prediction.release: each.prediction.is_harmless for each in found.diagnoses}
        for line in report.as_text(store, found).splitlines():
            named = line.partition(" ")[0]
            typer.echo(verdict(line, is_good=good[named]) if named in good else line)
    return 0 if found.is_harmless else _HARMS
