"""The status document in a file of the output, for `reput status` and for whoever finds a run that has ended."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.store_path import REPUT
from reput.source.errors import OutputError
from reput.source.format_version import check_format
from reput.streaming.status.judgement import judge
from reput.streaming.status.run_state import RunState
from reput.streaming.status.status_document import FORMAT_VERSION, status_document

STATUS_FILE = (REPUT, "status.json")
# What the page draws from, and nobody asks of a file.
_LEFT_OUT = ("lags",)
# When the file was written, besides the time of day: which start of the machine it was, and how long after it.
_BOOT, _MONOTONIC = "boot", "monotonicSeconds"
# How often the file is written at most, and at least, in seconds.
_WRITTEN_EVERY_S, _RENEWED_EVERY_S = 5.0, 60.0


class StatusFile:
    """Writes the status of a run into its output; a file that cannot be written is no reason to stop."""

    def __init__(self, output: Path, run: RunState) -> None:
        self._files = DurableFiles(output)
        self._run = run
        self._written_at = float("-inf")
        self._written: object = None

    def write(self, facts: dict[str, Any], now: float, *, at_once: bool = False) -> None:
        """Write the status, with `facts`, at `now` (monotonic seconds) if that is due or `at_once` says so.

        It is due every five seconds if the state or an offset has changed, or the log's end became known; else every
        minute.
        """
        since = now - self._written_at
        if since < _WRITTEN_EVERY_S and not at_once:
            return
        gist = _gist(self._run)
        if gist == self._written and since < _RENEWED_EVERY_S and not at_once:
            return
        if not self._files.root.joinpath(REPUT).is_dir():  # the output's disk may not be mounted
            return
        self._written_at, self._written = now, gist
        status = {**status_document([self._run], facts), **_moment()}
        brokers = [{**broker, "queries": [_kept(query) for query in broker["queries"]]} for broker in status["brokers"]]
        with suppress(OutputError):
            self._files.put_unsynced(*STATUS_FILE, data=json.dumps({**status, "brokers": brokers}).encode())


def seconds_since_written(status: dict[str, Any]) -> float:
    """How old a document of this machine is; by the time of day only if the machine was started since."""
    moment = _moment()
    if status.get(_BOOT) == moment[_BOOT]:
        return float(max(0.0, moment[_MONOTONIC] - float(status[_MONOTONIC])))
    return max(0.0, time.time() - float(status["at"]))


def _moment() -> dict[str, Any]:
    """The present by a clock that nobody sets, which all processes share until the machine is started again."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    return {_BOOT: boot, _MONOTONIC: time.monotonic()}


def _kept(query: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in query.items() if name not in _LEFT_OUT}


def _gist(run: RunState) -> object:
    """What makes it worth to write the file before its time."""
    with run.read():
        queries = [(name, query.phase, query.end) for name, query in sorted(run.queries.items())]
        # How far a query is behind is known once the log's end is, which may be after nothing else changes any more.
        return judge(run).state, run.log_end is None, queries


def load_status(output: Path) -> dict[str, Any] | None:
    """The document that the last run wrote; None if there is none.

    Raises
    ------
    OutputError
        It cannot be read.
    LaterFormatError
        A later release wrote it.
    """
    path = output.joinpath(*STATUS_FILE)
    try:
        document: dict[str, Any] = json.loads(path.read_bytes())
        check_format(path, document["formatVersion"], FORMAT_VERSION, file=path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise OutputError(f"cannot read {path}: {error.strerror}", file=path) from error
    except (ValueError, LookupError, TypeError) as error:
        raise OutputError(
            f"{path} is no status of reput", advice="remove it: 'reput tail' writes a new one", file=path
        ) from error
    return document
