"""The application: how a command of `reput` is registered, runs, and prints its errors."""

from __future__ import annotations

import inspect
import os
import select
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from copy import copy
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, wraps
from typing import Annotated, Any, TypeVar, get_type_hints

import typer
from typer.core import TyperCommand

import reput
from reput.source.printable import NUMBER_FORM
from reput.source.system import PROCESSES, READING, SPARK, check_limits
from reput.streaming.cli.log_lines import LogFormat, LogLines, log_to_standard_error, write_error
from reput.streaming.cli.usage import AllCommands, GroupBelow, WholeLine
from reput.streaming.process.environment import made_absolute
from reput.streaming.process.interruption import InterruptedBySignal, is_interrupted
from reput.streaming.process.terminal import STANDARD_OUTPUT, drop_output

_ABOUT = "Make a RocketMQ broker's queues, index and a table of messages from its commitlog, outside the broker."
_Function = TypeVar("_Function", bound=Callable[..., Any])


class _Command(WholeLine, TyperCommand):
    """A command that prints its errors in one line (``run_or_fail``); what its function returns is its exit code."""

    #: Names that options had in earlier releases, with today's; the help does not show them.
    old_names: Mapping[str, str] = {}

    def make_parser(self, ctx: Any) -> Any:
        """Return a parser that knows the old names, too."""
        parser = super().make_parser(ctx)
        for option in self.get_params(ctx):
            for old, new in self.old_names.items():
                if new in option.opts:
                    renamed = copy(option)
                    renamed.opts = [old]
                    renamed.add_to_parser(parser, ctx)
        return parser

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        is_json = ctx.params.get("as_json", False) or ctx.params.get("output_format") == _JSON_FORMAT
        before, lines_before = _is_read_by_program.set(is_json), _lines.set(None)
        for_people = not is_json and ctx.info_name != _SERVICE and _is_terminal()
        form_before = NUMBER_FORM.set("," if for_people else "")
        result: list[Any] = []
        try:
            run_or_fail(lambda: result.append(super(_Command, self).invoke(ctx)))
        except InterruptedBySignal as stopped:
            raise InterruptedBySignal(_log_lines().stopped) from stopped
        finally:
            NUMBER_FORM.reset(form_before)
            _lines.reset(lines_before)
            _is_read_by_program.reset(before)
        if result and result[0]:
            raise typer.Exit(result[0])


class MissingOptionError(typer.BadParameter):
    """An option is missing that this call requires; the message is that of an option that is always required."""

    def __init__(self, name: str, context: typer.Context) -> None:
        super().__init__(f"Missing option '{name}'.", ctx=context)

    def format_message(self) -> str:
        """Return the message alone."""
        return str(self.message)


class Application(typer.Typer):
    """A Typer whose commands take groups of options, and print errors in one line."""

    def command(
        self, name: str | None = None, *, old_names: Mapping[str, str] | None = None, **options: Any
    ) -> Callable[[_Function], _Function]:
        """Register a command of class `_Command`, as ``Typer.command`` does.

        A parameter whose type is a dataclass is a group: each of its fields is an option (``cli.options``). Two groups
        may have an option in common. The help has required options first, and those of groups last. Paths become
        absolute (``environment``), so that they do not depend on the current directory any more.
        """
        kind = type("_Command", (_Command,), {"old_names": old_names or {}})
        register = super().command(name, **{"cls": kind, **options})

        def decorate(function: _Function) -> _Function:
            takes = inspect.signature(function, eval_str=True).parameters
            groups: dict[str, Any] = {name: each.annotation for name, each in takes.items() if _is_group(each)}
            own = {name: each.replace(kind=each.KEYWORD_ONLY) for name, each in takes.items() if name not in groups}
            options = own | {name: each for group in groups.values() for name, each in _options_of(group).items()}

            # Around the function, since some versions of Typer make paths of texts only when they call it.
            @wraps(function)
            def called(**given: Any) -> Any:
                given = {name: made_absolute(value) for name, value in given.items()}
                made = {
                    name: group(**{each: given[each] for each in _options_of(group)}) for name, group in groups.items()
                }
                return function(**made, **{name: given[name] for name in own})

            called.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
                sorted(options.values(), key=lambda option: option.default is not option.empty)
            )
            register(called)
            return function

        return decorate

    def group(self, name: str, words: str, **how: Any) -> Application:
        """Return a new group of commands, which is a command of this one; `words` are its help."""
        below = Application(help=words, cls=GroupBelow, rich_markup_mode=None, **how)
        self.add_typer(below, name=name)
        return below


def _is_group(parameter: inspect.Parameter) -> bool:
    return is_dataclass(parameter.annotation)


@cache
def _options_of(group: type[Any]) -> dict[str, inspect.Parameter]:
    """Return a parameter for each field of a group of options; those that it inherits come last."""
    hints = get_type_hints(group, include_extras=True)
    names = dict.fromkeys(name for kind in group.__mro__ for name in vars(kind).get("__annotations__", ()))
    made = {each.name: each for each in fields(group) if each.init}
    return {
        name: inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if made[name].default is MISSING else made[name].default,
            annotation=hints[name],
        )
        for name in names
        if name in made
    }


app = Application(
    name="reput",
    cls=AllCommands,
    help=_ABOUT,
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)
_JSON_FORMAT = "json"
# A command that runs for years, and keeps files of what it says.
_SERVICE = "tail"
# Whether the command prints JSON: then its error is JSON, too.
_is_read_by_program: ContextVar[bool] = ContextVar("is_read_by_program", default=False)
# What makes the lines of the command's log, once the log is set up.
_lines: ContextVar[LogLines | None] = ContextVar("lines", default=None)


def report_error(words: str) -> None:
    """Print one line to standard error; the line is lost if nothing reads standard error any more."""
    write_error(_log_lines().failure(words))


def run_or_fail(action: Callable[[], None]) -> None:
    """Run a command; print an error as one line, and end with the error's exit code (``source.errors``).

    If the command prints JSON, the line is the error's ``to_json``; otherwise it is a line of the log.

    The reader of standard output may close it before the end, as ``head`` does. That is not a failure.
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
    """Return whether `error` came from a write to a standard output that its reader has closed."""
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


def _is_terminal() -> bool:
    """Return whether a person reads standard output."""
    return sys.stdout.isatty()


def verdict(words: str, *, is_good: bool) -> str:
    """Return words that are green or red on a terminal, unless NO_COLOR is set (no-color.org)."""
    if not _is_terminal() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return words
    return typer.style(words, fg="green" if is_good else "red", bold=True)


def set_up_logging(log_format: LogFormat = LogFormat.TEXT, *, is_bounded: bool = False) -> LogLines:
    """Log reput's messages, and the command's error, to standard error in one format; return what makes the lines.

    If the log `is_bounded`, few of the warnings that repeat are printed, since the command may run for years.
    """
    lines = LogLines(log_format)
    _lines.set(lines)
    log_to_standard_error(lines, is_bounded=is_bounded)
    return lines


def _log_lines() -> LogLines:
    """Return what makes the command's lines: lines of text until the command has set another format."""
    return _lines.get() or LogLines()


def _version(show: bool) -> None:
    if show:
        typer.echo(f"reput {reput.__version__}")
        raise typer.Exit


# Commands that start Spark, or processes, with any options.
_NEEDS = {"tail": SPARK, "prepare": SPARK, "rebuild": PROCESSES, "verify": PROCESSES}


@app.callback(help=_ABOUT)
def main_options(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001  its callback is what it does
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Check the limits of the system before a command runs."""
    # Checked before modules are loaded that need memory and descriptors themselves.
    run_or_fail(lambda: check_limits(_NEEDS.get(context.invoked_subcommand or "", READING)))
