"""The status document in a file of the output, for `reput status` and for whoever finds a run that has ended."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.store_path import REPUT
from reput.source.errors import OutputError
from reput.streaming.status.status_document import FORMAT_VERSION

STATUS_FILE = (REPUT, "status.json")
# What the page draws from, and nobody asks of a file.
_LEFT_OUT = ("lags",)
# How often the file is written at most, and at least, in seconds.
_WRITTEN_EVERY_S, _RENEWED_EVERY_S = 5.0, 60.0


class StatusFile:
    """Writes the status of a run into its output; a file that cannot be written is no reason to stop."""

    def __init__(self, output: Path) -> None:
        self._files = DurableFiles(output)
        self._written_at = float("-inf")
        self._written: object = None

    def is_due(self, now: float) -> bool:
        """Whether `write` may write at `now` (monotonic seconds)."""
        return now - self._written_at >= _WRITTEN_EVERY_S

    def write(self, status: dict[str, Any], now: float, *, at_once: bool = False) -> None:
        """Write `status` at `now` if the state or an offset has changed, if a minute has passed, or `at_once`."""
        gist = _gist(status)
        if not at_once and gist == self._written and now - self._written_at < _RENEWED_EVERY_S:
            return
        if not self._files.root.joinpath(REPUT).is_dir():  # the output's disk may not be mounted
            return
        self._written_at, self._written = now, gist
        brokers = [{**broker, "queries": [_kept(query) for query in broker["queries"]]} for broker in status["brokers"]]
        with suppress(OutputError):
            self._files.put_unsynced(*STATUS_FILE, data=json.dumps({**status, "brokers": brokers}).encode())


def _kept(query: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in query.items() if name not in _LEFT_OUT}


def _gist(status: dict[str, Any]) -> object:
    """What makes it worth to write the file before its time."""
    return status["state"], [
        (broker["state"], [(query["phase"], query["commitOffset"]) for query in broker["queries"]])
        for broker in status["brokers"]
    ]


def load_status(output: Path) -> dict[str, Any] | None:
    """The document that the last run wrote; None if there is none.

    Raises
    ------
    OutputError
        It cannot be read, or a later release wrote it.
    """
    path = output.joinpath(*STATUS_FILE)
    try:
        document: dict[str, Any] = json.loads(path.read_bytes())
        version = document["formatVersion"]
    except FileNotFoundError:
        return None
    except OSError as error:
        raise OutputError(f"cannot read {path}: {error.strerror}", file=path) from error
    except (ValueError, LookupError, TypeError) as error:
        raise OutputError(
            f"{path} is no status of reput", advice="remove it: 'reput tail' writes a new one", file=path
        ) from error
    if version != FORMAT_VERSION:
        raise OutputError(
            f"{path} has format {version}, this release reads {FORMAT_VERSION}",
            advice="ask with the release that runs",
            file=path,
        )
    return document
