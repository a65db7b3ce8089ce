"""All commands of `reput`, in the order of its help; the module of each registers it when it is loaded."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from reput.streaming.cli.app import Application, app

_MODULES: Final = {
    "tail": "tail",
    "status": "status",
    "rebuild": "rebuild",
    "sql": "sql",
    "report": "report",
    "query": "query",
    "dump": "dump",
    "recover": "maintenance",
    "expire": "maintenance",
    "verify": "verify",
    "doctor": "doctor",
    "prepare": "prepare",
    "ask": "ask",
    "quarantine": "quarantine",
    "table": "table",
}


def application(command: str | None = None) -> Application:
    """The application with `command` alone, which starts sooner, or with all commands if there is none of that name."""
    modules = _MODULES.values() if command not in _MODULES else [_MODULES[command]]
    for name in dict.fromkeys(modules):
        import_module(f"{__package__}.{name}")
    return app
