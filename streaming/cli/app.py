"""What the commands of `reput` share: the application, exit codes, common options."""

from __future__ import annotations

import select
import sys
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from datetime import datetime, timedelta, timezone
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

import reput
from reput.sinks.table.location import TableLocation, parse_location
from reput.source.errors import OptionError
from reput.source.resource_limits import PROCESSES, READING, SPARK, check_limits
from reput.streaming.cli.log_lines import LogFormat, LogLines, log_to_standard_error, write_error
from reput.streaming.cli.usage import Group
from reput.streaming.process.interruption import InterruptedBySignal, is_interrupted
from reput.streaming.process.standard_streams import STANDARD_OUTPUT, drop_output
from reput.streaming.process.working_directory import made_absolute

_Function = TypeVar("_Function", bound=Callable[..., Any])


class _Command(TyperCommand):
    """A command that prints its errors in one line (``run_or_fail``)."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        is_json = ctx.params.get("as_json", False) or ctx.params.get("output_format") == _JSON_FORMAT
        before, lines_before = _is_read_by_program.set(is_json), _lines.set(None)
        result: list[Any] = []
        try:
            run_or_fail(lambda: result.append(super(_Command, self).invoke(ctx)))
        except InterruptedBySignal as stopped:
            raise InterruptedBySignal(_log_lines().stopped) from stopped
        finally:
            _lines.reset(lines_before)
            _is_read_by_program.reset(before)
        return result[0]


class MissingOptionError(typer.BadParameter):
    """An option is missing that is not always required; it is told as one that always is."""

    def __init__(self, name: str, context: typer.Context) -> None:
        super().__init__(f"Missing option '{name}'.", ctx=context)

    def format_message(self) -> str:
        """The message alone."""
        return str(self.message)


class Application(typer.Typer):
    """A Typer whose commands print errors in one line and load no code from the current directory."""

    def command(self, name: str | None = None, **options: Any) -> Callable[[_Function], _Function]:
        """Register a command of class `_Command`, as ``Typer.command`` does.

        Its paths become absolute (``working_directory``), so that it does not depend on the current directory then.
        """
        register = super().command(name, **{"cls": _Command, **options})

        def decorate(function: _Function) -> _Function:
            # Around the function, since some versions of Typer make paths of texts only when they call it.
            @wraps(function)
            def with_absolute_paths(**given: Any) -> Any:
                return function(**{name: made_absolute(value) for name, value in given.items()})

            register(with_absolute_paths)
            return function

        return decorate


app = Application(
    name="reput",
    cls=Group,
    help="RocketMQ's ReputMessageService outside the broker, on Spark.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)
_JSON_FORMAT = "json"
# Whether the command was asked for JSON: then its error is JSON, too.
_is_read_by_program: ContextVar[bool] = ContextVar("is_read_by_program", default=False)
# What makes the lines of the command's log, once it is set up.
_lines: ContextVar[LogLines | None] = ContextVar("lines", default=None)


def table_option(words: str) -> Any:
    """The option of a table's location: a path, or a place on S3; `words` are its help."""
    return typer.Option(parser=_table_location, metavar="<path>", help=words)


def _table_location(text: str) -> TableLocation:
    try:
        return parse_location(text)
    except OptionError as error:
        raise typer.BadParameter(str(error)) from error


def version_or_time(text: str) -> int | datetime:
    """What `At` says: a version, or a time, which is UTC without an offset; raises OptionError."""
    from reput.streaming.query.lines import parse_time  # noqa: PLC0415

    if text.isascii() and text.isdecimal():
        return int(text)
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=parse_time(text))


STORE_HELP = "The broker's store root, which holds commitlog/; only read."
# Whether it can be read is said by whoever reads it, with the directory that bars the way.
Store = Annotated[Path, typer.Option(help=STORE_HELP, readable=False)]
Output = Annotated[Path, typer.Option(help="What 'reput tail' keeps, or a copy of a store.")]
At = Annotated[
    str | None, typer.Option(help="The table as it was: a version of it, or a time such as 2026-01-31T12:00:00Z.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Go by this log, even if it does not explain what the output has.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only tell what would be done.")]
Verbose = Annotated[bool, typer.Option("--verbose", help="Leave Spark's own messages on the terminal.")]
Json = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]


def report_error(words: str) -> None:
    """Print one line of reput's to standard error; the line is lost if nothing reads standard error any more."""
    write_error(_log_lines().failure(words))


def run_or_fail(action: Callable[[], None]) -> None:
    """Run a command; an error becomes one line and the error's exit code, see ``source.errors``.

    If a report in JSON was asked for, the line is the error's ``to_json``; else it is one of the log.

    The reader of standard output may close it before the end, as ``head`` does: that is no failure.
    """
    try:
        action()
        sys.stdout.flush()
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except Exception as error:
        if is_interrupted():  # cleaning up may have failed, for example without a JVM
            raise InterruptedBySignal from error
        if _is_unread(error):
            return
        from reput.streaming.process.failures import failure_of, one_line  # noqa: PLC0415  with Spark's modules

        failure = failure_of(error)
        if _is_read_by_program.get():
            write_error(failure.to_json())
        else:
            report_error(one_line(str(failure)))
        raise typer.Exit(failure.exit_code) from error


def _is_unread(error: BaseException) -> bool:
    """Whether `error` came from writing to a standard output that its reader has closed."""
    if not isinstance(error, BrokenPipeError):
        return False
    with suppress(OSError, ValueError):
        poll = select.poll()
        poll.register(STANDARD_OUTPUT, select.POLLOUT)
        is_closed = any(events & select.POLLERR for _, events in poll.poll(0))
        if is_closed:
            drop_output()
        return is_closed
    return False


def set_up_logging(log_format: LogFormat = LogFormat.TEXT, *, is_bounded: bool = False) -> LogLines:
    """Log reput's messages to standard error, and the command's error in the same format; return what makes the lines.

    If it `is_bounded`, warnings that repeat are told now and then, as is fit for a command that runs for years.
    """
    lines = LogLines(log_format)
    _lines.set(lines)
    log_to_standard_error(lines, is_bounded=is_bounded)
    return lines


def _log_lines() -> LogLines:
    """What makes the command's lines; those of text before the command has said otherwise."""
    return _lines.get() or LogLines()


def _version(show: bool) -> None:
    if show:
        typer.echo(f"reput {reput.__version__}")
        raise typer.Exit


# Commands that start Spark, or processes, with any options.
_NEEDS = {"tail": SPARK, "prepare": SPARK, "rebuild": PROCESSES, "verify": PROCESSES}


@app.callback()
def main_options(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001  its callback is what it does
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """RocketMQ's ReputMessageService outside the broker, on Spark."""
    # Checked before modules are loaded that need memory and descriptors themselves.
    run_or_fail(lambda: check_limits(_NEEDS.get(context.invoked_subcommand or "", READING)))
