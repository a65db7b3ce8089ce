"""The application: how a command of `reput` is registered, listed, completed by a shell and run; and its errors."""

from __future__ import annotations

import inspect
import os
import select
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from copy import copy
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, wraps
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

import reput
from reput.source.errors import OptionError
from reput.source.log.early_look import look_early
from reput.source.log.store_layout import COMMIT_LOG
from reput.source.printable import NUMBER_FORM
from reput.source.system import PROCESSES, READING, SPARK, check_limits
from reput.streaming.cli.log_lines import LogFormat, LogLines, log_to_standard_error, write_error
from reput.streaming.process.environment import made_absolute
from reput.streaming.process.interruption import InterruptedBySignal, is_interrupted
from reput.streaming.process.terminal import STANDARD_OUTPUT, drop_output

# click's class, whose name in Typer changes from one release to the next.
_UsageError: Final[type[Exception]] = typer.BadParameter.__mro__[1]
_WORDS: Final = "reput.words"
# More than any first line of a help has.
_LINE_MAX: Final = 500


#: The commands in the order of the help, by purpose.
SECTIONS: Final = {
    "Keep": ("tail", "status"),
    "Repair": ("rebuild", "recover", "resurrect"),
    "Prove": ("verify", "doctor"),
    "Look": ("query", "dump", "quarantine"),
    "Ask": ("ask", "offsets", "sql", "report"),
    "Backup": ("backup", "restore"),
    "Operate": ("queues", "convert", "table", "expire", "prepare"),
}


class WholeLine:
    """A command whose first line of help is never cut off; shells show it beside the command's name."""

    def get_short_help_str(self, limit: int = 0) -> str:  # noqa: ARG002  as click calls it
        """Return the line."""
        line: str = super().get_short_help_str(_LINE_MAX)  # type: ignore[misc]
        return line


class GroupBelow(WholeLine, TyperGroup):
    """A group of commands that is itself a command."""


class DefaultCommand(GroupBelow):
    """A group whose first command runs if none is named, as the command of the group's own name."""

    @property
    def default(self) -> Any:
        """The command."""
        return next(iter(self.commands.values()))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the command's name before its options."""
        if args and args[0].startswith("-") and args[0] not in ctx.help_option_names:
            args = [str(self.default.name), *args]
        return super().parse_args(ctx, args)


class AllCommands(TyperGroup):
    """All commands: the help has them in sections; a usage error suggests the right word, and may be JSON."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  as click calls it
        """Return the names in the order of the help."""
        return [name for names in SECTIONS.values() for name in names if name in self.commands]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section of the help for each purpose, with one line for each command."""
        width = max(map(len, self.list_commands(ctx)))
        for title, names in SECTIONS.items():
            known = [(name.ljust(width), self.commands[name]) for name in names if name in self.commands]
            with formatter.section(title):
                formatter.write_dl([(name, each.get_short_help_str(formatter.width)) for name, each in known])

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Read the words before the command's name."""
        words = tuple(args)
        with _told_as_asked(words):
            context = super().make_context(info_name, args, parent, **extra)
        context.meta[_WORDS] = words
        return context

    def invoke(self, ctx: Any) -> Any:
        """Read the words of the command, and run it."""
        with _told_as_asked(ctx.meta[_WORDS]):
            return super().invoke(ctx)

    def _main_shell_completion(self, ctx_args: Any, prog_name: str, complete_var: str | None = None) -> None:
        """Answer a shell with a script that it reads at its start, or with the words that may follow."""
        variable = complete_var or f"_{prog_name.replace('-', '_').replace('.', '_')}_COMPLETE".upper()
        if asked := os.environ.get(variable):
            from typer.completion import completion_init  # type: ignore[attr-defined]  # noqa: PLC0415

            completion_init()
            # click, and most instructions, name the shell first; Typer names it last.
            first, _, last = asked.partition("_")
            if last in ("source", "complete"):
                os.environ[variable] = f"{last}_{first}"
        super()._main_shell_completion(ctx_args, prog_name, complete_var)


@contextmanager
def _told_as_asked(words: Sequence[str]) -> Iterator[None]:
    try:
        yield
    except _UsageError as usage:
        error: Any = usage
        _name_what_is_meant(error)
        if _wants_json(words):
            context = error.ctx
            advice = None if context is None else f"see '{context.command_path} --help'"
            write_error(OptionError(error.format_message().rstrip("."), advice=advice).to_json())
        elif _is_asked(words, "--log-format", "json"):
            write_error(LogLines(LogFormat.JSON).failure(error.format_message()))
        else:
            raise
        raise typer.Exit(error.exit_code) from error


def _name_what_is_meant(error: Any) -> None:
    """Add to the error where an unknown option belongs, or the options that look like it.

    Click alone also compares the dashes, and sorts the names.
    """
    from reput.source.options import nearest  # noqa: PLC0415  takes 20 ms, and few commands need it

    wrong = getattr(error, "option_name", None)
    if not hasattr(error, "possibilities") or error.ctx is None or wrong is None:
        return
    below = getattr(error.ctx.command, "commands", {}).values()
    if any(wrong in option.opts for command in below for option in command.params):
        path = error.ctx.command_path
        error.message, error.possibilities = f"{wrong} comes after the command: '{path} COMMAND {wrong} ...'.", None
        return
    known = {name for each in error.ctx.command.get_params(error.ctx) for name in (*each.opts, *each.secondary_opts)}
    names = {name.lstrip("-"): name for name in sorted(known) if name.startswith("--")}
    near = [names[name] for name in nearest(wrong.lstrip("-"), names)]
    meant = f" Did you mean {' or '.join(near)}?" if near else ""
    error.message, error.possibilities = f"No such option: {wrong!r}.{meant}", None


def _wants_json(words: Sequence[str]) -> bool:
    return "--json" in words or _is_asked(words, "--format", "json")


def _is_asked(words: Sequence[str], option: str, value: str) -> bool:
    return f"{option}={value}" in words or (option, value) in zip(words, words[1:], strict=False)


_ABOUT = "Make a RocketMQ broker's queues, index and a table of messages from its commitlog, outside the broker."
_Function = TypeVar("_Function", bound=Callable[..., Any])


class _Command(WholeLine, TyperCommand):
    """A command that prints its errors in one line (``run_or_fail``); what its function returns is its exit code."""

    #: Earlier names of options, each with today's; the help does not show them.
    old_names: Mapping[str, str] = {}

    def make_parser(self, ctx: Any) -> Any:
        """Return a parser that also knows the old names."""
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
                if isinstance(store := given.get("store"), Path):
                    look_early(store / COMMIT_LOG)
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

    def group(self, name: str, words: str, kind: type[GroupBelow] = GroupBelow, **how: Any) -> Application:
        """Return a new group of commands, which is a command of this one; `words` are its help."""
        below = Application(help=words, cls=kind, rich_markup_mode=None, **how)
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
# A command that runs for years, and keeps its output in files.
_SERVICE = "tail"
# Whether the command prints JSON: then its error is also JSON.
_is_read_by_program: ContextVar[bool] = ContextVar("is_read_by_program", default=False)
# Makes the lines of the command's log, once the log is set up.
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
    """Log reput's messages, and the command's error, to standard error in one format; return the maker of the lines.

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
_PROCESSES = ("rebuild", "convert", "verify", "restore")
_NEEDS = {"tail": SPARK, "prepare": SPARK, **dict.fromkeys(_PROCESSES, PROCESSES)}


@app.callback(help=_ABOUT)
def main_options(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001  its callback is what it does
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Check the limits of the system before a command runs."""
    # Check this before loading modules that need memory and descriptors themselves.
    run_or_fail(lambda: check_limits(_NEEDS.get(context.invoked_subcommand or "", READING)))


# The modules with another name than their command's.
_MODULES: Final = {
    **dict.fromkeys(("rebuild", "queues", "convert", "recover", "expire"), "repair"),
    **dict.fromkeys(("verify", "doctor"), "prove"),
    **dict.fromkeys(("query", "dump", "quarantine", "offsets", "report"), "look"),
    **dict.fromkeys(("status", "prepare"), "tail"),
    "restore": "backup",
}


def application(command: str | None = None) -> Application:
    """Return the application with `command` alone, which starts sooner, or with all commands if the name is unknown."""
    known = [name for names in SECTIONS.values() for name in names]
    for name in [command] if command in known else known:
        import_module(f"{__package__}.{_MODULES.get(name, name)}")
    return app
