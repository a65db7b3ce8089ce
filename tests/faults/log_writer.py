"""A process that appends messages to a commitlog until its input ends: a broker as far as a reader sees.

``python log_writer.py DIRECTORY RATE`` with ``tests`` on PYTHONPATH; says how many messages it wrote.
"""

from __future__ import annotations

import itertools
import select
import sys
import time
from pathlib import Path

from support.record_writer import CommitLogWriter, Message

SEGMENT_BYTES = 1 << 20


def message(number: int) -> Message:
    """One of three topics, with a key, a unique key and tags."""
    properties = {"KEYS": f"order-{number % 997}", "UNIQ_KEY": f"{number:032X}", "TAGS": f"Tag{number % 3}"}
    topic, queues = (("A", 4), ("B", 2), ("C", 1))[number % 7 % 3]
    return Message(
        topic,
        number % queues,
        body=b"x" * (number % 300),
        properties=properties,
        born_timestamp=int(time.time() * 1000),
        store_timestamp=int(time.time() * 1000),
    )


def main() -> None:
    """Write at the rate until standard input ends."""
    directory, rate = Path(sys.argv[1]), float(sys.argv[2])
    with CommitLogWriter(directory, SEGMENT_BYTES, preallocate=True) as writer:
        began = time.monotonic()
        for number in itertools.count():
            writer.append(message(number))
            if number == 0:
                print("begun", flush=True)
            ahead = number / rate - (time.monotonic() - began)
            if select.select([sys.stdin], [], [], max(0.0, ahead))[0]:
                break
        print(len(writer.records), flush=True)


if __name__ == "__main__":
    main()
