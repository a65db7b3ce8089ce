"""What is raised where the system refuses to do something to a file."""

from __future__ import annotations

from pathlib import Path

from reput.source.errors import OutputError
from reput.source.resource_limits import limit_reached
from reput.source.system_errors import output_error_of


def refused(action: str, path: Path, error: OSError) -> OutputError:
    """What to raise where the system refused to do something to a file: `action` is a verb, and what is done."""
    needed = "the output needs a writable directory with room on its disk"
    why, advice = limit_reached(error) or (error.strerror, needed)
    return output_error_of(error)(f"cannot {action} {path}: {why}", advice=advice, file=path)
