"""What `reput status` says of a tail that runs or has ended, from what it left in its output."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

from reput.sinks.files.store_lock import is_locked
from reput.source.errors import OutputError
from reput.source.printable import counted, printable
from reput.streaming.status.batch_report import duration_text, size_text
from reput.streaming.status.judgement import State
from reput.streaming.status.status_document import STATUS_FILE, load_status, seconds_since_written

#: What `reput status` ends with; 3 is what ``systemctl status`` and init scripts say of a service that does not run.
EXIT_CODES: Final = {
    State.RUNNING: 0,
    State.STARTING: 0,
    State.STOPPED: 3,
    State.LAGGING: 10,
    State.WAITING: 11,
    State.DEGRADED: 12,
}
# A run renews its status every minute.
_SEEN_WITHIN_S = 180.0
_FINDINGS_SHOWN = 5


def status_of(output: Path) -> dict[str, Any]:
    """The status document of the tail that keeps `output`, as it is now.

    A tail that was killed could not say so: its document is changed to say it. One that has not renewed its document is
    said to wait.

    Raises
    ------
    OutputError
        There is no output, none that `reput tail` of this release kept, or it cannot be read.
    """
    if not output.is_dir():
        raise OutputError(
            f"no output at {output}: the directory does not exist",
            advice="give the --output of 'reput tail'",
            file=output,
        )
    status = load_status(output)
    if status is None:
        file = output.joinpath(*STATUS_FILE)
        raise OutputError(f"no status at {file}: no 'reput tail' of this release has kept this output", file=file)
    unseen = seconds_since_written(status)
    if State(status["state"]) is State.STOPPED:
        return status
    if not is_locked(output):
        _change(status, State.STOPPED, f"it ended without a word, at most {duration_text(unseen)} ago: it was killed")
    elif unseen > _SEEN_WITHIN_S:
        _change(status, State.WAITING, f"no sign of life for {duration_text(unseen)}")
    return status


def _change(status: dict[str, Any], state: State, reason: str) -> None:
    for each in (status, *status["brokers"]):
        each["state"], each["reason"] = state.value, reason


def exit_code_of(status: dict[str, Any]) -> int:
    """What the command ends with."""
    return EXIT_CODES[State(status["state"])]


def status_text(status: dict[str, Any]) -> str:
    """The status for people: a line each for the state, the run, its queries and the last findings."""
    lines = []
    for broker in status["brokers"]:
        lines.append(f"{broker['state']:<9} {broker['reason']}")
        seen = duration_text(seconds_since_written(status))
        began = _utc(broker["startedAt"])
        lines.append(f"broker    {broker['broker']}, process {status['pid']}, since {began}, as of {seen} ago")
        lines += [_query_line(query) for query in broker["queries"]]
        found = broker["findings"][:_FINDINGS_SHOWN]
        lines += [f"found     {_utc(each['at'])} {each['query']}: {each['text']}" for each in found]
    return "\n".join(printable(line) for line in lines)


def _query_line(query: dict[str, Any]) -> str:
    behind, end = query["behind"], query["commitOffset"]
    restarts = f", started again {counted(query['restarts'], 'time')}" if query["restarts"] else ""
    return (
        f"{query['query']:<9} {query['phase']}, {counted(query['messages'], 'message', form=',')} in this run, "
        f"end offset {'?' if end is None else end}, "
        f"{size_text(behind['bytes'])} and {duration_text(behind['seconds'])} behind{restarts}"
    )


def _utc(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
