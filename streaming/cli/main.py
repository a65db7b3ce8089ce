"""The `reput` command, and its exit codes.

0: done, or stopped as asked; 1: a person must look; 2: wrong usage; 70: a defect of reput; 75: start it again. If a
signal interrupts a command before its result, the code is 128 plus the signal's number, as shells report it. `reput
tail` has no result but its output, and ends with 0. This module prepares the process before other modules are loaded,
so it loads none of them itself.
"""

from __future__ import annotations

import atexit
import io
import os
import sys
import threading
from contextlib import suppress
from typing import Any

from reput.source import system
from reput.source.system import load_without_threads
from reput.streaming.process import interruption
from reput.streaming.process.environment import hide_warnings, leave
from reput.streaming.process.terminal import drop_output, open_closed_streams

_SERVICE = "tail"


def run() -> None:
    """Run the command line and end the process.

    The process ends without unloading Python's modules, which would take a tenth of a look-up's time.
    """
    try:
        main()
        code: object = 0
    except SystemExit as ended:
        code = ended.code
    _end(code)
    sys.exit(code)  # type: ignore[arg-type]


def _end(code: object) -> None:
    """End the process, unless a thread is still at work or output cannot be written; Python handles these cases."""
    others = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    if isinstance(code, int) and all(thread.daemon for thread in others):
        atexit._run_exitfuncs()  # noqa: SLF001  what Python would do now
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def main() -> None:
    """Run the command line; raises SystemExit."""
    open_closed_streams()
    try:
        interruption.listen()
        system.look_seldom()
        load_without_threads()
        system.hide_pandas()
        hide_warnings()
        leave()
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # a terminal may lack a character
                stream.reconfigure(errors="backslashreplace")
        application = _application(*sys.argv[1:2])
        try:
            application()
        except OSError as error:  # of the help or the version; commands report theirs themselves
            drop_output()
            sys.stderr.write(f"reput: cannot write to standard output: {error.strerror}\n")
            sys.exit(1)
    except interruption.InterruptedBySignal as stopped:
        is_service = sys.argv[1:2] == [_SERVICE]
        sys.stderr.write(f"{stopped}\n")
        sys.exit(0 if is_service else interruption.exit_code())
    finally:
        interruption.ignore_further()


def _application(command: str | None = None) -> Any:
    from reput.streaming.cli.app import application  # noqa: PLC0415

    return application(command)


def __getattr__(name: str) -> Any:
    """Give `app` to callers from Python."""
    if name == "app":
        return _application()
    raise AttributeError(name)


if __name__ == "__main__":
    run()
