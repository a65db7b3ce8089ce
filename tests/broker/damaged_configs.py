"""The losses of brokers with a damaged file of ``config/``, before and after `reput resurrect`: a table.

    PYTHONPATH=tests python -m broker.damaged_configs --work .work/configs

In copies of stores that real brokers left, each of four files and its ``.bak`` are deleted, emptied, torn, or replaced
by those of another broker. The code of a broker (``BrokerController#initialize``) loads each copy, before and after
`reput resurrect`, which has the message table of the store and its ledger of consumption. The result is compared with
that of the undamaged store, and with the delayed messages whose copies are in the log.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import javaproperties
from support.broker_stores import unpack
from support.store_table import add_store

from broker.artifacts import HarnessError
from broker.java_process import tail
from broker.log_contents import SCHEDULE_TOPIC, LogContents, QueueKey
from broker.recovery import JVM, LOCAL_SETTING, SECONDS_A_STORE
from broker.release import Release
from broker.rocketmq import RocketMQ
from reput.sinks.files.durable_file import DurableFiles
from reput.streaming.config.pipeline import PipelineConfig, load_config
from reput.streaming.output.paths import OutputPaths
from reput.streaming.resurrect.resurrect import DELAYS, FILES, GROUPS, OFFSETS, TOPICS, resurrected, write
from reput.streaming.tail.consumption import ConsumptionWatch

STORES: Final = {
    "4.9.3": ("v4-plain", "v4-expired", "v4-killed", "v4-sql92", "v4-tx-delay-retry", "v4-lmq"),
    "5.5.0": ("v5-plain", "v5-batchcq", "v5-propcrc", "v5-longtopic", "v5-recalled-timer", "v5-topic-remade"),
}
ANOTHER: Final = "of another broker"
DAMAGES: Final = ("deleted", "empty", "torn", ANOTHER)
_TABLES: Final = {TOPICS: "topicConfigTable", GROUPS: "subscriptionGroupTable", OFFSETS: "offsetTable"}
_NUMBER_AS_KEY: Final = re.compile(r"([{,]\s*)(\d+)\s*:")
# These, and %RETRY% topics when a consumer comes, whatever topics.json says.
_MADE_BY_BROKERS: Final = re.compile("RMQ_SYS_|rmq_sys_|TRANS_CHECK_|CID_")
Config = dict[str, dict[str, Any]]


@dataclass
class Lost:
    """The values that a broker lacks, or has differently, compared with the undamaged files."""

    stores: int = 0
    refused: int = 0
    topics: int = 0
    groups: int = 0
    repeated: int = 0
    skipped: int = 0

    def __add__(self, other: Lost) -> Lost:
        return Lost(*(getattr(self, name) + getattr(other, name) for name in vars(self)))


@dataclass(frozen=True)
class Case:
    """One damage of one store; `after` is whether `reput resurrect` has been at it."""

    file: str
    damage: str
    after: bool


class Store:
    """A store of tests/data below `root`, with the copies of it that a broker loads."""

    def __init__(self, name: str, root: Path) -> None:
        self.name, self._root = name, root
        self.home = unpack(name, root)
        self.conf = javaproperties.loads((self.home / "broker.conf").read_text(encoding="ascii"))
        contents = LogContents.load(self.home / "store", self.conf)
        units = contents.units.items()
        self._begins = {queue: min(of_queue) for queue, of_queue in units}
        self._ends = {queue: max(of_queue) + 1 for queue, of_queue in units}
        self._delivered = dict(_delivered(contents))

    def content(self, file: str) -> bytes | None:
        """The bytes of a file of ``config/``; None without it."""
        path = self.home / "store" / "config" / file
        return path.read_bytes() if path.exists() else None

    def copy(self, label: str) -> Path:
        """A store that shares all but ``config/`` with this one."""
        place = self._root / label
        place.mkdir()
        for path in (self.home / "store").iterdir():
            if path.name == "config":
                shutil.copytree(path, place / "config")
            elif path.name not in ("abort", "lock"):
                (place / path.name).symlink_to(path)
        return place

    def config(self, store: Path, release: str) -> PipelineConfig:
        """The settings for reput."""
        return load_config(
            store,
            broker_conf=self.home / "broker.conf",
            overrides=["tableTriggerMs=0", "tailGuardMs=0", f"brokerVersion={release}"],
            only_reads=True,
        )

    def keep_ledger(self, release: str) -> Path:
        """Make message table and ledger of the undamaged store."""
        table = self._root / "messages"
        config = self.config(self.home / "store", release)
        add_store(table, self.home / "store", config.broker.name, broker_conf=self.home / "broker.conf")
        output = self._root / "output"
        output.mkdir()
        ConsumptionWatch(config, OutputPaths(output, table), DurableFiles(output)).look()
        return table

    def damaged(self, case: Case, other: Store | None, release: str, table: Path) -> Path | None:
        """A copy with the damage; None where the store, or the other one, has no such file."""
        content = self.content(case.file)
        foreign = None if other is None else other.content(case.file)
        if content is None or (case.damage == ANOTHER and foreign is None):
            return None
        place = self.copy(f"{case.file}-{case.damage}-{case.after}".replace(" ", "-"))
        data = {"deleted": None, "empty": b"", "torn": content[: len(content) // 2], ANOTHER: foreign}[case.damage]
        for name in (case.file, f"{case.file}.bak"):
            path = place / "config" / name
            path.unlink(missing_ok=True)
            if data is not None:
                path.write_bytes(data)
        if case.after:
            made = self._root / f"{place.name}-made"
            write(resurrected(self.config(place, release), table), made)
            for path in made.iterdir():
                (place / "config" / f"{path.name}.bak").unlink(missing_ok=True)
                path.rename(place / "config" / path.name)
        return place

    def lost(self, truth: Config, found: Config | None) -> Lost:
        """Compare what a broker has with what it had; None is one that does not start."""
        if found is None:
            return Lost(1, 1)
        with_messages = {topic for topic, _ in self._ends}
        topics = {each for each in truth[TOPICS].keys() - found[TOPICS].keys() if not _MADE_BY_BROKERS.match(each)}
        topics -= {each for each in topics if each.startswith("%RETRY%") and each not in with_messages}
        lost = Lost(1, 0, len(topics), len(truth[GROUPS].keys() - found[GROUPS].keys()))
        for queue, of_file, now in _offsets(truth, found):
            was = max(of_file, self._delivered.get(queue, 0))  # the file may not have been saved since
            begin, end = self._begins.get(queue, 0), self._ends.get(queue, 0)
            moved = min(max(now, begin), end) - min(max(was, begin), end)
            lost.repeated += max(0, -moved)
            lost.skipped += max(0, moved)
        return lost


def _delivered(contents: LogContents) -> Iterator[tuple[QueueKey, int]]:
    """The offset after the last message of each level whose copy is in the log."""
    copies = {(record.topic, record.uniq_key): record.offset for record in contents.records if record.uniq_key}
    for queue, units in contents.units.items():
        if queue[0] == SCHEDULE_TOPIC:
            for offset in sorted(units, reverse=True):
                record = contents.by_offset[units[offset][0]]
                if copies.get((record.properties.get("REAL_TOPIC", ""), record.uniq_key), -1) > record.offset:
                    yield queue, offset + 1
                    break


def _offsets(truth: Config, found: Config) -> Iterator[tuple[QueueKey, int, int]]:
    """Each offset of groups and levels as it was and is; a group without one begins at the queue's begin."""
    for name, queues in truth[OFFSETS].items():
        for queue_id, was in queues.items() if isinstance(queues, dict) else ():
            yield (name.partition("@")[0], int(queue_id)), was, found[OFFSETS].get(name, {}).get(queue_id, 0)
    for level in truth[DELAYS].keys() | found[DELAYS].keys():
        was, now = (each[DELAYS].get(level, 0) for each in (truth, found))
        yield (SCHEDULE_TOPIC, int(level) - 1), was, now


def load(release: Release, conf: Mapping[str, str], stores: Sequence[Path], work: Path) -> list[Config | None]:
    """Let a broker load each store; None for one with which it would not start.

    Raises
    ------
    HarnessError
        The JVM ended before it had answered for all.
    """
    work.mkdir()
    listed = work / "stores"
    with listed.open("w") as lines:
        for number, store in enumerate(stores):
            settings = {name: text for name, text in conf.items() if not LOCAL_SETTING.fullmatch(name)}
            settings |= {"storePathRootDir": str(store), "storePathCommitLog": str(store / "commitlog")}
            settings["timerWheelEnable"] = "false"  # it takes 40 MB of each store
            file = work / f"{number}.properties"
            file.write_text("".join(f"{name}={text}\n" for name, text in settings.items()))
            lines.write(f"{file}\n")
    process = release.launch(work, JVM, "Configs", f"stores={listed}")
    try:
        process.wait(60 + SECONDS_A_STORE * len(stores))
        answers = [json.loads(line) for line in process.stdout.read_text().splitlines() if line.startswith("{")]
    finally:
        process.end()
    if len(answers) != len(stores):
        raise HarnessError(f"{len(answers)} of {len(stores)} answered\n{tail(process.stderr, work / 'rocketmq.log')}")
    errors = [answer["error"] for answer in answers if answer.get("error")]
    if errors:
        raise HarnessError(f"a broker that loads a store says so, and throws nothing: {errors[0]}")
    return [_parsed(answer) if answer["starts"] else None for answer in answers]


def _parsed(answer: Mapping[str, Any]) -> Config:
    found = {}
    for file in FILES:
        value = json.loads(_NUMBER_AS_KEY.sub(r'\1"\2":', answer[file]))
        found[file] = value.get(_TABLES.get(file, "offsetTable")) or {}
    return found


def run(root: Path, release: str, names: Sequence[str]) -> Iterator[tuple[Case, Lost]]:
    """Damage and load the stores of one release; yields each case with what is lost."""
    rocketmq = RocketMQ(release)
    stores = [Store(name, root / name) for name in names]
    for store, other in zip(stores, [*stores[1:], stores[0]], strict=True):
        table = store.keep_ledger(release)
        cases = [Case(file, damage, after) for file in FILES for damage in DAMAGES for after in (False, True)]
        places = [(case, store.damaged(case, other, release, table)) for case in cases]
        given = [(case, place) for case, place in places if place is not None]
        work = root / store.name / "broker"
        truth, *found = load(rocketmq, store.conf, [store.copy("whole"), *(place for _, place in given)], work)
        assert truth is not None, f"a broker does not start on {store.name} as it was"
        for (case, _), each in zip(given, found, strict=True):
            yield case, store.lost(truth, each)


def table(cases: Mapping[Case, Lost]) -> Iterator[str]:
    """The lines of the table."""
    yield (
        "| file | damage | stores | without: does not start | topics, groups missing | repeated | skipped "
        "| with: does not start | topics, groups missing | repeated | skipped |"
    )
    yield "|---|---|" + "---:|" * 9
    for file in FILES:
        for damage in DAMAGES:
            before, after = (cases[Case(file, damage, has)] for has in (False, True))
            cells = [
                f"{each.refused} | {each.topics}, {each.groups} | {each.repeated:,} | {each.skipped:,}"
                for each in (before, after)
            ]
            yield f"| `{file}` | {damage} | {before.stores} | {cells[0]} | {cells[1]} |"


def measure(root: Path, stores: Mapping[str, Sequence[str]] = STORES) -> dict[Case, Lost]:
    """All cases of all stores, added up by file and damage."""
    total: dict[Case, Lost] = defaultdict(Lost)
    for release, names in stores.items():
        for case, lost in run(root, release, names):
            total[case] += lost
    return total


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line, which prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="a directory for the run's files; emptied first")
    work = parser.parse_args(words).work.resolve()
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    print("\n".join(table(measure(work))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
