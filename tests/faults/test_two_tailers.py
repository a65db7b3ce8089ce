"""G9: of two that begin at the same moment exactly one gets the output, and a kill gives it back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.proof_counts import Proof

#: At each line: wait until the time it says, try to lock, say what came of it; a next line gives the lock back.
RACER = """
import sys, time
from pathlib import Path
from reput.sinks.files.store_lock import StoreLock
from reput.source.errors import StoreLockedError
print("ready", flush=True)
for line in sys.stdin:
    until, lock = float(line), None
    while time.monotonic() < until:
        pass
    try:
        lock = StoreLock(Path(sys.argv[1]))
        print("won", flush=True)
    except StoreLockedError as error:
        print(error, flush=True)
    sys.stdin.readline()
    if lock is not None:
        lock.close()
    print("free", flush=True)
"""


class Racer:
    """A process that takes and releases the lock of an output on command."""

    def __init__(self, root: Path) -> None:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", RACER, str(root)]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.answer() == "ready"

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()


def race(racers: list[Racer], number: int) -> tuple[Racer, Racer]:
    """Let both try at one moment; the winner and the loser."""
    for racer in racers:
        racer.tell(str(time.monotonic() + 0.003))
    said = [racer.answer() for racer in racers]
    assert sorted(answer == "won" for answer in said) == [False, True], (number, said)
    winner, loser = racers if said[0] == "won" else racers[::-1]
    lost = next(answer for answer in said if answer != "won")
    assert f"is locked by process {winner.process.pid}: a broker or another reput works on this output" in lost
    return winner, loser


@pytest.mark.parametrize("races", [50, pytest.param(2000, marks=pytest.mark.slow)])
def test_exactly_one_of_two_wins(races: int, tmp_path: Path, proof: Proof) -> None:
    """Every tenth winner is killed: its lock is free at once, with nothing to clean up."""
    with ExitStack() as stack:
        racers = [Racer(tmp_path / "out") for _ in range(2)]
        stack.callback(lambda: [racer.end() for racer in racers])
        for number in range(races):
            winner, loser = race(racers, number)
            if number % 10 == 9:
                winner.end()
                loser.tell("give it back")
                assert loser.answer() == "free"
                racers = [loser, Racer(tmp_path / "out")]
                proof("G9 winners killed")
            else:
                for racer in racers:
                    racer.tell("give it back")
                assert [racer.answer() for racer in racers] == ["free", "free"]
            proof("G9 races for the lock")
