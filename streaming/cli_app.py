"""What the commands of `reput` share: the application, its exit codes, common options."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

import reput
from reput.source.errors import OptionError, ReputError, remote_error

app = typer.Typer(
    name="reput",
    help="RocketMQ's ReputMessageService outside the broker, on Spark.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)
_WRONG_USAGE = 2
_FAILED = 1

errors = Console(stderr=True)

Store = Annotated[Path, typer.Option(help="The broker's store root, which holds commitlog/; only read.")]
Output = Annotated[Path, typer.Option(help="What 'reput tail' keeps, or a copy of a store.")]
BrokerConf = Annotated[Path | None, typer.Option(help="The broker's broker.conf: sizes, index switches, paths.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only tell what would be done.")]
ConfigFile = Annotated[
    Path | None, typer.Option(help="A file like conf/reput.toml; broker.conf and the command line beat it.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", help="name=value, any option of conf/reput.toml; may be repeated."),
]
Verbose = Annotated[bool, typer.Option("--verbose", help="Leave Spark's own messages on the terminal.")]
Json = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]


def _fail(error: BaseException, code: int) -> NoReturn:
    errors.print(f"reput: {error}", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(code)


def run_or_fail(action: Callable[[], None]) -> None:
    """Run a command; its errors become one line and an exit code: 1 failed, 2 wrong usage."""
    try:
        action()
    except ReputError as error:
        _fail(error, error.exit_code)
    except Exception as error:
        remote = remote_error(error)
        if remote is None:
            raise
        name, message = remote
        _fail(ReputError(message), _WRONG_USAGE if name == OptionError.__name__ else _FAILED)


def set_up_logging() -> None:
    """Messages of reput, with their time, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger("reput")
    logger.handlers = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False


def _version(show: bool) -> None:
    if show:
        typer.echo(f"reput {reput.__version__}")
        raise typer.Exit


@app.callback()
def main_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """RocketMQ's ReputMessageService outside the broker, on Spark."""
