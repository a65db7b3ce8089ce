"""The part of `reput tail` that keeps the ledger of consumption, in a process that runs until it is killed."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from reput.streaming.config.pipeline import load_config
from reput.streaming.output.paths import OutputPaths
from reput.streaming.tail.consumption import consumption_watched


def main() -> None:
    """Watch the store below the directory that is given, and write into the table below it."""
    root = Path(sys.argv[1])
    config = load_config(root / "store", overrides=["broker=broker-a", "tableTriggerMs=100"])
    with consumption_watched(config, OutputPaths(root / "out", root / "table")):
        print("begun", flush=True)
        while True:
            time.sleep(60)


if __name__ == "__main__":
    main()
