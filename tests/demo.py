"""`make demo`: the main job on a store that a real RocketMQ 4.9.3 broker left, checked against the broker's own files.

It runs the commands a user would run, `reput tail` and `reput sql`, and compares the result byte for byte.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

from support.broker_stores import unpack
from support.paths import DATA
from support.store_compare import differing_bytes, store_files

STORE = "v4-plain"


def reput(*arguments: str | Path, capture: bool = False) -> str:
    """Run the command line as a user does; its output is shown, or given back."""
    command = [str(Path(sys.executable).with_name("reput")), *(str(argument) for argument in arguments)]
    print("$ reput", " ".join(map(str, arguments)), flush=True)
    done = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE if capture else None)
    return done.stdout or ""


def main() -> None:
    """Unpack, tail, compare, query; exit code 1 when anything differs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", type=Path, required=True, help="a directory for the demo's files; emptied first")
    work = parser.parse_args().work
    began = time.monotonic()
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    home = unpack(STORE, work)
    facts = json.loads((DATA / f"{STORE}.json").read_text())
    store, output, table = home / "store", work / "output", work / "messages"
    broker_conf = home / "broker.conf"

    reput(
        *("tail", "--store", store, "--broker-conf", broker_conf),
        *("--output", output, "--table", table, "--available-now"),
    )
    differences = differing_bytes(store, output)
    compared = sorted(store_files(store))
    queues = sum(name.startswith("consumequeue/") for name in compared)
    # The window counts every row of the table, so that one statement answers both questions.
    by_tag = (
        "SELECT topic, tags, count(*) messages, sum(msg_size) bytes, min(store_time) first_stored, "
        "sum(count(*)) OVER () rows_in_table FROM messages GROUP BY topic, tags"
    )
    query = f"SELECT * FROM ({by_tag}) WHERE topic = 'TopicA' AND tags IN ('TagA', 'TagB') ORDER BY tags"
    answer = reput("sql", "--table", table, "--format", "csv", query, capture=True)
    print(answer)
    rows = int(next(csv.DictReader(answer.splitlines()))["rows_in_table"])

    print(f"messages in the log        {facts['totalMessages']}")
    print(f"rows in the table          {rows}")
    print(f"ConsumeQueue files compared {queues}, IndexFiles compared {len(compared) - queues}")
    print(f"differing bytes            {sum(differences.values())}")
    print(f"seconds                    {time.monotonic() - began:.0f}")
    for name, number in differences.items():
        print(f"  {name}: {number} bytes differ")
    if differences or rows != facts["totalMessages"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
