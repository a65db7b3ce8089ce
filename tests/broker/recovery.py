"""A real message store is started on each of many directories, all in one JVM, and says what it made of them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker.artifacts import HarnessError
from broker.java_process import tail
from broker.release import Release

JVM = ("-Xms256m", "-Xmx1g")
SECONDS_A_STORE = 20.0
# A start that has not ended by then waits for something that never comes.
START_MS = 4000
_LOADED = re.compile(r"last shutdown (normally|abnormally)")
_RECOVERED_FROM = re.compile(r"recover from this mapped file (\S+)")
_REPUT_FROM = re.compile(r"\[SetReputOffset\] maxPhysicalPosInLogicQueue=(-?\d+)")
# Settings of a store's broker.conf that its directory and this machine decide here.
LOCAL_SETTING = re.compile(r"storePath.*|.*Port|.*IP\d|namesrvAddr|bindAddress|dLeger.*")


@dataclass(frozen=True)
class Happened:
    """The effects on one store, by its facts and its log's lines; `recovered_from` is the segment's path, if logged.

    `reput_from` is where 4.9.3 began to dispatch after its recovery.
    """

    facts: Mapping[str, Any]
    is_abnormal: bool
    recovered_from: str | None
    reput_from: int | None


def start_stores(
    release: Release,
    stores: Sequence[tuple[Path, Mapping[str, str]]],
    work: Path,
    start_ms: int = START_MS,
    plans: Sequence[str] = (),
    seconds_a_store: float = SECONDS_A_STORE,
) -> list[Happened]:
    """Start a store on each directory with the settings of its broker.conf; `work` is a new directory.

    `plans` are what to ask each store for, in lines as ``Recovery`` takes them, or nothing; ``facts["served"]`` has
    the answers. A store may take `seconds_a_store`.

    Raises
    ------
    HarnessError
        The JVM ended before it had answered for all.
    """
    work.mkdir(parents=True)
    files = []
    for number, (store, conf) in enumerate(stores):
        settings = {name: text for name, text in conf.items() if not LOCAL_SETTING.fullmatch(name)}
        settings |= {"storePathRootDir": str(store), "storePathCommitLog": str(store / "commitlog")}
        # Any free port: there are no replicas.
        settings["haListenPort"] = "0"
        if plans and plans[number]:
            settings["plan"] = str(work / f"{number}.plan")
            (work / f"{number}.plan").write_text(plans[number], encoding="utf-8")
        file = work / f"{number}.properties"
        file.write_text("".join(f"{name}={text}\n" for name, text in settings.items()))
        files.append(file)
    listed = work / "stores"
    listed.write_text("".join(f"{file}\n" for file in files))
    process = release.launch(work, JVM, "Recovery", f"stores={listed}", f"startMs={start_ms}")
    try:
        code = process.wait(60 + seconds_a_store * len(stores))
        answers = [json.loads(line) for line in process.stdout.read_text().splitlines() if line.startswith("{")]
    finally:
        process.end()
    if code != 0 or len(answers) != len(stores):
        raise HarnessError(
            f"{len(answers)} of {len(stores)} stores answered, exit code {code}:\n"
            f"{tail(process.stderr, process.stdout, work / 'rocketmq.log')}"
        )
    lines = (work / "rocketmq.log").read_text(encoding="utf-8", errors="replace").splitlines()
    begins = [at for at, line in enumerate(lines) if _LOADED.search(line)]
    assert len(begins) == len(stores), f"{len(begins)} loads of {len(stores)} stores are in the log"
    return [
        _happened(facts, lines[begin:end])
        for facts, begin, end in zip(answers, begins, [*begins[1:], len(lines)], strict=True)
    ]


def _happened(facts: Mapping[str, Any], lines: Sequence[str]) -> Happened:
    text = "\n".join(lines)
    loaded, recovered, reput = (pattern.search(text) for pattern in (_LOADED, _RECOVERED_FROM, _REPUT_FROM))
    assert loaded is not None
    return Happened(
        facts, loaded[1] == "abnormally", recovered[1] if recovered else None, int(reput[1]) if reput else None
    )
