"""All commands of `reput`; the module of each registers it when it is loaded."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from reput.streaming.cli.app import Application, app
from reput.streaming.cli.usage import SECTIONS

# The modules with another name than their command's.
_MODULES: Final = {"recover": "maintenance", "expire": "maintenance"}


def application(command: str | None = None) -> Application:
    """Return the application with `command` alone, which starts sooner, or with all commands if the name is unknown."""
    known = [name for names in SECTIONS.values() for name in names]
    for name in [command] if command in known else known:
        import_module(f"{__package__}.{_MODULES.get(name, name)}")
    return app
