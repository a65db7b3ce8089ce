"""G6: what keeps the ledger of consumption is killed with -9 again and again while consumer groups move.

In full: ``REPUT_PROOF_KILLS=200 pytest -m slow tests/faults/test_consumption_kills.py``, about two seconds a kill.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from faults import consumption_tail
from faults.tail_process import environment
from support.proof_counts import Proof

from reput.sinks.findings import Findings
from reput.sinks.table.consumption import ConsumptionTable
from reput.sinks.table.consumption_check import check_consumption
from reput.streaming.sql.duckdb_query import duckdb_query

KILLS = int(os.environ.get("REPUT_PROOF_KILLS", "40"))
SEED = int(os.environ.get("REPUT_PROOF_SEED", "46"))
BEGINS_WITHIN_S = 60
GROUPS, QUEUES = 5, 4


class Consumers:
    """Groups that move, and the broker that writes down where they are, as ``MixAll.string2File`` does it."""

    def __init__(self, config: Path, rng: random.Random) -> None:
        self._file, self._rng = config / "consumerOffset.json", rng
        self.offsets = {f"orders@group-{number}": dict.fromkeys(range(QUEUES), 0) for number in range(GROUPS)}
        #: By group and queue: each offset that was written, with the times (ms) before and after that.
        self.written: dict[tuple[str, int], list[tuple[int, int, int]]] = defaultdict(list)
        config.mkdir(parents=True)
        self.write()

    def write(self) -> None:
        """Move some groups, one of them back now and then, and write the file."""
        for queues in self.offsets.values():
            for queue_id in queues:
                if self._rng.random() < 0.3:
                    goes_back = self._rng.random() < 0.1
                    queues[queue_id] = max(0, queues[queue_id] + (-5 if goes_back else self._rng.randint(1, 20)))
        began = time.time_ns() // 1_000_000
        text = json.dumps(
            {"offsetTable": {name: {str(q): o for q, o in each.items()} for name, each in self.offsets.items()}}
        )
        temporary = self._file.with_name(f"{self._file.name}.tmp")
        temporary.write_text(text)
        with suppress(FileNotFoundError):
            self._file.with_name(f"{self._file.name}.bak").write_bytes(self._file.read_bytes())
            self._file.unlink()
        temporary.rename(self._file)
        ended = -(-time.time_ns() // 1_000_000)
        for name, queues in self.offsets.items():
            for queue_id, offset in queues.items():
                known = self.written[name.split("@")[1], queue_id]
                if not known or known[-1][0] != offset:
                    known.append((offset, began, ended))

    @contextmanager
    def moving(self) -> Iterator[None]:
        """Move them meanwhile, several times a second."""
        stop = threading.Event()

        def work() -> None:
            while not stop.wait(self._rng.uniform(0.05, 0.4)):
                self.write()

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


def begun(root: Path) -> subprocess.Popen[str]:
    """A process that keeps the ledger, which has begun to look."""
    command = [sys.executable, consumption_tail.__file__, str(root)]
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


def ledger(root: Path) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """The rows of each group and queue, in the order of their times."""
    statement = (
        "SELECT consumer_group, queue_id, offset_before, offset_after, move, epoch_ms(seen_before) AS since, "
        "epoch_ms(seen_after) AS until FROM messages ORDER BY seen_after"
    )
    found: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    with duckdb_query(root / "table-consumption", statement) as result:
        names = ("consumer_group", "queue_id", "offset_before", "offset_after", "move", "since", "until")
        for row in result.rows():
            named = dict(zip(names, row, strict=True))
            found[named["consumer_group"], named["queue_id"]].append(named)
    return found


def check(rows: list[dict[str, Any]], written: list[tuple[int, int, int]]) -> None:
    """Each row continues the one before it, and its interval holds the moments in which the offset moved."""
    assert [row["offset_before"] for row in rows] == [None, *(row["offset_after"] for row in rows[:-1])]
    at = -1
    for row in rows:
        # Where the offset was in between is not seen, also if it came back: it may have been there several times.
        before = [at, *(number for number in range(at + 1, len(written)) if written[number][0] == row["offset_before"])]
        after = [
            number
            for number, (offset, began, _) in enumerate(written)
            if number > at and offset == row["offset_after"] and began <= row["until"]
        ]
        assert after, (row, written)
        if row["since"] is not None and at >= 0:
            moved = [written[number + 1][2] for number in before if number + 1 <= after[-1]]
            assert max(moved) >= row["since"], (row, written)
        at = after[0]


@pytest.mark.parametrize("kills", [4, pytest.param(KILLS, marks=pytest.mark.slow)])
def test_no_move_is_lost_or_doubled(kills: int, tmp_path: Path, proof: Proof) -> None:
    """After every kill the next process continues: no gap, no repeat, no interval that a move is outside of."""
    rng = random.Random(SEED)
    (tmp_path / "out").mkdir()
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    consumers = Consumers(tmp_path / "store" / "config", rng)
    with consumers.moving():
        for _ in range(kills):
            process = begun(tmp_path)
            time.sleep(rng.uniform(0.0, 2.5))
            process.kill()
            process.communicate()
    process = begun(tmp_path)
    last = {tuple(reversed(name.split("@"))): queues for name, queues in consumers.offsets.items()}
    table, deadline = ConsumptionTable(tmp_path / "table", "broker-a", 1000), time.monotonic() + BEGINS_WITHIN_S
    while table.state()[0] != last:
        assert time.monotonic() < deadline, (table.state(), last)
        time.sleep(0.1)
    process.kill()
    process.communicate()
    rows = ledger(tmp_path)
    assert rows.keys() == consumers.written.keys()
    for key, of_queue in rows.items():
        check(of_queue, consumers.written[key])
    moves, findings = sum(map(len, rows.values())), Findings()
    assert check_consumption(tmp_path / "table", "broker-a", findings) == {"moves": moves}
    assert findings.first == []
    assert moves > kills
    proof("G6 keepers of the ledger of consumption killed with -9", kills)
    proof("G6 moves of consumer groups under such kills", moves)
