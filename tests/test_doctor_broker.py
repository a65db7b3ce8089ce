"""Real message stores of every release do what `reput doctor` predicts of a broker's start.

Each damaged store is copied, `doctor` looks at it, and the real store of the release is loaded and started on the copy,
many in one JVM. All of the brokers' stores as they are, and 150 random damages of each release (about five minutes)::

    python -m pytest tests/test_doctor_broker.py -m "slow or not slow"
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import random
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import javaproperties
import numpy as np
import pytest
from broker.artifacts import HarnessError
from broker.boot_check import boot_conf
from broker.recovery import Happened, start_stores
from broker.release import Release
from broker.rocketmq import RocketMQ
from broker.served import Plan
from support.advice import execute_advice, follow_advice, lost_and_moved, served, told
from support.broker_stores import unpack
from support.command_line import invoke
from support.proof_counts import Proof
from support.sink_runner import dispatch_store
from support.store_damage import (
    FURTHER,
    LIGHT,
    OF_LOG_AND_INDEX,
    UNIT_BYTES,
    damage,
    further_queues_home,
    write,
)
from support.store_kinds import KINDS as STORE_KINDS
from support.store_kinds import OF_BOTH_RELEASES, before_upgrade, copy

from reput.sinks.formats.consume_queue import BATCH_ENTRY, is_pre_blank
from reput.sinks.formats.consume_queue import ENTRY as CQ_ENTRY
from reput.sinks.formats.index_file import ENTRY
from reput.sinks.index.index_reader import entry_at
from reput.sinks.queue.rocksdb_queue import RocksDBQueues, RocksDBQueueWriter
from reput.source.errors import OptionError
from reput.source.kernels import record_kernels as rk
from reput.source.log.mapped_file_queue import MappedFile, MappedFileQueue
from reput.source.log.range_reader import DecodeOptions, read_windows, scan_windows
from reput.source.record.message_format import BLANK_MAGIC_CODE, TRANSACTION_MASK, TRANSACTION_ROLLBACK_TYPE
from reput.source.releases import CHANGING_RELEASES, FIRST, RULES, version_of, version_text
from reput.streaming.config.broker import read_topics
from reput.streaming.config.pipeline import PipelineConfig, load_config
from reput.streaming.doctor.doctor import examine
from reput.streaming.doctor.predict import predict
from reput.streaming.doctor.prediction import Prediction, Recovery
from reput.streaming.doctor.start_settings import start_settings

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("waits_are_skipped")]

GetRelease = Callable[[str], RocketMQ]
GetStore = Callable[[str], Release]
Homes = Callable[[str], Path]
Check = Callable[[str, Sequence["Case"]], None]
# Releases whose whole brokers are started here, those whose stores judge every kind of damage, and those from which on
# something is different. Maven Central has no 5.1.2.
VERSIONS = ("4.9.3", "5.5.0")
JUDGES = (*VERSIONS, "5.5.1")
ALL_RELEASES = tuple(text for text in map(version_text, CHANGING_RELEASES) if text != "5.1.2")
V4 = ("v4-killed", "v4-plain", "v4-expired", "v4-tx-delay-retry", "v4-lmq", "v4-sql92")
STORES = (*V4, "v5-plain", "v5-longtopic", "v5-propcrc")
UNDAMAGED = (*STORES, "v4-killed-rebuilt", "v4-expired-rebuilt", "v4-sql92-rebuilt")
SMALL = ("v4-killed", "v5-longtopic", "v4-expired")
FEW_FURTHER = ("no number", "nothing", "other counts")
INDEXED = ("v5-plain", "v4-tx-delay-retry", "v4-killed")
PARTS = ("commitlog", "consumequeue", "batchconsumequeue", "index")
BATCH = ("v5-batchcq", "v5-config-v2-batchcq")


@dataclass
class Case:
    """A store that is to be started: its home, what was done to it, what is predicted, its files before."""

    home: Path
    name: str
    done: list[str]
    config: PipelineConfig
    prediction: Prediction
    files: set[str]

    @property
    def store(self) -> Path:
        return self.home / "store"


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Homes:
    """Unpack a store of tests/data, once a run; returns its home."""
    directory = tmp_path_factory.mktemp("stores")
    return functools.cache(lambda name: unpack(name, directory))


@pytest.fixture
def check(judge: GetStore, tmp_path: Path, proof: Proof) -> Callable[[str, Sequence[Case]], None]:
    """Start stores with the store of a release, and compare; each is a case that is counted."""

    def run(version: str, cases: Sequence[Case]) -> None:
        proof("G13 broker starts foretold", len(cases))
        compare(cases, judge(version), Path(tempfile.mkdtemp(dir=tmp_path)))

    return run


@pytest.mark.parametrize("version", JUDGES)
def test_random_damages(version: str, homes: Homes, check: Check, tmp_path: Path) -> None:
    """The short form: eight damages of small stores."""
    check(version, [damaged(homes, tmp_path, version, SMALL, seed) for seed in range(8)])


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(6), id="few"),
        *(pytest.param(range(n, n + 25), marks=pytest.mark.slow) for n in (4000, 4025, 4050)),
    ],
)
def test_batch_queues(seeds: range, homes: Homes, check: Check, tmp_path: Path) -> None:
    """Stores with a BatchConsumeQueue, damaged; and as they are, with and without `abort`."""
    cases = [damaged(homes, tmp_path, "5.5.0", BATCH, seed) for seed in seeds]
    for name, has_abort in itertools.product(BATCH, [False, True] if seeds[0] == 0 else []):
        home = copy(homes(name), tmp_path / f"{name}-{has_abort}")
        (home / "store" / "abort").unlink(missing_ok=True)
        if has_abort:
            (home / "store" / "abort").touch()
        cases.append(case(home, home.name, "5.5.0", []))
        assert has_abort or cases[-1].prediction.is_harmless
    check("5.5.0", cases)


@pytest.mark.parametrize(
    ("kind", "version", "seeds"),
    [
        pytest.param(kind, version, seeds, id=f"{kind} {version} {seeds[0]}", marks=marks)
        for kind in STORE_KINDS
        for version in (VERSIONS if kind in OF_BOTH_RELEASES else ["5.5.0"])
        for seeds, marks in [(range(2), []), (range(5000, 5020), pytest.mark.slow)]
    ],
)
def test_kinds_of_stores(
    kind: str, version: str, seeds: range, homes: Homes, check: Check, proof: Proof, tmp_path: Path
) -> None:
    """Stores of one kind, some as they are, the others damaged."""
    check(version, [damaged_kind(kind, version, seed, homes, tmp_path) for seed in seeds])
    proof("G13 starts of further kinds of stores foretold", len(seeds))


@pytest.mark.slow
def test_upgraded_stores(homes: Homes, release: GetRelease, check: Check, proof: Proof, tmp_path: Path) -> None:
    """Stores of 4.9.3 with later messages of 5.5.0, whose next start is foretold for both releases."""
    made = {name: tmp_path / name for name in ("v4-killed", "v4-plain", "v4-expired", "v4-tx-delay-retry")}
    for seed, (name, home) in enumerate(made.items()):
        before_upgrade(home, homes(name), random.Random(seed))
    first = [case(home, name, "5.5.0", []) for name, home in made.items()]
    check("5.5.0", first)
    for version in VERSIONS:
        cases = [damaged(made.get, tmp_path / version, version, tuple(made), seed) for seed in range(6000, 6012)]
        check(version, cases)
        proof("G13 starts of further kinds of stores foretold", len(cases))
    proof("G13 starts of further kinds of stores foretold", len(first))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_deleted_and_made_again(version: str, homes: Homes, release: GetRelease, tmp_path: Path) -> None:
    """A store takes the later life as its own, as it was and as reput makes it; without queues it joins both lives."""
    homes_of = {name: copy(homes("v5-topic-remade"), tmp_path / name) for name in ("as it was", "made", "no queues")}
    config = load_config(homes_of["made"] / "store", broker_conf=homes_of["made"] / "broker.conf")
    dispatch_store(config, tmp_path / "later")
    joined = load_config(config.store, broker_conf=homes_of["made"] / "broker.conf", overrides=["queueRestart=replay"])
    dispatch_store(joined, tmp_path / "joined")
    for name in ("made", "no queues"):
        shutil.rmtree(homes_of[name] / "store" / "consumequeue")
    shutil.copytree(tmp_path / "later" / "consumequeue", homes_of["made"] / "store" / "consumequeue")
    cases = [case(home, name, version, []) for name, home in homes_of.items()]
    conf = javaproperties.loads((homes_of["made"] / "broker.conf").read_text())
    happened = start_stores(release(version), [(each.store, conf) for each in cases], tmp_path / "java")
    assert [differences(*pair) for pair in zip(cases, happened, strict=True)] == [[], [], []]
    assert [each.prediction.is_harmless for each in cases] == [True, True, False]
    queue = Path("consumequeue", "T", "0", f"{0:020d}")
    later = (homes("v5-topic-remade") / "store" / queue).read_bytes()
    assert [(each.store / queue).read_bytes() for each in cases[:2]] == [later, later]
    assert (cases[2].store / queue).read_bytes() == (tmp_path / "joined" / queue).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("version", [version for version in ALL_RELEASES if version not in JUDGES])
@pytest.mark.parametrize("first", range(1000, 1075, 25))
def test_releases_between(version: str, first: int, homes: Homes, check: Check, tmp_path: Path) -> None:
    """Damaged stores under every release from which on something is different."""
    check(version, [damaged(homes, tmp_path, version, STORES, seed) for seed in range(first, first + 25)])


@pytest.mark.slow
def test_each_rule_of_a_release(homes: Homes, check: Check, tmp_path: Path) -> None:
    """A store for each rule, whose start differs between the rule's first release and the one before; all happen."""
    told_of: dict[str, dict[str, str]] = {name: {} for name in RULE_STORES}
    for version in ALL_RELEASES:
        cases = []
        for name, (kind, harm) in RULE_STORES.items():
            home = copy(homes(kind), tmp_path / version / name)
            harm(home / "store")
            cases.append(case(home, name, version, []))
            told_of[name][version] = verdict(cases[-1].prediction).replace(str(home), "")
        check(version, cases)
    for name, told_by in told_of.items():
        since = next(text for text in ALL_RELEASES if (version_of(text) or FIRST) >= RULES[name].since)
        before = ALL_RELEASES[ALL_RELEASES.index(since) - 1]
        assert told_by[since] != told_by[before], name


@pytest.mark.slow
@pytest.mark.parametrize("version", JUDGES)
@pytest.mark.parametrize("first", range(1000, 1150, 25))
def test_many_random_damages(version: str, first: int, homes: Homes, check: Check, tmp_path: Path) -> None:
    check(version, [damaged(homes, tmp_path, version, STORES, seed) for seed in range(first, first + 25)])


@pytest.mark.slow
@pytest.mark.parametrize("version", ALL_RELEASES)
@pytest.mark.parametrize("has_abort", [False, True])
def test_stores_as_they_are(version: str, has_abort: bool, homes: Homes, check: Check, tmp_path: Path) -> None:
    """Every plain store of a real broker, with and without `abort`, each under both releases."""
    cases = []
    for name in UNDAMAGED:
        home = copy(homes(name), tmp_path / name)
        (home / "store" / "abort").unlink(missing_ok=True)
        if has_abort:
            (home / "store" / "abort").touch()
        cases.append(case(home, name, version, []))
    check(version, cases)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["v4-killed", "v5-plain"])
def test_a_whole_broker(name: str, version: str, release: GetRelease, homes: Homes, tmp_path: Path) -> None:
    """A broker with all its services ends the log where its store alone does, and does not start where it does not."""
    home = copy(homes(name), tmp_path / "home")
    store, rocketmq = home / "store", release(version)
    conf = boot_conf(javaproperties.loads((home / "broker.conf").read_text()), store)
    segment = max(path for path in (store / "commitlog").iterdir() if any(path.read_bytes()))
    write(segment, 400_000, bytes(500))
    predicted = case(home, name, version, []).prediction
    assert predicted.lost.count
    with rocketmq.name_server(tmp_path / "namesrv") as name_server:
        with rocketmq.broker(tmp_path / "broker", name_server, conf):
            lines = (tmp_path / "broker" / "rocketmq.log").read_text(encoding="utf-8", errors="replace")
        ends = [int(found) for found in re.findall(r"max phy offset = (\d+)", lines)]
        assert set(ends) == {predicted.log_end}
        (store / "commitlog" / "notes.txt").write_text("mine")
        assert not case(home, name, version, []).prediction.starts
        with pytest.raises(HarnessError), rocketmq.broker(tmp_path / "again", name_server, conf):
            pass


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kinds", [FEW_FURTHER, pytest.param(tuple(FURTHER), marks=pytest.mark.slow)])
def test_whole_records_that_no_dispatch_gets_over(
    kinds: Sequence[str], version: str, check: Check, tmp_path: Path
) -> None:
    """The release starts or does not as foretold, and starts once the advice was followed."""
    cases = []
    for kind, (name, conf), has_abort in itertools.product(kinds, {"light": LIGHT, "plain": {}}.items(), [0, 1]):
        where = tmp_path / f"{kind} {name} {has_abort}".replace(" ", "-")
        before = case(further_queues_home(where, kind, conf, has_abort=bool(has_abort)), where.name, version, [kind])
        cases.append(before)
        if not before.prediction.is_harmless:
            healed = copy(where, where.with_name(f"{where.name}-healed"))
            execute_advice(healed, version)
            cases.append(case(healed, healed.name, version, [kind, "advice followed"]))
            assert cases[-1].prediction.is_harmless
    assert any(each.prediction.obstacle for each in cases)
    check(version, cases)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_rebuild_over_damage_decides_about_abort(
    version: str, homes: Homes, release: GetRelease, check: Check, tmp_path: Path
) -> None:
    """It removes a killed broker's `abort` where a start without loses nothing, and leaves it where it would."""
    cases, stays = [], []
    for behind_end in (2, 4):
        home = copy(homes("v4-killed"), tmp_path / f"damaged-{behind_end}")
        segments = sorted((home / "store" / "commitlog").iterdir())
        (at, size) = first_records(segments[-behind_end])[1]
        write(segments[-behind_end], at + size // 2, bytes(8))
        paths = ["--store", str(home / "store"), "--broker-conf", str(home / "broker.conf"), "--yes"]
        words = ["rebuild", *paths, "--output", str(home / "store"), "-o", "onDamage=quarantine"]
        assert invoke([*words, "-o", f"brokerVersion={version}"]).exit_code == 0
        stays.append((home / "store" / "abort").exists())
        other = copy(home, tmp_path / f"otherwise-{behind_end}")
        (other / "store" / "abort").unlink() if stays[-1] else (other / "store" / "abort").touch()
        cases += [case(home, home.name, version, []), case(other, other.name, version, [])]
    check(version, cases)
    lost = [each.prediction.lost.count for each in cases]
    print(version, stays, lost)
    assert set(stays) == {True, False}
    assert all(mine <= others for mine, others in zip(lost[::2], lost[1::2], strict=True))


@pytest.mark.parametrize("version", VERSIONS)
def test_advice_that_was_followed(version: str, homes: Homes, check: Check, tmp_path: Path) -> None:
    """The short form: four damages of a small store."""
    follow_and_judge(version, ("v5-longtopic", "v4-expired"), range(2000, 2004), homes, check, tmp_path)


@pytest.mark.parametrize("version", [pytest.param("4.9.3", marks=pytest.mark.slow), "5.5.0"])
def test_advice_that_was_wrong_once(version: str, homes: Homes, check: Check, tmp_path: Path) -> None:
    """Blanks counted as entries, an empty last segment, damage behind a cut queue file, a lost last record."""
    follow_and_judge(version, STORES, (3015, 3032, 3057, 3058, 3069, 3077, 3099), homes, check, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("first", range(3000, 3150, 25))
def test_much_advice_that_was_followed(version: str, first: int, homes: Homes, check: Check, tmp_path: Path) -> None:
    follow_and_judge(version, STORES, range(first, first + 25), homes, check, tmp_path)


def follow_and_judge(
    version: str, names: Sequence[str], seeds: Sequence[int], homes: Homes, check: Check, work: Path
) -> None:
    """Damage stores, do what doctor advises until it is content, and start the release on each: nothing is lost.

    No more entries are moved to other queue offsets than the steps said before.

    A store for which doctor knows no way to start says so in a step without a command; all others start.
    """
    cases, wrong = [], []
    for seed in seeds:
        before = damaged(homes, work, version, names, seed)
        entries = served([before.store])
        what = f"{before.name}: {'; '.join(before.done)}"
        try:
            done, foretold = follow_advice(before.home, version, in_shell=seed % 10 == 0)
        except AssertionError as error:
            wrong.append(f"{what}: {error}")
            continue
        copies = [path for path in before.home.iterdir() if path.name.startswith("store.") and path.is_dir()]
        lost, moved = lost_and_moved(entries, served([before.store, *copies]))
        if lost:
            wrong.append(f"{what}: {len(lost)} entries are lost by {done}")
        if len(moved) > foretold:
            wrong.append(f"{what}: {len(moved)} entries are moved, {foretold} foretold, by {done}")
        cases.append(case(before.home, before.name, version, [*before.done, *done]))
        advice = told(before.home, version)["advice"]
        if not cases[-1].prediction.starts and not (advice and advice[0]["command"] is None):
            wrong.append(f"{what}: does not start after {done}")
    print(f"{version}: advice followed {len(seeds)}, wrong {len(wrong)}", *wrong, sep="\n    ")
    check(version, cases)
    assert not wrong


BAD_DAYS: dict[str, Callable[[Path], object]] = {
    "the checkpoint is a directory": lambda store: ((store / "checkpoint").unlink(), (store / "checkpoint").mkdir()),
    "abort is a directory": lambda store: (store / "abort").mkdir(),
    "the index is a file": lambda store: (shutil.rmtree(store / "index"), (store / "index").touch()),
    "an index file cut": lambda store: os.truncate(max((store / "index").iterdir()), 5000),
    "an index file empty": lambda store: os.truncate(max((store / "index").iterdir()), 0),
    "index files with other names": lambda store: [
        path.rename(path.with_name(f"1999010100000000{number}"))
        for number, path in enumerate(sorted((store / "index").iterdir(), reverse=True))
    ],
    "a queue is a file": lambda store: (shutil.rmtree(a_queue(store)), a_queue(store).touch()),
    "a queue has another's file": lambda store: shutil.copyfile(
        max((store / "consumequeue" / "TxTopic" / "0").iterdir()), max(a_queue(store).iterdir())
    ),
    "a segment longer": lambda store: os.truncate(segments_of(store)[1], 262_144 + 40),
    "the log is gone": lambda store: [path.unlink() for path in segments_of(store)],
    "the log is gone beside abort": lambda store: (
        [path.unlink() for path in segments_of(store)],
        (store / "abort").touch(),
    ),
    "the last segment is the first": lambda store: shutil.copyfile(segments_of(store)[0], segments_of(store)[-1]),
    "segments changed places": lambda store: (
        shutil.copyfile(segments_of(store)[2], store / "other"),
        shutil.copyfile(segments_of(store)[3], segments_of(store)[2]),
        shutil.move(store / "other", segments_of(store)[3]),
    ),
    "half of it copied": lambda store: (
        os.truncate(segments_of(store)[2], 90_000),
        segments_of(store)[3].unlink(),
        os.truncate(segments_of(store)[2], 262_144),
    ),
}


def segments_of(store: Path) -> list[Path]:
    return sorted((store / "commitlog").iterdir())


def behind_a_record(store: Path, size: int) -> None:
    """A blank of another size in the place of a record of the segment before the last; recovery begins at the first."""
    (store / "abort").touch()
    (store / "checkpoint").unlink()
    segment = segments_of(store)[-2]
    at, _ = first_records(segment)[3]
    write(segment, at, size.to_bytes(4, "big", signed=True) + BLANK_MAGIC_CODE.to_bytes(4, "big", signed=True))


def an_empty_last_file(store: Path) -> None:
    """A queue's full file, with one of zeros after it."""
    file = min(a_queue(store).iterdir())
    size = file.stat().st_size
    entries = np.frombuffer(file.read_bytes(), CQ_ENTRY).copy()
    entries[np.flatnonzero(entries["msg_size"] == 0)] = entries[0]
    file.write_bytes(entries.tobytes())
    file.with_name(f"{int(file.name) + size:020d}").write_bytes(bytes(size))


def queues_that_end_sooner(store: Path) -> None:
    """All queues without their second half."""
    for file in (store / "consumequeue").glob("*/*/*"):
        data = file.read_bytes()
        used = np.count_nonzero(np.frombuffer(data, CQ_ENTRY)["msg_size"]) * UNIT_BYTES
        keep = used // 2 // UNIT_BYTES * UNIT_BYTES
        file.write_bytes(data[:keep].ljust(len(data), bytes(1)))


# Settings that are tried on every store; a number after a sign is a factor of what the store has.
CHANGES: tuple[dict[str, str], ...] = (
    {"mappedFileSizeCommitLog": "*2"},
    {"mappedFileSizeCommitLog": "/2"},
    {"mappedFileSizeConsumeQueue": "*2"},
    {"mappedFileSizeConsumeQueue": "/2"},
    {"maxHashSlotNum": "*2"},
    {"maxIndexNum": "*2"},
    {"maxIndexNum": "/2"},
    {"messageIndexEnable": "false"},
    {"messageIndexSafe": "true"},
    {"checkCRCOnRecover": "false"},
    {"forceVerifyPropCRC": "true"},
    {"enableMultiDispatch": "true", "enableLmq": "true"},
    {"enableMultiDispatch": "false"},
    {"commitLogRecoverMaxNum": "1"},
    {"recheckReputOffsetFromCq": "true"},
    {"longPollingEnable": "false"},
)
# The same of stores with a BatchConsumeQueue.
OF_BATCH: tuple[dict[str, str], ...] = (
    *({"mapperFileSizeBatchConsumeQueue": factor} for factor in ("*2", "/2")),
    *CHANGES[4:],
)
ROCKSDB_STORES = ("v5-rocksdb",)
IN_ROCKSDB = ("v5-rocksdb", "v4-tx-delay-retry", "v4-lmq", "v4-expired")
# Of these changes, the messages and keys are asked for.
ASKED = {"maxHashSlotNum", "maxIndexNum", "messageIndexEnable"}
CHANGED_STORES = (*STORES, "v4-killed-rebuilt")


@pytest.mark.parametrize(
    ("name", "version", "is_asked"),
    [
        ("v5-longtopic", "5.5.1", False),
        *(pytest.param(name, version, True, marks=pytest.mark.slow) for name in CHANGED_STORES for version in JUDGES),
        *(pytest.param(name, version, False, marks=pytest.mark.slow) for name in BATCH for version in JUDGES[1:]),
    ],
)
def test_a_setting_that_is_tried(
    name: str, version: str, is_asked: bool, homes: Homes, judge: GetStore, proof: Proof, tmp_path: Path
) -> None:
    """The prediction for a changed setting comes true; if it promises a way back, the old settings work again."""
    cases, ago = [], []
    for change in OF_BATCH if name in BATCH else CHANGES:
        title = "+".join(f"{key}{value}" for key, value in change.items()).replace("/", "%")
        home = copy(homes(name), tmp_path / title)
        cases.append(changed_case(home, f"{name} {title}", version, change))
        if cases[-1].prediction.leaves_a_way_back:
            ago.append(case(home, f"{name} {title}, before", version, []))
        if cases[-1].prediction.obstacle is not None:
            unchanged = home
            before = {file: (home / "store" / file).read_bytes() for file in files_of(home)}
    proof("G13 changes of a setting foretold", len(cases))
    plan = Plan.of(homes(name), javaproperties.loads((homes(name) / "broker.conf").read_text()))
    asked = [is_asked and bool(ASKED & changed.config.changes.keys()) for changed in cases]
    lines = ["".join(plan.lines) if each else "" for each in asked]
    happened = compare(cases, judge(version), tmp_path / "changed", lines)
    served = [(started, found) for started, found, each in zip(cases, happened, asked, strict=True) if each]
    assert [wrong for started, found in served if (wrong := wrongly_served(started, found, plan))] == []
    assert before == {file: (unchanged / "store" / file).read_bytes() for file in files_of(unchanged)}
    go_back(ago, judge(version), tmp_path / "before")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("there", "back"),
    [
        ("5.5.1", "5.5.0"),
        ("5.5.1", "4.9.3"),
        ("5.5.0", "4.9.3"),
        ("5.5.0", "5.3.2"),
        ("5.4.0", "5.1.3"),
        ("4.9.3", "5.5.1"),
    ],
)
def test_a_release_there_and_back(
    there: str, back: str, homes: Homes, judge: GetStore, proof: Proof, tmp_path: Path
) -> None:
    """Where a start of one release leaves a way back, the other one then takes the store as it would have before."""
    cases, ago = [], []
    for name in CHANGED_STORES:
        home = copy(homes(name), tmp_path / name)
        cases.append(case(home, f"{name} to {there}", there, []))
        before = case(home, f"{name} back to {back}", back, [])
        # The losses of the other release depend on whether this one was stopped cleanly.
        if cases[-1].prediction.leaves_a_way_back and before.prediction.is_harmless:
            ago.append(before)
    proof("G13 ways back foretold", len(ago))
    compare(cases, judge(there), tmp_path / "there")
    go_back(ago, judge(back), tmp_path / "back")


def go_back(ago: Sequence[Case], judge: Release, work: Path) -> None:
    """Start stores that were foretold before another start, after it: log and queues end as foretold then."""
    assert ago
    happened = start_stores(judge, [(each.store, settings_of(each)) for each in ago], work / "java")
    for each, found in zip(ago, happened, strict=True):
        queues = [queue for queue in each.prediction.queues if queue.max_offset]
        ends = {f"{queue.topic}-{queue.queue_id}": queue.max_offset for queue in queues}
        ends_now = {name: end for name, end in found.facts["queues"].items() if end}
        print(f"{judge.version} {each.name}: {verdict(each.prediction)}")
        assert (found.facts["started"], found.facts["max_offset"]) == (True, each.prediction.log_end), each.name
        assert only_different(ends, ends_now) == ({}, {}), each.name


@pytest.mark.parametrize(
    ("name", "version", "is_short"),
    [
        ("v5-longtopic", "5.5.1", True),
        *(
            pytest.param(name, version, False, marks=pytest.mark.slow)
            for name in (*CHANGED_STORES, *ROCKSDB_STORES)
            for version in ("5.5.0", "5.5.1")
        ),
    ],
)
def test_a_switched_store_type(
    name: str, version: str, is_short: bool, homes: Homes, judge: GetStore, proof: Proof, tmp_path: Path
) -> None:
    """Queues that a broker looks for in RocksDB, or in files again: each has the messages that are foretold."""
    to = "default" if name in ROCKSDB_STORES else "defaultRocksDB"
    changes = [{"storeType": to}, {"storeType": to, "commitLogRecoverMaxNum": "2"}]
    # A database that is kept is read.
    changes += [{"storeType": "defaultRocksDB"}] * (name in ROCKSDB_STORES)
    cases = []
    tries = [(0, changes[0], False)]
    if not is_short:
        tries = [(number, change, has_abort) for number, change in enumerate(changes) for has_abort in (False, True)]
    for number, change, has_abort in tries:
        home = copy(homes(name), tmp_path / f"{number}-{has_abort}")
        (home / "store" / "abort").unlink(missing_ok=True)
        if has_abort:
            (home / "store" / "abort").touch()
        cases.append(changed_case(home, f"{name} {change} {has_abort}", version, change))
    proof("G13 changes of a setting foretold", len(cases))
    plan = Plan.of(homes(name), javaproperties.loads((homes(name) / "broker.conf").read_text()))
    stores = [(each.store, settings_of(each)) for each in cases]
    happened = start_stores(judge(version), stores, tmp_path / "java", plans=["".join(plan.lines)] * len(cases))
    wrong = []
    for each, found in zip(cases, happened, strict=True):
        problems = [
            *differences(each, found, has_files=each.config.changes["storeType"] == "default"),
            *wrong_queues(each, found, plan),
        ]
        print(f"{version} {each.name}: {verdict(each.prediction)}", *problems, sep="\n    ")
        wrong += problems
    print(f"{version}: predicted {len(cases)}, wrong {len(wrong)}")
    assert not wrong


@pytest.mark.slow
@pytest.mark.parametrize("version", ["4.9.3", "5.1.3"])
def test_queues_in_rocksdb_under_a_release_without_them(
    version: str, homes: Homes, check: Check, tmp_path: Path
) -> None:
    """It knows no storeType, and looks for files."""
    cases = []
    for name, has_abort in itertools.product(("v5-rocksdb", "v4-plain"), [False, True]):
        home = copy(homes(name), tmp_path / f"{name}-{has_abort}")
        (home / "store" / "abort").unlink(missing_ok=True)
        if has_abort:
            (home / "store" / "abort").touch()
        cases.append(changed_case(home, home.name, version, {"storeType": "defaultRocksDB"}))
    check(version, cases)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["5.4.0", "5.5.0", "5.5.1"])
def test_index_in_rocksdb(version: str, homes: Homes, check: Check, proof: Proof, tmp_path: Path) -> None:
    """Recovery begins where queues and index both are: once it is switched on, and at the starts after that."""
    count = 0
    for turn, (name, has_abort) in itertools.product(range(2), itertools.product(INDEXED, [False, True])):
        before = homes(name) if not turn else tmp_path / f"0-{name}-{has_abort}"
        home = copy(before, tmp_path / f"{turn}-{name}-{has_abort}")
        (home / "store" / "abort").unlink(missing_ok=True)
        if has_abort:
            (home / "store" / "abort").touch()
        if turn:
            shutil.rmtree(home / "store" / "consumequeue" / "TopicA", ignore_errors=True)
        check(version, [changed_case(home, home.name, version, {"indexRocksDBEnable": "true"})])
        count += 1
    proof("G13 changes of a setting foretold", count)


def test_batch_queues_under_a_release_without_them(homes: Homes, check: Check, tmp_path: Path) -> None:
    """4.9.3 does not look for a BatchConsumeQueue, and makes files of the messages that it dispatches."""
    cases = []
    for name, has_abort in itertools.product(BATCH, [False, True]):
        home = copy(homes(name), tmp_path / f"{name}-{has_abort}")
        (home / "store" / "abort").unlink(missing_ok=True)
        if has_abort:
            (home / "store" / "abort").touch()
        cases.append(case(home, home.name, "4.9.3", []))
        before = case(home, home.name, "5.5.0", []).prediction
        ends = [{queue.topic: queue.max_offset for queue in each.queues} for each in (before, cases[-1].prediction)]
        assert cases[-1].prediction.renumbered
        assert all(ends[0][topic] > ends[1][topic] for topic in cases[-1].prediction.renumbered)
    check("4.9.3", cases)


@pytest.mark.parametrize("version", [pytest.param("4.9.3", marks=pytest.mark.slow), "5.5.0", "5.5.1"])
def test_dledger_switched_off(version: str, homes: Homes, check: Check, tmp_path: Path) -> None:
    """The broker finds no log, and deletes the files of all queues."""
    cases = []
    for has_abort in (False, True):
        home = copy(homes("v4-dledger"), tmp_path / f"abort-{has_abort}")
        (home / "store" / "abort").unlink(missing_ok=True)
        if has_abort:
            (home / "store" / "abort").touch()
        cases.append(changed_case(home, home.name, version, {"enableDLegerCommitLog": "false"}))
        assert cases[-1].prediction.has_lost_its_log
        assert len(cases[-1].prediction.removed_queue_files) > 0
    check(version, cases)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["5.5.0", "5.5.1"])
def test_damaged_and_switched(version: str, homes: Homes, judge: GetStore, proof: Proof, tmp_path: Path) -> None:
    """Damaged stores whose queues the broker looks for in RocksDB."""
    cases = []
    for seed in range(7000, 7030):
        choose = random.Random(seed)
        name = choose.choice(STORES)
        home = copy(homes(name), tmp_path / str(seed))
        done = damage(home / "store", choose)
        with contextlib.suppress(OptionError):
            cases.append(changed_case(home, f"{seed} {name} {done}", version, {"storeType": "defaultRocksDB"}))
    proof("G13 changes of a setting foretold", len(cases))
    happened = start_stores(judge(version), [(each.store, settings_of(each)) for each in cases], tmp_path / "java")
    wrong = {}
    for each, found in zip(cases, happened, strict=True):
        if problems := differences(each, found, has_files=False):
            wrong[each.name] = problems
    print(f"{version}: predicted {len(cases)}, wrong {len(wrong)}", *wrong.items(), sep="\n    ")
    assert len(cases) > 25
    assert not wrong


@pytest.mark.slow
@pytest.mark.parametrize("version", ["5.2.0", "5.3.2", "5.4.0", "5.5.0", "5.5.1"])
def test_queues_in_rocksdb(version: str, homes: Homes, judge: GetStore, proof: Proof, tmp_path: Path) -> None:
    """Stores with queues in RocksDB alone, damaged, and in a second turn as starts of the release have left them."""
    whole = functools.cache(lambda name: home_in_rocksdb(homes(name), tmp_path / name))
    left: list[Path] = []
    for turn, numbers in enumerate((range(8000, 8010), range(8010, 8020))):
        cases = []
        for seed in numbers:
            choose = random.Random(seed)
            name = choose.choice(IN_ROCKSDB)
            home = copy(left[seed % len(left)] if turn else whole(name), tmp_path / str(seed))
            done = damage_in_rocksdb(home / "store", choose)
            try:
                cases.append(changed_case(home, f"{seed} {name}: {'; '.join(done)}", version, {}))
            except OptionError as refused:
                print(f"{version} {seed} {name}: {'; '.join(done)}: {refused}")
        proof("G13 starts with queues in RocksDB foretold", len(cases))
        compare_in_rocksdb(cases, judge(version), tmp_path / f"java {turn}")
        left = [each.home for each in cases if each.prediction.starts]
        assert len(cases) > len(numbers) / 2


def home_in_rocksdb(stored: Path, home: Path) -> Path:
    """A copy of a home whose queues are in RocksDB alone; `home` is made."""
    copy(stored, home)
    conf = home / "broker.conf"
    if "defaultRocksDB" not in conf.read_text():
        words = ["--to", "rocksdb", "--store", str(home / "store"), "--broker-conf", str(conf)]
        (home / "store" / "abort").unlink(missing_ok=True)
        done = invoke(["queues", *words, "-o", "brokerVersion=5.5.0", "-o", "messageIndexEnable=false"])
        assert done.exit_code == 0, done.output
        conf.write_text(f"{conf.read_text()}storeType=defaultRocksDB\n")
    return home


def damage_in_rocksdb(store: Path, choose: random.Random) -> list[str]:
    """Damage log and index, and leave the database, remove it or let it end sooner; returns what was done."""
    folder, segments = store / "consumequeue", sorted((store / "commitlog").iterdir())
    end = choose.randrange(int(segments[0].name), int(segments[-1].name) + segments[-1].stat().st_size)
    what = choose.choice(["the whole database", "no database", f"a database up to {end}"])
    if what.startswith("a "):
        before = folder.rename(store / "before")
        folder.mkdir()
        writer = RocksDBQueueWriter(folder)
        with RocksDBQueues.open(before) as queues:
            for queue in queues.last:
                for numbers, units in queues.entries(queue):
                    kept = units["physical_offset"] + units["msg_size"] <= end
                    writer.put(queue, numbers[kept], units[kept])
            writer.finish(min(end, queues.dispatched_to))
        writer.close()
        shutil.rmtree(before)
    elif what.startswith("no "):
        shutil.rmtree(folder)
    elif choose.random() < 0.7:
        # The log ends at a message of the database, unless recovery begins after it.
        with RocksDBQueues.open(folder) as queues:
            found = np.concatenate(
                [units["physical_offset"] for queue in queues.last for _, units in queues.entries(queue)]
            )
        at = choose.choice(found[found >= int(segments[-1].name) - segments[-1].stat().st_size].tolist() or [end])
        what += f", zeros at {at}"
        for segment in segments:
            if int(segment.name) <= at < int(segment.name) + segment.stat().st_size:
                write(segment, at - int(segment.name), bytes(8))
    return [what, *damage(store, choose, OF_LOG_AND_INDEX)]


def compare_in_rocksdb(cases: Sequence[Case], judge: Release, work: Path) -> None:
    """Start all stores and compare, the next queue offset of each queue, too, and how many messages it serves."""
    plans = ["".join(f"queue\t{each.topic}\t{each.queue_id}\n" for each in one.prediction.queues) for one in cases]
    stores = [(each.store, settings_of(each)) for each in cases]
    happened = start_stores(judge, stores, work, start_ms=20_000, plans=plans)
    wrong = 0
    for each, found in zip(cases, happened, strict=True):
        predicted, problems = each.prediction, differences(each, found, has_files=False)
        if predicted.starts and found.facts["started"]:
            ends = {f"{queue.topic}-{queue.queue_id}": queue.max_offset for queue in predicted.queues}
            wanted, happening = only_different(ends, {name: found.facts["queues"].get(name, 0) for name in ends})
            problems += [f"queues: predicted {wanted}, happened {happening}"] * (wanted != happening)
            if not (predicted.damaged_ranges or predicted.beyond_end or predicted.missing_entries):
                # A store serves nothing from the first entry on that a queue lacks.
                whole = [queue.missing == 0 for queue in predicted.queues]
                due = [queue.entries for queue in predicted.queues]
                got = [len(offsets) for offsets in found.facts["served"]]
                pairs = list(itertools.compress(due, whole)), list(itertools.compress(got, whole))
                problems += [f"served: predicted {pairs[0]}, happened {pairs[1]}"] * (pairs[0] != pairs[1])
        wrong += bool(problems)
        print(f"{judge.version} {each.name}: {verdict(predicted)}", *problems, sep="\n    ")
    print(f"{judge.version}: predicted {len(cases)}, wrong {wrong}")
    assert not wrong


def wrong_queues(started: Case, happened: Happened, plan: Plan) -> list[str]:
    """The queues that serve another number of messages than they are foretold to have, or others than the log's."""
    entries = {(queue.topic, queue.queue_id): queue.entries for queue in started.prediction.queues}
    wrong = []
    for line, due, got in zip(plan.lines, plan.answers, happened.facts["served"], strict=True):
        kind, topic, queue_id = line.rstrip("\n").split("\t")[:3]
        if kind == "queue" and (
            len(got) != entries.get((topic, int(queue_id)), 0) or got != due[len(due) - len(got) :]
        ):
            foretold = entries.get((topic, int(queue_id)), 0)
            wrong.append(f"{topic}-{queue_id}: {foretold} foretold, {len(got)} of {len(due)} served")
    return wrong


def wrongly_served(started: Case, happened: Happened, plan: Plan) -> str:
    """Return the mistakes in the messages that a store serves: all if nothing is lost, few keys if it misreads."""
    if not started.prediction.starts or started.prediction.lost.count:
        return ""
    answers = zip(plan.lines, plan.answers, happened.facts["served"], strict=True)
    wrong = [line for line, due, is_ in answers if due != is_]
    if started.prediction.misread_index:
        return "" if wrong and not any(line.startswith("queue") for line in wrong) else f"{started.name}: {wrong}"
    if started.prediction.index_missing:
        wrong = [line for line in wrong if line.startswith("queue")]
    return "" if not started.prediction.short_queues and not wrong else f"{started.name}: {wrong}"


def changed_case(home: Path, name: str, version: str, change: Mapping[str, str]) -> Case:
    """A store that is to be started with a changed setting, and what doctor says of that."""
    conf = home / "broker.conf"
    config = load_config(home / "store", broker_conf=conf, only_reads=True)
    sizes = {
        "mappedFileSizeCommitLog": config.source.mapped_file_size or 0,
        "mappedFileSizeConsumeQueue": config.queue.mapped_file_size_consume_queue,
        "mapperFileSizeBatchConsumeQueue": config.queue.mapper_file_size_batch_consume_queue,
        "maxHashSlotNum": config.index.max_hash_slot_num,
        "maxIndexNum": config.index.max_index_num,
    }
    changes = {}
    for key, value in change.items():
        factor = {"*": 2.0, "/": 0.5}.get(value[0])
        changes[key] = value if factor is None else str(int(sizes[key] * factor))
    changed = load_config(home / "store", broker_conf=conf, changes=changes, only_reads=True)
    (diagnosis,) = examine(changed, conf, [version_of(version) or FIRST]).diagnoses
    return Case(home, name, [str(changes)], changed, diagnosis.prediction, files_of(home))


PLAIN = "v4-tx-delay-retry"
# By the name of the rule: the store, and what is done to it.
RULE_STORES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "READS_V2_RECORDS": ("v5-longtopic", lambda store: None),
    "COMPARES_SIZES": (PLAIN, lambda store: behind_a_record(store, 1 << 20)),
    "REFUSES_NEGATIVE_SIZES": (PLAIN, lambda store: behind_a_record(store, -8)),
    "WRITES_INTO_ABORT": (PLAIN, lambda store: (store / "abort").mkdir()),
    "PASSES_OVER_DIRECTORIES": (PLAIN, lambda store: (store / "commitlog" / "lost+found").mkdir()),
    "NEEDS_THE_INDEX": (PLAIN, lambda store: (store / "index" / "29990101000000000").mkdir()),
    "DELETES_AN_EMPTY_LAST_FILE": (PLAIN, lambda store: (store / "commitlog" / f"{1 << 40:020d}").touch()),
    "REPLAYS_FROM_THE_LOGS_END": (PLAIN, queues_that_end_sooner),
    "RECOVERY_DISPATCHES": (PLAIN, queues_that_end_sooner),
    "FAILS_AT_EMPTY_QUEUE_FILES": (PLAIN, an_empty_last_file),
}


def a_queue(store: Path) -> Path:
    return store / "consumequeue" / "DelayTopic" / "1"


@pytest.mark.slow
@pytest.mark.parametrize("version", ALL_RELEASES)
def test_a_bad_day(version: str, homes: Homes, check: Check, tmp_path: Path) -> None:
    """Damage by hand, by half a copy or by a mount; if doctor advises commands, they are also run."""
    cases = []
    for what, harm in BAD_DAYS.items():
        home = copy(homes("v4-tx-delay-retry"), tmp_path / what.replace(" ", "-"))
        (home / "store" / "abort").unlink(missing_ok=True)
        harm(home / "store")
        healed = copy(home, home.with_name(f"{home.name}-healed"))
        cases.append(case(home, what, version, []))
        if done := execute_advice(healed, version):
            cases.append(case(healed, what, version, done))
            assert cases[-1].prediction.starts
    check(version, cases)


def first_records(segment: Path) -> list[tuple[int, int]]:
    """Where the first records of a segment begin in it, and their sizes."""
    file = MappedFile(int(segment.name), segment.stat().st_size, str(segment))
    window = next(iter(scan_windows(file, file.file_from_offset, file.end, DecodeOptions())))
    return [(int(part[rk.AT]) + window.start - file.file_from_offset, int(part[rk.SIZE])) for part in window.parts]


def damaged(homes: Homes, work: Path, version: str, names: Sequence[str], seed: int) -> Case:
    """A damaged copy of one of the stores, and what is predicted of it."""
    choose = random.Random(seed)
    name = choose.choice(names)
    home = copy(homes(name), work / str(seed))
    return case(home, f"{seed} {name}", version, damage(home / "store", choose))


def damaged_kind(kind: str, version: str, seed: int, homes: Homes, work: Path) -> Case:
    """A store of one of the kinds, three of four damaged, and what is predicted of it."""
    choose, home = random.Random(seed), work / str(seed)
    STORE_KINDS[kind](home, homes, choose)
    done = damage(home / "store", choose) if choose.random() < 0.75 else []
    return case(home, f"{seed} {kind}", version, done)


def files_of(home: Path) -> set[str]:
    """The files of log, queues and index, below the store."""
    return {
        str(path.relative_to(home / "store"))
        for part in PARTS
        for path in (home / "store" / part).rglob("*")
        # RocksDB has files of its own beside the directories of topics.
        if path.is_file() and not (part == "consumequeue" and path.parent.name == part)
    }


def case(home: Path, name: str, version: str, done: list[str]) -> Case:
    """A store that is to be started, and what is predicted of it."""
    config = load_config(home / "store", broker_conf=home / "broker.conf")
    settings = start_settings(config, home / "broker.conf", version_of(version) or FIRST)
    return Case(home, name, done, config, predict(config.store, config.commit_log, settings), files_of(home))


def compare(cases: Sequence[Case], judge: Release, work: Path, plans: Sequence[str] = ()) -> list[Happened]:
    """Start all stores and compare; the table is printed, and any difference fails. Each is asked for its plan."""
    stores = [(each.store, settings_of(each)) for each in cases]
    happened = start_stores(judge, stores, work / "java", plans=plans)
    wrong = 0
    for each, found in zip(cases, happened, strict=True):
        problems = differences(each, found)
        wrong += bool(problems)
        # Printed beside each other, not compared: other work on the machine decides, too.
        seconds = f"{each.prediction.recovery_seconds} s estimated, {found.facts.get('load_seconds')} s taken"
        print(
            f"{judge.version} {each.name}: {'; '.join(each.done)}: {verdict(each.prediction)}; {seconds}",
            *problems,
            sep="\n    ",
        )
    print(f"{judge.version}: predicted {len(cases)}, happened {len(cases) - wrong}, wrong {wrong}")
    assert not wrong
    return happened


def settings_of(started: Case) -> dict[str, str]:
    """The settings of the broker.conf; a store alone does not read which topics have a BatchConsumeQueue."""
    topics = read_topics(started.config, started.config.store).batch
    batch = {"batchTopics": ",".join(sorted(topic.decode() for topic in topics))} if topics else {}
    conf: dict[str, str] = javaproperties.loads((started.home / "broker.conf").read_text())
    return conf | dict(started.config.changes) | batch


def verdict(found: Prediction) -> str:
    """Return the prediction in a few words."""
    if found.obstacle is not None:
        return f"does not start: {found.obstacle.why}"
    return (
        f"{found.recovery.value}, log to {found.log_end}, {found.lost.count} lost, {found.dispatched} dispatched, "
        f"{len(found.short_queues)} short queues, {found.index_missing} missing in the index"
    )


def differences(predicted: Case, happened: Happened, *, has_files: bool = True) -> list[str]:
    """A line for each thing that came otherwise; without `has_files`, queues are in RocksDB and not looked at."""
    found, facts = predicted.prediction, happened.facts
    has_index = not found.misread_index
    pairs: list[tuple[str, object, object]] = [
        ("starts", found.starts, facts["started"]),
        ("abnormal", found.recovery is Recovery.ABNORMAL, happened.is_abnormal),
    ]
    if happened.recovered_from is not None:
        pairs.append(("recovers from", found.recovers_from, happened.recovered_from))
    if happened.reput_from is not None:
        pairs.append(("replays from", found.replays_from, happened.reput_from))
    if found.starts and facts["started"]:
        queues = {f"{queue.topic}-{queue.queue_id}": queue.max_offset for queue in found.queues if queue.max_offset}
        entries: tuple[dict[str, int], dict[str, int]] = {}, {}
        if has_files:
            entries = entries_of_queues(predicted, facts["queues"], facts["min_offset"])
        pairs += [
            ("log end", found.log_end, facts["max_offset"]),
            ("dispatched", found.dispatched, facts["dispatched"]),
            (
                "dispatches from",
                -1 if found.dispatches_from is None else found.dispatches_from,
                facts["first_dispatched"],
            ),
            ("entries", *only_different(*entries)),
            ("missing in the index", has_index and found.index_missing, has_index and missing_in_index(predicted)),
            ("queues", *only_different(queues, {name: end for name, end in facts["queues"].items() if end})),
        ]
        left = predicted.files & set(facts["files"])
        segments = found.cut.removed if found.cut else found.removed_segments
        removed = [*segments, *found.removed_queue_files, *found.removed_index_files]
        names = {str(Path(path).relative_to(predicted.store)) for path in removed}
        for part in PARTS:
            gone = {name for name in names if name.startswith(f"{part}/")}
            before = {file for file in predicted.files if file.startswith(f"{part}/")}
            # The removed files have been made again.
            remade = gone & left if part.endswith("consumequeue") else set()
            pairs.append((f"{part} removed", sorted(gone - remade), sorted(before - left)))
    if not has_files:
        pairs = [pair for pair in pairs if pair[0] != "queues"]
    wrong = [f"{what}: predicted {one}, happened {other}" for what, one, other in pairs if one != other]
    return [*wrong, f"the store's error: {facts['error']}"] if wrong else []


def entries_of_queues(started: Case, ends: Mapping[str, int], min_offset: int) -> tuple[dict[str, int], dict[str, int]]:
    """How many of the log's records each queue has an entry of: as predicted, and in the files that are left."""
    predicted = {f"{queue.topic}-{queue.queue_id}": queue.entries for queue in started.prediction.queues}
    found = {}
    for queue in started.prediction.queues:
        name = f"{queue.topic}-{queue.queue_id}"
        directory = started.store / "consumequeue" / queue.topic / str(queue.queue_id)
        batch = started.store / "batchconsumequeue" / queue.topic / str(queue.queue_id)
        knows_batch = RULES["KEEPS_BATCH_QUEUES"].holds(version_of(started.prediction.release) or FIRST)
        if knows_batch and batch.is_dir() and any(batch.iterdir()):
            found[name] = batch_entries_in(batch, ends.get(name, 0), min_offset)
            continue
        found[name] = 0
        for path in directory.iterdir() if directory.is_dir() else ():
            units = np.frombuffer(path.read_bytes(), CQ_ENTRY)[
                : max(0, ends.get(name, 0) - int(path.name) // UNIT_BYTES)
            ]
            is_entry = (units["msg_size"] > 0) & ~is_pre_blank(units)
            found[name] += int(np.count_nonzero((units["physical_offset"] >= min_offset) & is_entry))
    return predicted, found


def batch_entries_in(directory: Path, end: int, min_offset: int) -> int:
    """How many entries of the log's records a BatchConsumeQueue has up to that whose last message is before `end`."""
    units = np.concatenate([np.frombuffer(path.read_bytes(), BATCH_ENTRY) for path in sorted(directory.iterdir())])
    last = np.flatnonzero((units["msg_size"] > 0) & (units["msg_base_offset"] + units["batch_size"] == end))
    units = units[: last[-1] + 1 if len(last) else 0]
    return int(np.count_nonzero((units["physical_offset"] >= min_offset) & (units["msg_size"] > 0)))


def missing_in_index(started: Case) -> int:
    """How many records with keys, of the log as the broker left it, no index file has an entry of."""
    has: set[int] = set()
    for path in (started.store / "index").glob("*"):
        if path.is_file():
            data = path.read_bytes()[entry_at(1, started.config.index.max_hash_slot_num) :]
            entries = np.frombuffer(data, ENTRY, len(data) // ENTRY.itemsize)
            has |= set(entries["physical_offset"][entries != np.zeros(1, ENTRY)].tolist())
    wanted = set()
    log_end = started.prediction.log_end
    assert log_end is not None
    queue = MappedFileQueue.load(started.config.commit_log)
    options = DecodeOptions(check_crc=True, on_damage="quarantine")
    for file in queue.files:
        for window in read_windows(file, file.file_from_offset, min(log_end, file.end), options):
            for message in window.columns.messages():
                if (message.uniq_key or (message.keys or "").strip(" ")) and not is_rollback(message.sys_flag):
                    wanted.add(message.physical_offset)
    return len(wanted - has)


def is_rollback(sys_flag: int) -> bool:
    return sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK_TYPE


def only_different(one: dict[str, int], other: dict[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    names = {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}
    return {n: one[n] for n in sorted(names & one.keys())}, {n: other[n] for n in sorted(names & other.keys())}
