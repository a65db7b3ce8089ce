"""The list of commands, errors of usage, and the completion of words by a shell."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import typer
from typer.core import TyperGroup

from reput.source.errors import OptionError
from reput.streaming.cli.log_lines import LogFormat, LogLines, write_error

# The class of click's, which Typer has by another name from one release to the next.
_UsageError: Final[type[Exception]] = typer.BadParameter.__mro__[1]
_WORDS: Final = "reput.words"
# More than any first line of a help has.
_LINE_MAX: Final = 500


#: The commands in the order of the help, by what they are for.
SECTIONS: Final = {
    "Keep": ("tail", "status"),
    "Repair": ("rebuild", "recover"),
    "Prove": ("verify", "doctor"),
    "Look": ("query", "dump", "quarantine"),
    "Ask": ("ask", "offsets", "sql", "report"),
    "Operate": ("table", "expire", "prepare"),
}


class WholeLine:
    """A command whose first line of help is never cut off; shells show it beside the command's name."""

    def get_short_help_str(self, limit: int = 0) -> str:  # noqa: ARG002  as click calls it
        """Return the line."""
        line: str = super().get_short_help_str(_LINE_MAX)  # type: ignore[misc]
        return line


class GroupBelow(WholeLine, TyperGroup):
    """A group of commands that is itself a command."""


class AllCommands(TyperGroup):
    """All commands: its help has them in sections; a usage error names what may be meant, and is JSON if asked for."""

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
            # click, and most that tell how to do it, name the shell first; Typer names it last.
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
    """Add the options that look like an unknown one to the error. Click also compares the dashes, and sorts them."""
    from reput.source.options import nearest  # noqa: PLC0415  takes 20 ms, and few commands need it

    wrong = getattr(error, "option_name", None)
    if not hasattr(error, "possibilities") or error.ctx is None or wrong is None:
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
