"""The configuration: what beats what, and that conf/reput.toml is the table of options."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from reput.source.errors import OptionError
from reput.source.options import Option
from reput.streaming.config import PIPELINE_OPTIONS, load_config

REPUT_TOML = Path(__file__).parents[2] / "conf" / "reput.toml"


def rendered(option: Option) -> str:
    """One option as conf/reput.toml shows it."""
    lines = (f"Allowed: {option.allowed}.", f"Default: {option.reason}.")
    text = "\n".join(textwrap.fill(line, 118, initial_indent="# ", subsequent_indent="#   ") for line in lines)
    if option.default is None:
        return f"{text}\n# {option.name} ="
    value = option.default
    if option.name == "messageDelayLevel":
        value = " ".join(delay_text(delay) for delay in option.default)
    if option.allowed.startswith("bytes") and value % (1 << 20) == 0:
        value = f"{value >> 20}m"
    if isinstance(value, bool):
        return f"{text}\n{option.name} = {str(value).lower()}"
    return f"{text}\n{option.name} = {value}" if isinstance(value, int) else f'{text}\n{option.name} = "{value}"'


def delay_text(delay_ms: int) -> str:
    """A delay as broker.conf writes it."""
    for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1_000)):
        if delay_ms % size == 0:
            return f"{delay_ms // size}{unit}"
    raise AssertionError(delay_ms)


def test_reput_toml_is_the_table_of_options() -> None:
    """Every option with its unit, default and reason, and nothing else."""
    header = (
        "# Options of `reput tail` and `rebuild`: what each allows, its unit, the default and its reason.\n"
        "# broker.conf (--broker-conf) beats this file (--config); the command line (--option name=value) beats both.\n"
    )
    expected = header + "".join(f"\n{rendered(option)}\n" for option in PIPELINE_OPTIONS)
    assert expected == REPUT_TOML.read_text()


def test_reput_toml_loads_to_the_defaults(tmp_path: Path) -> None:
    """The file as shipped changes nothing."""
    assert load_config(tmp_path, config_file=REPUT_TOML).values == load_config(tmp_path).values


def test_broker_conf_beats_the_file_and_the_command_line_both(tmp_path: Path) -> None:
    """Three sources, one value each."""
    (tmp_path / "reput.toml").write_text("maxHashSlotNum = 1\nmaxIndexNum = 11\nmessageIndexEnable = false\n")
    (tmp_path / "broker.conf").write_text("maxHashSlotNum=2\nmaxIndexNum=22\nbrokerName = broker-a\nfoo=bar\n")
    config = load_config(
        tmp_path,
        config_file=tmp_path / "reput.toml",
        broker_conf=tmp_path / "broker.conf",
        overrides=["MAXINDEXNUM=33"],
    )
    assert (2, 33, False, "broker-a") == tuple(
        config[name] for name in ("maxHashSlotNum", "maxIndexNum", "messageIndexEnable", "broker")
    )


@pytest.mark.parametrize(
    ("conf", "expected"),
    [
        ("", ["S/commitlog"]),
        ("storePathRootDir=/x/store", ["S/commitlog"]),
        ("storePathRootDir=store\nstorePathCommitLog=store/commitlog", ["S/commitlog"]),
        ("storePathRootDir=/x/store/\nstorePathCommitLog=/x/store/log", ["S/log"]),
        ("storePathRootDir=/x\nstorePathCommitLog=/disk1/log, /disk2/log", ["/disk1/log", "/disk2/log"]),
        (
            "storePathRootDir=/x\nstorePathCommitLog=/x/log,/disk2/log\nreadOnlyCommitLogStorePaths=/old",
            ["S/log", "/disk2/log", "/old"],
        ),
        ("storePathCommitLog=elsewhere", ["C/elsewhere"]),
    ],
)
def test_where_the_commitlog_is(tmp_path: Path, conf: str, expected: list[str]) -> None:
    """Paths below the broker's root are taken below --store; others as they are."""
    store, directory = tmp_path / "store", tmp_path / "conf"
    directory.mkdir()
    (directory / "broker.conf").write_text(conf)
    paths = load_config(store, broker_conf=directory / "broker.conf").commit_log
    wanted = [text.replace("S/", f"{store}/", 1).replace("C/", f"{directory}/", 1) for text in expected]
    assert wanted == [str(path) for path in paths]


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("maxBytesPerTrigger=-1", "maxBytesPerTrigger=-1: bytes"),
        ("nonsense=1", "unknown option 'nonsense'; the options are broker, brokerVersion, checkCrc"),
        ("maxIndexNum=1", "maxIndexNum=1: a whole number from 2 wanted"),
        ("messageIndexEnable=yes", "true or false"),
        ("messageDelayLevel=1s 5x", "messageDelayLevel=1s 5x"),
        ("broker", "name=value wanted"),
        ("startingOffset=middle", "earliest, latest or a physical offset"),
    ],
)
def test_wrong_options_name_what_is_allowed(tmp_path: Path, override: str, words: str) -> None:
    """The message has the option, its value and what it may be."""
    with pytest.raises(OptionError) as caught:
        load_config(tmp_path, overrides=[override])
    assert words in str(caught.value)


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    """A missing or broken configuration file is told with its path."""
    (tmp_path / "broken.toml").write_text("= 3")
    for name in ("missing.toml", "broken.toml"):
        with pytest.raises(OptionError, match=name):
            load_config(tmp_path, config_file=tmp_path / name)
    with pytest.raises(OptionError, match=r"missing\.conf"):
        load_config(tmp_path, broker_conf=tmp_path / "missing.conf")


def test_source_options_read_back_the_same(tmp_path: Path) -> None:
    """What the pipeline hands to the source parses to the same values."""
    from reput.source.options import SourceOptions

    config = load_config(tmp_path, overrides=["messageDelayLevel=1s 90s 2h 1d", "checkCrc=all", "tailGuardMs=7"])
    options = SourceOptions.parse(config.source_options(rows="ranges", startingOffset=5))
    assert config["messageDelayLevel"] == options.delays_ms
    assert ("all", 7, 5, "ranges") == (
        options.check_crc,
        options.tail_guard_ms,
        options.starting_offset,
        options.rows,
    )
