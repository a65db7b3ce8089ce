"""`reput` that cleans its table's log after a minute instead of a quarter of an hour, and looks more often."""

from __future__ import annotations

from reput.sinks.table import cleaning, upkeep
from reput.streaming.cli.main import main

if __name__ == "__main__":
    cleaning.READ_FOR_S = 60
    upkeep.CLEANED_EVERY = 20
    main()
