"""The source's options: names, defaults, what they allow, and errors that say it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from reput.source.errors import OptionError
from reput.source.options import SOURCE_OPTIONS, SourceOptions
from reput.source.printable import printable
from reput.source.record.message_properties import DEFAULT_MESSAGE_DELAY_LEVEL, parse_delay_levels

#: A name, the attribute it sets, its default.
DEFAULTS = [
    ("rows", "rows", "messages"),
    ("startingOffset", "starting_offset", "earliest"),
    ("startingTimestamp", "starting_timestamp", None),
    ("endingOffset", "ending_offset", "latest"),
    ("maxBytesPerTrigger", "max_bytes_per_trigger", None),
    ("maxMessagesPerTrigger", "max_messages_per_trigger", None),
    ("maxBytesPerPartition", "max_bytes_per_partition", 67_108_864),
    ("failOnDataLoss", "fail_on_data_loss", True),
    ("checkCrc", "check_crc", "tail"),
    ("onDamage", "on_damage", "stop"),
    ("includeBody", "include_body", False),
    ("answersAt", "answers_at", None),
    ("tailGuardMs", "tail_guard_ms", 500),
    ("mappedFileSizeCommitLog", "mapped_file_size", None),
    ("enableDLegerCommitLog", "enable_dledger_commit_log", False),
    ("messageDelayLevel", "delays_ms", parse_delay_levels(DEFAULT_MESSAGE_DELAY_LEVEL)),
]
ATTRIBUTES = {name: attribute for name, attribute, _ in DEFAULTS}


def parse(**given: str) -> SourceOptions:
    return SourceOptions.parse({"path": "/log", **given})


@pytest.mark.parametrize(("name", "attribute", "default"), DEFAULTS)
def test_defaults(name: str, attribute: str, default: object) -> None:
    """The value of each option if it is not given."""
    assert default == getattr(parse(), attribute)


def test_the_list_of_options_is_whole() -> None:
    """Each option is in the table that documents it, once, with words for what it allows and why."""
    assert sorted(["path", *ATTRIBUTES]) == sorted(option.name for option in SOURCE_OPTIONS)
    assert all(option.allowed and option.reason for option in SOURCE_OPTIONS)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("rows", "ranges", "ranges"),
        ("rows", "MESSAGES", "messages"),
        ("startingOffset", "latest", "latest"),
        ("startingOffset", "Earliest", "earliest"),
        ("startingOffset", "0", 0),
        ("startingOffset", "1073741824", 1_073_741_824),
        ("startingTimestamp", "1700000000000", 1_700_000_000_000),
        ("startingTimestamp", "0", 0),
        ("endingOffset", "latest", "latest"),
        ("endingOffset", "5", 5),
        ("maxBytesPerTrigger", "1", 1),
        ("maxBytesPerTrigger", "100k", 102_400),
        ("maxBytesPerTrigger", "64m", 67_108_864),
        ("maxBytesPerTrigger", "64M", 67_108_864),
        ("maxBytesPerTrigger", "1g", 1_073_741_824),
        ("maxBytesPerTrigger", " 2t ", 2_199_023_255_552),
        ("maxMessagesPerTrigger", "1000", 1_000),
        ("maxBytesPerPartition", "16m", 16_777_216),
        ("failOnDataLoss", "false", False),
        ("failOnDataLoss", "TRUE", True),
        ("checkCrc", "all", "all"),
        ("checkCrc", "None", "none"),
        ("onDamage", "Quarantine", "quarantine"),
        ("onDamage", "broker", "broker"),
        ("includeBody", "true", True),
        ("tailGuardMs", "0", 0),
        ("tailGuardMs", "200", 200),
        ("mappedFileSizeCommitLog", "1073741824", 1_073_741_824),
        ("mappedFileSizeCommitLog", "4k", 4096),
        ("enableDLegerCommitLog", "True", True),
        ("messageDelayLevel", "1s 2d", (1_000, 172_800_000)),
    ],
)
def test_values(name: str, text: str, expected: object) -> None:
    """Text to value, for each option."""
    assert expected == getattr(parse(**{name: text}), ATTRIBUTES[name])


LONG_MAX = 9223372036854775807
BYTES = f"bytes: a whole number from 1 to {LONG_MAX}, or one with k, m, g or t wanted"
TIME = (
    f"milliseconds since 1970: a whole number from 0 to {LONG_MAX}, a store timestamp; replaces startingOffset wanted"
)
DELAYS = "delays with blanks between, each a number and s, m, h or d wanted"


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("rows", "foo", "messages or ranges wanted"),
        ("rows", "", "messages or ranges wanted"),
        ("startingOffset", "-1", "earliest, latest or a physical offset wanted"),
        ("startingOffset", "first", "earliest, latest or a physical offset wanted"),
        ("startingOffset", "1.5", "earliest, latest or a physical offset wanted"),
        ("endingOffset", "earliest", "latest or a physical offset (exclusive); batch reads only wanted"),
        ("startingTimestamp", "-5", TIME),
        ("startingTimestamp", "now", TIME),
        ("startingTimestamp", str(LONG_MAX + 1), TIME),
        ("maxBytesPerTrigger", "-1", BYTES),
        ("maxBytesPerTrigger", "0", BYTES),
        ("maxBytesPerTrigger", "0g", BYTES),
        ("maxBytesPerTrigger", "1.5m", BYTES),
        ("maxBytesPerTrigger", "1mb", BYTES),
        ("maxBytesPerTrigger", "1 m", BYTES),
        ("maxBytesPerTrigger", "m", BYTES),
        ("maxMessagesPerTrigger", "0", f"a whole number from 1 to {LONG_MAX} wanted"),
        ("maxMessagesPerTrigger", "1k", f"a whole number from 1 to {LONG_MAX} wanted"),
        ("maxBytesPerPartition", "all", BYTES),
        ("failOnDataLoss", "no", "true or false wanted"),
        ("failOnDataLoss", "1", "true or false wanted"),
        ("checkCrc", "true", "tail, all or none wanted"),
        ("onDamage", "skip", "stop, quarantine or broker wanted"),
        ("includeBody", "yes", "true or false wanted"),
        ("tailGuardMs", "-1", "milliseconds: a whole number from 0 to 3600000 wanted"),
        ("tailGuardMs", "0.5", "milliseconds: a whole number from 0 to 3600000 wanted"),
        ("mappedFileSizeCommitLog", "1GiB", BYTES.replace(str(LONG_MAX), "2147483647")),
        ("mappedFileSizeCommitLog", "2g", BYTES.replace(str(LONG_MAX), "2147483647")),
        ("startingOffset", str(LONG_MAX + 1), "earliest, latest or a physical offset wanted"),
        ("maxBytesPerTrigger", "8388608t", BYTES),
        ("maxBytesPerTrigger", "\u0665", BYTES),
        ("maxMessagesPerTrigger", "1_000", f"a whole number from 1 to {LONG_MAX} wanted"),
        ("tailGuardMs", "3600001", "milliseconds: a whole number from 0 to 3600000 wanted"),
        ("path", "/a\0b", "the commitlog directory, or several with commas between wanted"),
        ("messageDelayLevel", "1s,5s", DELAYS),
        ("messageDelayLevel", "", DELAYS),
        ("path", " , ", "the commitlog directory, or several with commas between wanted"),
    ],
)
def test_a_wrong_value_is_told_what_is_right(name: str, text: str, wanted: str) -> None:
    """The error names the option, what was given, and what it allows."""
    with pytest.raises(OptionError) as raised:
        parse(**{name: text})
    assert f"{name}={printable(text)}: {wanted}" == str(raised.value)


def test_a_long_value_is_named_by_its_beginning() -> None:
    """A digit too many, or a million of them: one line."""
    with pytest.raises(OptionError) as raised:
        parse(maxMessagesPerTrigger="9" * 1_000_000)
    assert str(raised.value).startswith(f"maxMessagesPerTrigger={'9' * 60}... (1000000 characters): a whole number")
    assert len(str(raised.value)) < 200


def test_names_have_no_case() -> None:
    """Spark folds the names of options, so any case will do."""
    options = SourceOptions.parse({"PATH": "/log", "tailguardms": "7", "MAXBYTESPERTRIGGER": "1k"})
    assert (options.path, options.tail_guard_ms, options.max_bytes_per_trigger) == ((Path("/log"),), 7, 1024)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("startingOffsets", "startingOffset"), ("tailGuard", "tailGuardMs"), ("rows ", "rows")],
)
def test_an_unknown_option_is_refused_with_what_is_meant(name: str, meant: str) -> None:
    """A misspelt option is an error, never ignored, and those that look like it are named, the nearest first."""
    with pytest.raises(OptionError, match=re.escape(f"unknown option {name!r}; did you mean {meant}")) as raised:
        parse(**{name: "1"})
    assert len(str(raised.value)) < 120


@pytest.mark.parametrize("name", ["zzz", ""])
def test_an_unknown_option_is_refused_with_the_known(name: str) -> None:
    """Where nothing looks like it."""
    with pytest.raises(OptionError) as raised:
        parse(**{name: "1"})
    known = ", ".join(sorted(option.name for option in SOURCE_OPTIONS))
    assert f"unknown option {name!r}; the options are {known}" == str(raised.value)


def test_a_wrong_value_under_another_case_names_the_option() -> None:
    """The error has the option's own spelling."""
    with pytest.raises(OptionError, match=r"^tailGuardMs=x: "):
        parse(TAILGUARDMS="x")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/a/commitlog", ["/a/commitlog"]),
        ("/a,/b", ["/a", "/b"]),
        (" /a , /b c ,", ["/a", "/b c"]),
        ("relative", ["relative"]),
    ],
)
def test_paths(text: str, expected: list[str]) -> None:
    """One directory or several with commas between, as storePathCommitLog has them."""
    assert tuple(map(Path, expected)) == SourceOptions.parse({"path": text}).path


def test_path_is_required() -> None:
    """Without a path there is nothing to read."""
    with pytest.raises(
        OptionError, match=re.escape("path is missing: the commitlog directory, or several with commas")
    ):
        SourceOptions.parse({})


@pytest.mark.parametrize(
    ("given", "fails"),
    [
        ({"includeBody": "true", "rows": "ranges"}, True),
        ({"includeBody": "false", "rows": "ranges"}, False),
        ({"includeBody": "true", "rows": "messages"}, False),
    ],
)
def test_ranges_have_no_bodies(given: dict[str, Any], fails: bool) -> None:
    """Bodies are columns of messages; asked for with ranges they are refused, not dropped."""
    if not fails:
        assert parse(**given).rows == given["rows"]
        return
    with pytest.raises(OptionError, match="includeBody=true needs rows=messages"):
        parse(**given)
