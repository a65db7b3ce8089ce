"""The application that ``spark-submit`` runs: the words after this file are those of the `reput` command.

``python -m reput.streaming.cli.application`` prints the path of this file, which that command needs.
"""

from __future__ import annotations

import os
import sys

_HELP = "reput: this is what spark-submit runs: spark-submit --master URL {file} tail --store STORE --output OUTPUT\n"


def run() -> None:
    """Run the command line with Spark in the JVM of ``spark-submit``, and end the process."""
    # Python looks for modules in the directory of the file that it runs, and this one has names such as `table`.
    here = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120  no module but these is loaded yet
    sys.path[:] = [path for path in sys.path if os.path.realpath(path or ".") != here]
    from reput.streaming.cli import main  # noqa: PLC0415
    from reput.streaming.process import environment  # noqa: PLC0415

    if not environment.take_up():
        sys.stderr.write(_HELP.format(file=os.path.abspath(__file__)))  # noqa: PTH100
        sys.exit(2)
    main.run()


if __name__ == "__main__":
    run()
