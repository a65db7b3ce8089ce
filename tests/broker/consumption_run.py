"""`make consumption`: who got each message, and when, as consumers write it down and as `reput ask consumed` says it.

    PYTHONPATH=tests python -m broker.consumption_run --work .work/consumption --minutes 20

A broker of 4.9.3 and one of 5.5.0, each with ten consumer groups, and one `reput tail` of both. Groups start, stop,
have different speeds, are reset back and ahead; one is made later and deleted. Brokers and the tail are killed with -9.
Each answer about a message and a group is then compared with what the consumers wrote down.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import threading
import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from faults.tail_process import TailProcess
from support.command_line import invoke
from support.deliveries import moment_ms

from broker.rocketmq import RocketMQ
from broker.server import Broker

Row = dict[str, Any]

RELEASES: Final = ("4.9.3", "5.5.0")
TOPIC: Final = "orders"
PRECISE_MS: Final = 15_000
# A client reports its first offset this late, and a broker takes part in a reset as long as its clients wait for it.
REPORTED_MS: Final = 10_000
BATCH: Final = 100
CLIENTS_START_S: Final = 10.0
#: When things happen, as parts of the run: lines of the plan of `Groups.java`.
PLAN: Final = (
    (0.0, "start", "fast", "concurrent 4 0"),
    (0.0, "start", "steady", "concurrent 2 20"),
    (0.0, "start", "slow", "concurrent 1 180"),
    (0.0, "start", "orderly", "orderly 4 20"),
    (0.0, "start", "traced", "traced 2 5"),
    (0.0, "start", "stopping", "concurrent 2 10"),
    (0.0, "start", "back", "concurrent 4 150"),  # so slow that a reset back is seen before it is made up for
    (0.0, "start", "ahead", "concurrent 1 250"),
    (0.15, "stop", "stopping", ""),
    (0.25, "start", "stopping", "concurrent 2 10"),
    (0.25, "start", "late", "concurrent 2 10"),
    (0.3, "reset", "back", "{0.2}"),
    (0.5, "stop", "stopping", ""),
    (0.53, "reset", "ahead", "0"),
    (0.55, "start", "stopping", "orderly 2 10"),
    (0.58, "reset", "back", "{0.3}"),
    (0.72, "stop", "late", ""),
    (0.75, "stop", "stopping", ""),
    (0.76, "start", "stopping", "concurrent 2 10"),
    (0.8, "delete", "late", ""),
)
OF_RELEASE: Final = {"4.9.3": (0.0, "start", "tenth", "orderly 4 350"), "5.5.0": (0.0, "start", "tenth", "pop 4 20")}
BROKER_KILLS: Final = {"4.9.3": (0.35, 0.64), "5.5.0": (0.4, 0.68)}
TAIL_KILLS: Final = (0.2, 0.45, 0.86)


def plan_of(release: str, seconds: float) -> str:
    """The lines for one broker's clients."""
    lines = []
    for at, what, group, more in sorted((*PLAN, OF_RELEASE[release]), key=lambda line: line[0]):
        words = str(float(more[1:-1]) * seconds) if more.startswith("{") else more
        lines.append(f"{at * seconds:.3f} {what} {group} {words}".rstrip())
    return "\n".join(lines) + "\n"


class World:
    """A broker with its clients; `kills` are the times (ms) between which it was down."""

    def __init__(self, release: str, root: Path) -> None:
        self.name, self.root = f"broker-{release}", root / release
        self._release = release
        self.kills: list[tuple[int, int]] = []
        self.broker: Broker

    def start(self, cleanup: ExitStack) -> None:
        """Start name server and broker."""
        self.root.mkdir(parents=True)
        rocketmq = RocketMQ(self._release)
        self._names = cleanup.enter_context(rocketmq.name_server(self.root / "names"))
        conf = {"brokerName": self.name, "traceTopicEnable": True, "mappedFileSizeCommitLog": 64 << 20}
        self.broker = cleanup.enter_context(rocketmq.broker(self.root / "home", self._names, conf))

    def start_clients(self, cleanup: ExitStack, start_ms: int, seconds: float, rate: float) -> None:
        """Start the clients, whose plan begins at `start_ms`."""
        (self.root / "plan").write_text(plan_of(self._release, seconds))
        files = {f"{name}File": self.root / name for name in ("plan", "deliveries", "sent")}
        words = {"topics": f"{TOPIC}:4", "rate": rate, "seconds": seconds, "batch": BATCH, **files}
        running = RocketMQ(self._release).start_workload("groups", self._names, startMs=start_ms, **words)
        self.clients = cleanup.enter_context(running)

    def kill(self) -> None:
        """Kill the broker with -9, and start it again."""
        began = _now()
        self.broker.kill()
        time.sleep(1)
        self.broker.start()
        self.kills.append((began, _now()))

    def section(self) -> str:
        """Of the tail's configuration."""
        return (
            f'[[broker]]\nbroker = "{self.name}"\nstore = "{self.broker.store}"\noutput = "{self.root / "out"}"\n'
            f'brokerConf = "{self.root / "home" / "server.conf"}"\n'
        )


class Live:
    """The whole run; its files are below `root`."""

    def __init__(self, root: Path, seconds: float, rate: float, say: Callable[[str], None]) -> None:
        self._root, self._seconds, self._rate, self._say = root, seconds, rate, say
        self.worlds = [World(release, root) for release in RELEASES]

    def run(self) -> None:
        """Until all has happened, and the tail has seen the last of it."""
        with ExitStack() as cleanup:
            for world in self.worlds:
                world.start(cleanup)
            (self._root / "brokers.toml").write_text("".join(world.section() for world in self.worlds))
            self._began = time.monotonic() + CLIENTS_START_S
            for world in self.worlds:
                world.start_clients(cleanup, _now() + int(CLIENTS_START_S * 1000), self._seconds, self._rate)
            self._tail = self._start_tail()
            threads = [threading.Thread(target=self._kill_broker, args=(world,)) for world in self.worlds]
            for thread in threads:
                thread.start()
            cleanup.callback(self._end_tail)
            self._tail_through()
            for thread in threads:
                thread.join()
            self._finish()

    def _wait_for(self, part: float) -> None:
        time.sleep(max(0.0, self._began + part * self._seconds - time.monotonic()))

    def _kill_broker(self, world: World) -> None:
        for part in BROKER_KILLS[world.name.removeprefix("broker-")]:
            self._wait_for(part)
            world.kill()
            self._say(f"{world.name} was killed and is back")

    def _tail_through(self) -> None:
        for part in TAIL_KILLS:
            self._wait_for(part)
            self._tail.kill()
            self._say("the tail was killed")
            self._tail = self._start_tail()

    def _start_tail(self) -> TailProcess:
        words = ("--option", "tableIncludeBody=true")
        return TailProcess(self._root, *words, whose=("--config", str(self._root / "brokers.toml")))

    def _end_tail(self) -> None:
        self._tail.end()

    def _finish(self) -> None:
        for world in self.worlds:
            found = world.clients.wait(self._seconds + 120)
            told = {"events": found["events"], "kills": world.kills, "ended_ms": _now()}
            (world.root / "told.json").write_text(json.dumps(told))
        # The brokers write their offsets, and the tail sees them and the last rows.
        time.sleep(15)
        self._tail.process.send_signal(signal.SIGTERM)
        code = self._tail.process.wait(120)
        assert code == 0, self._tail.last_words()


def _now() -> int:
    return time.time_ns() // 1_000_000


class Told:
    """The notes of the consumers of one broker."""

    def __init__(self, root: Path) -> None:
        self.sent = _lines(root / "sent")
        told = json.loads((root / "told.json").read_text())
        self.events: list[Row] = told["events"]
        self.kills: list[tuple[int, int]] = told["kills"]
        self.deliveries: dict[tuple[str, int], list[Row]] = defaultdict(list)
        rows = _lines(root / "deliveries")
        for row in rows:
            self.deliveries[row["group"], row["physical_offset"]].append(row)
        self._note_passes(rows, [time for kill in self.kills for time in kill])

    def _note_passes(self, rows: list[Row], kills: Sequence[int]) -> None:
        """Note for each delivery when the group had also consumed all messages before it in the queue.

        The group's offset cannot pass a message before that. After a start, a reset or a kill, messages come again.
        """
        queues: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
        for row in rows:
            group = row["group"]
            rounds = sorted({*kills, *(each["began_ms"] for each in self.of(group, "start", "reset"))})
            number = bisect_right(rounds, row["began_ms"])
            queues[group, row["reconsume_times"] > 0, row["queue_id"], number].append(row)
        for queue in queues.values():
            first: dict[int, int] = {}
            for row in queue:
                offset = row["queue_offset"]
                first[offset] = min(first.get(offset, row["ended_ms"]), row["ended_ms"])
            latest = 0
            for offset in sorted(first):
                latest = first[offset] = max(first[offset], latest)
            for row in queue:
                row["passed_ms"] = max(row["ended_ms"], first[row["queue_offset"]])

    def of(self, group: str, *what: str) -> Iterator[Row]:
        """The events of a group."""
        return (each for each in self.events if each["group"] == group and each["what"] in what)

    def happened(self, group: str, what: str, row: Row) -> bool:
        """Whether an event was in a row's interval, or so shortly before that the broker may have been told then."""
        return any(
            each["began_ms"] <= row["before"] and (row["after"] or 0) <= each["ended_ms"] + REPORTED_MS
            for each in self.of(group, what)
        )

    def was_lost(self, delivery: Row) -> bool:
        """Whether the broker may never have heard of it: it was killed then, or the consumer was stopped before."""
        stops = (each["began_ms"] for each in self.of(delivery["group"], "stop"))
        return any(begin - REPORTED_MS <= delivery["passed_ms"] <= end for begin, end in self.kills) or any(
            delivery["began_ms"] <= stop <= delivery["passed_ms"] for stop in stops
        )


def _lines(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()]


class Judge:
    """Compares the answers about one broker's messages with what its consumers wrote down."""

    def __init__(self, root: Path, world: str, broker: str) -> None:
        self._table, self._broker = root / "table", broker
        self._told = Told(root / world)
        self.counts: Counter[str] = Counter()
        self.wrong: list[Any] = []

    def judge(self) -> None:
        """Ask about all messages, a batch of them at a time."""
        answers: dict[tuple[str, int], list[Row]] = defaultdict(list)
        for batch in sorted({row["batch"] for row in self._told.sent}):
            for row in self._ask(f"B{batch}"):
                answers[row["consumer_group"], row["physical_offset"]].append(row)
        for key in sorted({*answers, *self._told.deliveries}, key=str):
            if key[0] is not None:  # a producer's trace has no group
                self._compare(key, answers[key], self._told.deliveries.get(key, []))

    def _ask(self, key: str) -> list[Row]:
        words = ["--table", str(self._table), "--broker", self._broker, "--key", key]
        result = invoke(["ask", "consumed", *words, "--format", "json", "--limit", "1000000"])
        assert result.exit_code == 0, result.output
        rows = [json.loads(line) for line in result.stdout.splitlines()]
        for row in rows:
            row["after"], row["before"], row["until"] = (
                None if row[name] is None else moment_ms(row[name])
                for name in ("passed_after", "passed_before", "seen_until")
            )
        return rows

    def _count(self, what: str, row: Row, deliveries: list[Row], *, is_right: bool) -> None:
        if not is_right:
            self._is_wrong(what, row, deliveries)
            return
        self.counts[what] += 1
        if row["after"] is None or row["before"] - row["after"] > PRECISE_MS:
            self.counts[f"{what}, imprecise"] += 1

    def _compare(self, key: tuple[str, int], rows: list[Row], deliveries: list[Row]) -> None:
        group, told = key[0], {id(each): False for each in deliveries}
        for row in rows:
            state = row["state"]
            found = [each for each in deliveries if _holds(row, each)]
            for each in found:
                told[id(each)] = True
            if state.startswith("passed"):
                row["is_skipped"] = not found and self._told.happened(group, "reset", row)
                what = "skipped by a reset" if row["is_skipped"] else "passed"
                self._count(what, row, deliveries, is_right=bool(found) or row["is_skipped"])
                self.counts["passed, in the interval before others that came earlier"] += bool(found) and all(
                    each["ended_ms"] < (row["after"] or 0) for each in found
                )
            elif state in ("reset back over it", "offset removed"):
                what = "reset" if state.startswith("reset") else "delete"
                self._count(state, row, deliveries, is_right=self._told.happened(group, what, row))
            elif row["evidence"] in ("trace", "pop"):
                self._count(f"{state} ({row['evidence']})", row, deliveries, is_right=bool(found))
            elif state == "waits":
                self._waits(row, deliveries)
        self._untold(key, rows, deliveries, told)

    def _waits(self, row: Row, deliveries: list[Row]) -> None:
        since = max((each["began_ms"] for each in self._told.of(row["consumer_group"], "reset")), default=0)
        late = [each for each in deliveries if since <= each["passed_ms"] < row["until"] - PRECISE_MS]
        if not late:
            self.counts["waits"] += 1
        elif all(map(self._told.was_lost, late)):
            self.counts["waits, and what the consumer did was never reported"] += 1
        else:
            self._is_wrong("waits", row, late)

    def _untold(self, key: tuple[str, int], rows: list[Row], deliveries: list[Row], told: dict[int, bool]) -> None:
        """A delivery that no row has: of a message that came again, or else a wrong answer."""
        left = [each for each in deliveries if not told[id(each)]]
        if key[0] == "traced":
            # A trace may be lost with the broker; without one, the answer has nothing about a broadcast group.
            self.counts["broadcast deliveries without a trace"] += len(left)
        elif len(left) < len(deliveries):
            self.counts["delivered again, told once"] += len(left)
        elif left and any(row.get("is_skipped") for row in rows):
            # The consumer was at work on it, or had it, when the broker's offset was reset to a later one.
            self.counts["skipped by a reset, and delivered in that moment"] += len(left)
        elif left and not any(row["state"] in ("waits", "offset removed") for row in rows):
            self._is_wrong("not told", rows, left)

    def _is_wrong(self, what: str, answer: object, deliveries: list[Row]) -> None:
        self.counts["wrong"] += 1
        self.wrong.append({"what": what, "answer": answer, "deliveries": deliveries})


def _holds(row: Row, delivery: Row) -> bool:
    """Whether a row's interval holds the moment of a delivery that it tells of."""
    after, before, state = row["after"] or 0, row["before"], row["state"]
    if row["evidence"] not in ("offset", "trace", "pop") or before is None:
        return False
    if row["evidence"] == "offset":
        # POP passes a message when it is handed out.
        moment = "began_ms" if delivery["group"] == "tenth" and "5.5" in row["broker"] else "ended_ms"
        return state.startswith("passed") and delivery[moment] <= before and after <= delivery["passed_ms"]
    if state == "given":
        return bool(after <= delivery["began_ms"] <= before + REPORTED_MS)
    return bool(delivery["ended_ms"] - 1 <= before and after <= delivery["ended_ms"] + REPORTED_MS)


def judge(root: Path, say: Callable[[str], None]) -> Counter[str]:
    """Compare everything below `root`; what was counted, of both brokers and of each."""
    total: Counter[str] = Counter()
    wrong = []
    for release in RELEASES:
        of_broker = Judge(root, release, f"broker-{release}")
        of_broker.judge()
        say(f"{release}: {dict(sorted(of_broker.counts.items()))}")
        total += of_broker.counts
        wrong += of_broker.wrong
    (root / "wrong.json").write_text(json.dumps(wrong, indent=1))
    return total


def run(root: Path, seconds: float, rate: float, say: Callable[[str], None] = print) -> Counter[str]:
    """Run for this many seconds, with `rate` messages a second to each broker, and judge the run."""
    Live(root, seconds, rate, say).run()
    return judge(root, say)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line; 0 when no answer was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="a directory for the run's files; emptied first")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--rate", type=float, default=8.0, help="messages a second to each broker")
    parser.add_argument("--judge", action="store_true", help="look again at what a run has left in --work")
    given = parser.parse_args(words)
    work = given.work.resolve()
    if given.judge:
        counts = judge(work, print)
    else:
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        counts = run(work, 60 * given.minutes, given.rate)
    for name, count in sorted(counts.items()):
        print(f"{name}: {count:,}", flush=True)
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
