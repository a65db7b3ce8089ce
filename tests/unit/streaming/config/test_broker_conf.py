"""Settings of a broker.conf that are not what they look like: what reput makes of them, and what it says."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from reput.source.errors import OptionError
from reput.streaming.config.pipeline import PIPELINE_OPTIONS, load_config

#: Lines of a broker.conf, an option and its value, and the warning without the file's name ("" for none).
READINGS = [
    (
        "messageIndexEnable=true ",
        "messageIndexEnable",
        False,
        "messageIndexEnable='true ' is false to a broker, for",
    ),
    ("messageIndexEnable=TRUE", "messageIndexEnable", True, ""),
    ("messageIndexEnable=false ", "messageIndexEnable", False, ""),
    (
        "messageIndexEnable=yes",
        "messageIndexEnable",
        False,
        "messageIndexEnable='yes' is false to a broker, which",
    ),
    ("enableLmq=1", "enableLmq", False, "enableLmq='1' is false to a broker"),
    (
        "maxIndexNum=5000 ",
        "maxIndexNum",
        20_000_000,
        "maxIndexNum='5000 ' is not a number that a broker reads, for",
    ),
    ("maxIndexNum=5000\t", "maxIndexNum", 20_000_000, r"maxIndexNum='5000\t' is not a number that a broker reads"),
    (
        "maxIndexNum=4k",
        "maxIndexNum",
        20_000_000,
        "maxIndexNum='4k' is not a number that a broker reads; it takes",
    ),
    ("maxIndexNum=+5000", "maxIndexNum", 5000, ""),
    (r"maxIndexNum=\u0665", "maxIndexNum", 5, ""),
    ("maxIndexNum=5\nmaxIndexNum=6", "maxIndexNum", 6, ""),
    ("maxIndexNum : 7", "maxIndexNum", 7, ""),
    (
        "MaxIndexNum=7",
        "maxIndexNum",
        20_000_000,
        "MaxIndexNum is not a setting of a broker, maxIndexNum is; it is",
    ),
    (
        "mappedFileSizeCommitLog=1g",
        "mappedFileSizeCommitLog",
        1 << 30,
        "it takes its default, 1073741824; so does",
    ),
    (
        "mappedFileSizeConsumeQueue=99999999999",
        "mappedFileSizeConsumeQueue",
        6_000_000,
        "its default, 6000000",
    ),
    ("# \xd6\xd0\xce\xc4\nmaxIndexNum=7", "maxIndexNum", 7, ""),
    ("brokerName=broker-a ", "broker", "broker-a ", "brokerName='broker-a ' is taken with the white space, as brokers"),
    ("brokerName=broker-a", "broker", "broker-a", ""),
    ("messageDelayLevel=1s 5s  ", "messageDelayLevel", (1000, 5000), ""),
    ("foo = bar", "maxIndexNum", 20_000_000, ""),
]


def load(directory: Path, lines: str, *overrides: str, toml: str = "") -> Any:
    (directory / "reput.toml").write_text(toml)
    (directory / "broker.conf").write_bytes(lines.encode("latin-1"))
    return load_config(
        directory, config_file=directory / "reput.toml", broker_conf=directory / "broker.conf", overrides=overrides
    )


@pytest.mark.parametrize(("lines", "name", "value", "warning"), READINGS)
def test_what_a_broker_reads(
    lines: str, name: str, value: object, warning: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The value is the broker's, and one line says so if the text suggests another value."""
    with caplog.at_level(logging.WARNING):
        assert load(tmp_path, lines).values[name] == value
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == (1 if warning else 0), messages
    assert not warning or (warning in messages[0] and messages[0].startswith(f"{tmp_path}/broker.conf, line 1: "))


def test_a_setting_that_the_broker_does_not_read_beats_the_file_of_options(tmp_path: Path) -> None:
    """The broker has its default, whatever reput.toml says; the command line is asked first."""
    assert load(tmp_path, "maxIndexNum=5 ", toml="maxIndexNum = 9").index.max_index_num == 20_000_000
    assert load(tmp_path, "foo=5", toml="maxIndexNum = 9").index.max_index_num == 9
    assert load(tmp_path, "maxIndexNum=5 ", "maxindexnum= 8 ", toml="maxIndexNum = 9").index.max_index_num == 8


def test_since_5_2_0_text_has_no_white_space_around_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Numbers and switches have."""
    lines = "brokerName=broker-a \nmaxIndexNum=5 \nstorePathCommitLog=/log\t\n"
    for version, name, path in (("5.1.4", "broker-a ", "/log\t"), ("5.2.0", "broker-a", "/log")):
        caplog.clear()
        config = load(tmp_path, lines, f"brokerVersion={version}")
        assert (config.broker.name, config.index.max_index_num, str(config.commit_log[0])) == (name, 20_000_000, path)
        assert len(caplog.records) == (1 if version == "5.2.0" else 3)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("\nmaxIndexNum=1", "line 2: maxIndexNum=1: a whole number from 2 to 107374180 wanted"),
        ("maxHashSlotNum=-5", "line 1: maxHashSlotNum=-5: a whole number from 1"),
        ("maxIndexNum=107374180\nmaxHashSlotNum=5", "maxHashSlotNum=5 and maxIndexNum=107374180 make index files of"),
        ("messageDelayLevel=1s  5s", "line 1: messageDelayLevel='1s  5s': delays with blanks between, each a number"),
        ("brokerName=", "line 1: brokerName is the option broker=: a name wanted"),
        (r"storePathCommitLog=/a\u0000b", r"line 1: storePathCommitLog=/a\x00b: no name or path can have these"),
        (r"brokerName=\ud83d", r"line 1: brokerName=\ud83d: no name or path can have these characters"),
    ],
)
def test_settings_that_no_broker_works_with(lines: str, words: str, tmp_path: Path) -> None:
    """Refused with file and line."""
    with pytest.raises(OptionError) as caught:
        load(tmp_path, lines)
    assert words in str(caught.value)
    assert str(caught.value).isprintable()


def test_settings_that_reput_does_not_follow(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They are named once, in one line, with what they change; those that change nothing are not."""
    lines = "duplicationEnable=true\nindexFileWriteEnable=true\nrecheckReputOffsetFromCq=TRUE\nindexRocksDBEnable=true "
    load(tmp_path, lines + "\nmessageStorePlugIn=a.B\nflushDiskType=SYNC_FLUSH\nmaxMessageSize=x")
    (message,) = [record.getMessage() for record in caplog.records]
    assert message == (
        f"{tmp_path}/broker.conf: reput does not follow duplicationEnable=true (line 1): the broker dispatches no "
        "further than the offset that its replicas have confirmed; recheckReputOffsetFromCq=TRUE (line 3): a broker's "
        "recovery begins elsewhere; messageStorePlugIn=a.B (line 5): a plug-in writes what it likes"
    )


def test_defaults_are_the_brokers() -> None:
    """A text that is not a number gives the same value as no setting."""
    from reput.streaming.config.broker_conf import NUMBERS

    defaults = {option.name: option.default for option in PIPELINE_OPTIONS}
    assert {name: defaults[name] or 1 << 30 for name in NUMBERS} == NUMBERS
