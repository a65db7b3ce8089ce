"""The command line in the test's own process."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any
from unittest.mock import patch

import typer.testing
from typer.main import get_command

from reput.streaming.cli.app import application

# Typer makes an application's commands again for each call, from the types of their functions.
_commands = cache(get_command)
#: All of `reput`, with every command.
APPLICATION: Any = get_command(application())


def invoke(words: Sequence[str], standard_input: str | None = None) -> typer.testing.Result:
    """Run `reput` with the words behind its name."""
    with patch.object(typer.testing, "_get_command", _commands):
        return typer.testing.CliRunner().invoke(application(), words, input=standard_input)


def run_reput(words: Sequence[str], code: int = 0) -> typer.testing.Result:
    """As `invoke`; it must end with `code`."""
    done = invoke(words)
    assert done.exit_code == code, (words, done.output, done.exception)
    return done


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that words name, and the words that are left."""
    command, rest = APPLICATION, [*words]
    while hasattr(command, "commands") and rest and rest[0] in command.commands:
        command = command.commands[rest.pop(0)]
    if rest and rest[0].startswith("-"):
        command = getattr(command, "default", command)
    return command, rest


def option_names(command: Any) -> set[str]:
    """The options of one command, and `--help`."""
    return {name for each in command.params for name in (*each.opts, *each.secondary_opts)} | {"--help"}


def every_option_name(command: Any) -> set[str]:
    """The options of a command and of all below it."""
    below = (every_option_name(each) for each in getattr(command, "commands", {}).values())
    return option_names(command).union(*below)
