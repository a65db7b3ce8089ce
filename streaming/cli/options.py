"""The options that several commands share, each declared once.

A command takes a group of options as one parameter, whose type is a dataclass below: ``Application.command`` makes an
option of each field. A single option that commands share is a type such as `Store`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reput.sinks.table.location import TableLocation, parse_location
from reput.source.errors import OptionError
from reput.streaming.cli.log_lines import LogFormat, LogFormatOption
from reput.streaming.process.environment import submit_gateway

if TYPE_CHECKING:
    from reput.streaming.config.pipeline import PipelineConfig

_MASTER = "sparkmaster="


def one_of(*words: str) -> Callable[[str], list[str]]:
    """Return what completes, in a shell, the value of an option that is one of these words."""
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


def _settings(incomplete: str) -> list[str]:
    """Complete the name of a setting, as ``name=``."""
    from reput.streaming.config.settings import PIPELINE_OPTIONS  # noqa: PLC0415  --help need not wait for the modules

    return [f"{spec.name}=" for spec in PIPELINE_OPTIONS if spec.name.startswith(incomplete)]


def table_option(words: str, *names: str) -> Any:
    """Return an option for a location, a path or a place on S3; `words` are its help, `names` its own names."""
    return typer.Option(*names, parser=_table_location, metavar="<path>", help=words)


def _table_location(text: str) -> TableLocation:
    try:
        return parse_location(text)
    except OptionError as error:
        raise typer.BadParameter(str(error)) from error


def version_or_time(text: str) -> int | datetime:
    """Return what `At` says: a version, or a time, which is UTC without an offset; raises OptionError."""
    from reput.streaming.query.options import parse_time  # noqa: PLC0415

    if text.isascii() and text.isdecimal():
        return int(text)
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=parse_time(text))


STORE_HELP = "The broker's store root, which holds commitlog/. It is only read."
# The module that reads a store says what it cannot read, and names the directory that bars the way.
Store = Annotated[Path, typer.Option(help=STORE_HELP, readable=False)]
_BACKUP_HELP = (
    "Or a backup, as it was at its newest restore point: a directory, s3://BUCKET/PATH, or the file of another point."
)
# Of a command that reads a backup in place.
StoreOrBackup = Annotated[Path, typer.Option(help=f"{STORE_HELP} {_BACKUP_HELP}", readable=False)]
StoreIfGiven = Annotated[Path | None, typer.Option(help=f"{STORE_HELP} {_BACKUP_HELP}", readable=False)]
Output = Annotated[Path, typer.Option(help="The directory that 'reput tail' keeps, or a copy of a store.")]
QueuesIfGiven = Annotated[
    Path | None,
    typer.Option(help="The directory with consumequeue/ and index/, if it is not the store. It is only read."),
]
TABLE_HELP = "The Delta table that 'reput tail --table' keeps."
TableToRead = Annotated[Any, table_option(f"{TABLE_HELP} It is only read.")]
Table = Annotated[Any, table_option(TABLE_HELP)]
At = Annotated[
    str | None, typer.Option(help="Read the table as it was: a version, or a time such as 2026-01-31T12:00:00Z.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Follow this log even if it does not explain what the output has.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only print what would be done.")]
Verbose = Annotated[bool, typer.Option("--verbose", help="Leave Spark's own messages on the terminal.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, and errors too.")]


@dataclass(eq=False, repr=False)
class Config:
    """Settings from a file and from the command line; `option` has texts ``name=value``."""

    config: Annotated[
        Path | None,
        typer.Option(help="A file like conf/reput.toml. broker.conf and the command line take precedence over it."),
    ] = None
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            "-o",
            autocompletion=_settings,
            help="Set an option of conf/reput.toml, as name=value. May be repeated.",
        ),
    ] = None

    @property
    def flags(self) -> list[str]:
        """The names of the options that were given."""
        return [f"--{each.name.replace('_', '-')}" for each in fields(self) if getattr(self, each.name)]


@dataclass(eq=False, repr=False)
class LogConfig(Config):
    """The settings with which a log is read."""

    broker_conf: Annotated[
        Path | None, typer.Option(help="The broker's broker.conf: sizes, delay levels, index switches, paths.")
    ] = None
    dledger: Annotated[
        bool, typer.Option("--dledger", help="Read a log of DLedger. Same as -o enableDLegerCommitLog=true.")
    ] = False

    def load(
        self, store: Path, overrides: Sequence[str] = (), *, reads_backup: bool = False, **how: Any
    ) -> PipelineConfig:
        """Return the configuration, with more `overrides`; `how` and the errors are those of ``load_config``.

        With `reads_backup`, the store may also be a backup, or a restore point in one (``backup.opened``).
        """
        from reput.source.log.store_layout import names_backup  # noqa: PLC0415  --help need not wait for the modules
        from reput.streaming.config.pipeline import load_config  # noqa: PLC0415

        given = self.overrides(overrides)

        def of_store(path: Path, more: Sequence[str] = ()) -> PipelineConfig:
            all_given = [*more, *given]
            return load_config(path, config_file=self.config, broker_conf=self.broker_conf, overrides=all_given, **how)

        if not (reads_backup and names_backup(store)):
            return of_store(store)
        from reput.streaming.backup.opened import open_backup  # noqa: PLC0415  few stores are backups

        return open_backup(store, given, self.broker_conf, of_store)

    def overrides(self, more: Sequence[str] = ()) -> list[str]:
        """Return the settings that the command line states, as ``name=value``.

        If ``spark-submit`` started this process, its master counts as one that the command line gave, unless there is
        another.
        """
        given = [*(self.option or ()), *more, *(["enableDLegerCommitLog=true"] if self.dledger else [])]
        if submit_gateway() is not None and not any(text.lower().startswith(_MASTER) for text in given):
            from reput.streaming.spark.session import submitted_master  # noqa: PLC0415

            given.append(f"{_MASTER}{submitted_master()}")
        return given


@dataclass(eq=False, repr=False)
class Reporting:
    """The form of a command's report and of its log."""

    as_json: Json = False
    log_format: LogFormatOption = LogFormat.TEXT


@dataclass(eq=False, repr=False)
class Offsets:
    """A range of the log, by physical offsets."""

    begin: Annotated[
        int | None,
        typer.Option("--from", min=0, help="The first physical offset, where a record begins. [default: the first]"),
    ] = None
    end: Annotated[
        int | None, typer.Option("--to", min=0, help="The physical offset to stop at (exclusive). [default: the end]")
    ] = None


@dataclass(eq=False, repr=False)
class Period:
    """The times between which messages were stored."""

    since: Annotated[
        str | None, typer.Option(help="Only messages stored then or later: 2026-01-31T12:00:00Z or milliseconds.")
    ] = None
    until: Annotated[str | None, typer.Option(help="Only messages stored before that time.")] = None

    @property
    def bounds(self) -> tuple[int | None, int | None]:
        """Both in milliseconds since 1970, None where there is no limit; raises OptionError."""
        from reput.streaming.query.options import check_period, parse_time  # noqa: PLC0415

        since, until = (None if text is None else parse_time(text) for text in (self.since, self.until))
        check_period("--since", since, "--until", until)
        return since, until
