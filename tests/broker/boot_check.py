"""Boot a real broker on queues and index that were made outside it, and prove that it takes them as its own.

The log, `config/` and everything else are those that a broker left after a clean stop; `consumequeue/`,
`consumequeue_ext/`, `batchconsumequeue/`, `index/` and `checkpoint` are replaced. Every file is copied, so that
modification times are new and the broker's retention deletes nothing. Three things in the copy keep the log as it is:
consumers' offsets are forgotten, the delay levels' offsets are after the last delayed message, and half messages are
not asked about.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import javaproperties

from broker.audit import Audit
from broker.java_process import free_port
from broker.log_contents import SCHEDULE_TOPIC, LogContents
from broker.rocketmq import Broker, RocketMQ

DERIVED = ("consumequeue", "consumequeue_ext", "batchconsumequeue", "index")
# The harness sets these itself; they say where and how long, not what.
LOCAL_SETTINGS = {
    *("listenPort", "namesrvAddr", "bindAddress", "brokerIP1", "brokerIP2", "brokerClusterName"),
    *("storePathRootDir", "storePathCommitLog", "fileReservedTime", "deleteWhen", "cleanResourceInterval"),
}
DAY_MS = 86_400_000
LOUD = re.compile(r"^\S+ (?:WARN|ERROR) |\[BUG\]", re.MULTILINE)
# Warnings of a broker about its own files after a clean stop, on this machine or any.
HARMLESS_LINES = [
    # The zeros after the last record; the queues end where the log does, so nothing is truncated.
    r"found a illegal magic code 0x0$",
    r"maxPhyOffsetOfConsumeQueue\((?P<end>\d+)\) >= processOffset\((?P=end)\), truncate",
    r"Load default .* [Ss]ervice: |No resource file with name|Unknown channel option",
    # Clients that are fast, or new.
    r"auto-read is disabled|The broker's (?:subscription|consumer filter data) is not latest",
    # Asked for its status, it looks at more bytes than a small file has.
    r"selectMappedBuffer request pos invalid, request pos[:=] ?\d+,? size[:=] ?8388608\b",
    # 5.5.0 flushes a queue whose last file is full.
    r"Offset not matched\. Request offset: (?P<full>\d+), firstOffset: \d+, lastOffset: (?P=full),",
    # Properties that cannot be compared do not match.
    r"RocketmqFilter - Message Filter error",
    # A push consumer that left while its pulls were held.
    r"the consumer's group info not exist|processRequestWrapper response to .* failed|- RemotingCommand \[code=",
    r"Failed to write response\[request code: 11,",
    # The stop.
    r"interrupted, this may caused by shutdown|interrupted, possibly by shutdown",
    r"message store has shutdown, so getMessage is forbidden|Failed to submit a listener notification task",
    r"(?:WARN|ERROR) TransactionalMessageCheckService ",
]
HARMLESS = re.compile("|".join(HARMLESS_LINES))
REPUT_FROM = re.compile(r"\[SetReputOffset\] maxPhysicalPosInLogicQueue=(\d+) clMinOffset=(-?\d+) clMaxOffset=(-?\d+)")


@dataclass
class BootReport:
    """The findings of a boot; `problems` are the reasons why the files are not the broker's own, empty if they are."""

    store: str
    version: str
    files: int = 0
    messages: int = 0
    audit: Audit | None = None
    warnings: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def accepted(self) -> bool:
        """Whether nothing at all was wrong."""
        return not self.problems and not self.warnings

    def row(self) -> str:
        """One line of a table."""
        if self.audit is None:
            return f"| {self.store} | {self.version} | {self.files} | not audited | {len(self.problems)} problems |"
        consumed, filtered, keys = self.audit.consumed, self.audit.filtered, self.audit.keys
        return (
            f"| {self.store} | {self.version} | {self.files} | {self.messages} | {consumed.found}/{consumed.expected} "
            f"| {filtered.found}/{filtered.expected} | {keys.found}/{keys.expected} | {len(self.warnings)} "
            f"| {len(self.problems)} | {self.seconds:.0f} s |"
        )

    def __str__(self) -> str:
        """The table's head and line, and what was wrong."""
        wrong = [*(f"problem: {problem}" for problem in self.problems), *(f"warning: {line}" for line in self.warnings)]
        return "\n".join([self.ROW_HEAD, self.row(), *wrong])

    ROW_HEAD = (
        "| store | broker | files | messages in the log | consumed of expected | by tag, SQL92 | keys found of asked "
        "| warnings | problems | time |"
    )


def boot_check(
    rocketmq: RocketMQ,
    home: Path,
    output: Path,
    work: Path,
    queries_max: int | None = None,
    abort: bytes | None = None,
) -> BootReport:
    """Boot on `home`'s log (`broker.conf`, `store/`) with the derived files of `output`, ask everything, stop.

    `queries_max` is how many keys and unique keys are asked for, each; None asks for all. `work` is a new directory;
    nothing is written elsewhere. `abort` is what the broker finds in its file `abort`, None without one.
    """
    began = time.monotonic()
    conf = javaproperties.loads((home / "broker.conf").read_text(encoding="ascii"))
    contents = LogContents.load(home / "store", conf)
    report = BootReport(home.name, rocketmq.version, messages=len(contents.records))
    store = work / "store"
    copy_store(home / "store", output, store)
    keep_the_log(store, contents)
    if abort is not None:
        (store / "abort").write_bytes(abort)
    before = digests(store)
    report.files = len(before)
    with rocketmq.name_server(work / "namesrv") as name_server:
        broker = rocketmq.broker(work / "broker", name_server, boot_conf(conf, store))
        with broker:
            audit = report.audit = Audit(contents, queries_max, rocketmq.version.startswith("4."))

            def ask(plan: Path, answers: Path) -> object:
                return rocketmq.workload("audit", name_server, planFile=plan, answersFile=answers)

            report.problems += audit.run(ask, work, filter_subscriptions(store))
    report.problems += changes(before, digests(store))
    report.warnings, problems = log_problems(broker, contents)
    report.problems += problems
    report.seconds = time.monotonic() - began
    return report


def copy_store(source: Path, output: Path, target: Path) -> None:
    """Copy a store with the derived files of `output` in the place of its own."""
    shutil.copytree(
        source, target, ignore=lambda at, _: DERIVED if Path(at) == source else (), copy_function=shutil.copyfile
    )
    assert not (target / "abort").exists(), f"{source} was not closed cleanly"
    for name in DERIVED:
        if (output / name).is_dir():
            shutil.copytree(output / name, target / name, copy_function=shutil.copyfile)
    if (output / "checkpoint").exists():
        shutil.copyfile(output / "checkpoint", target / "checkpoint")


def keep_the_log(store: Path, contents: LogContents) -> None:
    """Let the broker deliver no delayed message, and give consumers everything."""
    config = store / "config"
    for name in ("consumerOffset.json", "consumerOffset.json.bak", "delayOffset.json.bak"):
        (config / name).unlink(missing_ok=True)
    # The queue of a level is the level less one.
    ends = {key[1] + 1: max(units) + 1 for key, units in contents.units.items() if key[0] == SCHEDULE_TOPIC}
    if ends:
        (config / "delayOffset.json").write_text(json.dumps({"offsetTable": ends}))


def boot_conf(conf: Mapping[str, str], store: Path) -> dict[str, str | int | bool]:
    """The store's own settings, on other ports, and filters allowed."""
    result: dict[str, str | int | bool] = {name: text for name, text in conf.items() if name not in LOCAL_SETTINGS}
    if "dLegerPeers" in conf:
        result["dLegerPeers"] = f"{conf['dLegerSelfId']}-127.0.0.1:{free_port()}"
    return {
        **result,
        "storePathRootDir": str(store),
        "storePathCommitLog": str(store / "commitlog"),
        "enablePropertyFilter": True,
        "transactionCheckInterval": DAY_MS,
    }


def filter_subscriptions(store: Path) -> dict[str, dict[str, str]]:
    """SQL92 expressions by topic by group, as the broker registered them."""
    path = store / "config" / "consumerFilter.json"
    if not path.exists():
        return {}
    groups: dict[str, dict[str, str]] = {}
    for topic, data in json.loads(path.read_text(encoding="utf-8"))["filterDataByTopic"].items():
        for group, subscription in data["groupFilterData"].items():
            groups.setdefault(group, {})[topic] = subscription["expression"]
    return groups


def digests(store: Path) -> dict[str, str]:
    """SHA-256 of every derived file by its path."""
    return {
        str(path.relative_to(store)): hashlib.sha256(path.read_bytes()).hexdigest()
        for name in DERIVED
        for path in sorted((store / name).rglob("*"))
        if path.is_file()
    }


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """A sentence for each file that the broker changed, made or removed."""
    words = {(True, True): "changed", (True, False): "removed", (False, True): "made"}
    return [
        f"the broker {words[name in before, name in after]} {name}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]


def log_problems(broker: Broker, contents: LogContents) -> tuple[list[str], list[str]]:
    """Loud lines of the broker's log, and what is wrong with where it began to dispatch (5.x: at the log's end)."""
    lines = (broker.home / "rocketmq.log").read_text(encoding="utf-8", errors="replace").splitlines()
    warnings = [line for line in lines if LOUD.search(line) and not HARMLESS.search(line)]
    started = [match for line in lines if (match := REPUT_FROM.search(line))]
    problems = [
        f"dispatch began at {match[1]}, the queues end at {contents.queued_end}"
        for match in started
        if int(match[1]) != contents.queued_end
    ]
    if not started and broker.release.version.startswith("4."):
        problems.append("the broker's log does not say where dispatch began")
    return warnings, problems
