"""Every number of an option at its ends works; outside them it is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.rebuild_runner import rebuild
from support.record_writer import Message, write_log

from reput.source.errors import OptionError, SegmentError
from reput.source.options import SOURCE_OPTIONS, Option
from reput.streaming.config.pipeline import PIPELINE_OPTIONS, check_range_count, load_config
from reput.streaming.tasks.tasks import SerialTasks
from reput.streaming.verify.store_verification import StoreVerification

RANGE = re.compile(r"a whole number from (\d+) to (\d+)")
OFFSETS = ("startingOffset", "endingOffset")
OPTIONS = {option.name: option for option in (*SOURCE_OPTIONS, *PIPELINE_OPTIONS)}
NUMBERS = {name: option for name, option in OPTIONS.items() if RANGE.search(option.allowed)}
# Options whose texts are not numbers, whatever their defaults are.
OTHERS = {
    "messageDelayLevel",
    "sparkDriverMemory",
    "sparkMaster",
    "brokerVersion",
    "broker",
    "path",
    "rows",
    "metricsHost",
    "answersAt",
}
# That do not take 100: of errors in per cent that is too much, of a log in bytes too little.
NOT_100 = {"maxErrorRateOfBloomFilter", "sparkLogMaxBytes", "sqlMaxMemory"}

ENDS = [
    (name, int(end), int(end) + step)
    for name in NUMBERS
    for end, step in zip(RANGE.findall(NUMBERS[name].allowed)[0], (-1, 1), strict=True)
]
# An hour, and files of 2 GiB: too much for a test.
TOO_LONG = {("tailGuardMs", 3_600_000), ("maxHashSlotNum", 536870891), ("maxIndexNum", 107374180)}


def takes_a_number(option: Option) -> bool:
    try:
        option.parse("100")
    except ValueError:
        return False
    return option.name not in OTHERS


def test_every_number_has_an_upper_bound() -> None:
    """None is as large as one likes, and the words say how large."""
    numbers = {name for name in OPTIONS if takes_a_number(OPTIONS[name])}
    assert numbers | NOT_100 == {*NUMBERS, *OFFSETS}
    for option in OPTIONS.values():
        for text in ("9" * 20, "9" * 5000, "-1", "1e3", "\u0661", "0x10", "1_000", "+-1"):
            if option.name not in OTHERS:
                with pytest.raises(ValueError):
                    option.parse(text)


@pytest.mark.parametrize(("name", "end", "outside"), ENDS)
def test_an_option_at_its_end(name: str, end: int, outside: int, tmp_path: Path) -> None:
    """A real rebuild with it is done, or refused by its name; one further is always refused."""
    with pytest.raises(ValueError):
        NUMBERS[name].parse(str(outside))
    if name not in {option.name for option in PIPELINE_OPTIONS} or (name, end) in TOO_LONG:
        return
    write_log(tmp_path / "store" / "commitlog", [Message(topic="T")] * 12, 1 << 16)
    sizes = {"maxHashSlotNum": "7", "maxIndexNum": "20", "tailGuardMs": "0"}
    overrides = [f"{key}={text}" for key, text in {**sizes, name: str(end)}.items()]
    config = load_config(tmp_path / "store", overrides=overrides)
    if name == "mappedFileSizeCommitLog":
        with pytest.raises(SegmentError, match=f"bytes where mappedFileSizeCommitLog is {end}; every segment"):
            rebuild(config, tmp_path / "out")
    else:
        assert rebuild(config, tmp_path / "out").messages == 12


def test_ranges_that_are_too_many(tmp_path: Path) -> None:
    """A task a byte would never end: the option is named, and what it is at least."""
    check_range_count("rebuildMaxBytesPerPartition", 1000, 10_000_000)
    with pytest.raises(OptionError) as caught:
        check_range_count("rebuildMaxBytesPerPartition", 999, 10_000_000)
    assert str(caught.value) == (
        "rebuildMaxBytesPerPartition=999: too small for 10000000 bytes of the log at once; at least 1000 wanted"
    )
    write_log(tmp_path / "store" / "commitlog", [Message(topic="T")] * 1500, 1 << 20)
    config = load_config(tmp_path / "store", overrides=["rebuildMaxBytesPerPartition=1"])
    with pytest.raises(OptionError, match=r"^rebuildMaxBytesPerPartition=1: too small for \d+ bytes of the log"):
        rebuild(config, tmp_path / "out")
    (tmp_path / "out").mkdir(exist_ok=True)
    config = load_config(tmp_path / "store", overrides=["maxBytesPerPartition=1", "tailGuardMs=0"])
    with pytest.raises(OptionError, match=r"^maxBytesPerPartition=1: too small for \d+ bytes of the log"):
        StoreVerification(config, tmp_path / "out").run(SerialTasks())
