"""The command line in the test's own process."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from unittest.mock import patch

import typer.testing
from typer.main import get_command

from reput.streaming.cli.commands import application

# Typer makes an application's commands anew for each call, with what the types of their functions say.
_commands = cache(get_command)


def invoke(words: Sequence[str], standard_input: str | None = None) -> typer.testing.Result:
    """Run `reput` with the words behind its name."""
    with patch.object(typer.testing, "_get_command", _commands):
        return typer.testing.CliRunner().invoke(application(), words, input=standard_input)
