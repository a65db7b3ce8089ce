"""The configuration: what beats what, and that conf/reput.toml is the table of options."""

from __future__ import annotations

import textwrap
from dataclasses import fields
from pathlib import Path
from typing import get_origin, get_type_hints

import pytest
from support.paths import ROOT

from reput.sinks.table.retention import RowRetention
from reput.source.errors import OptionError
from reput.source.options import Option
from reput.streaming.config.pipeline import PIPELINE_OPTIONS, PipelineConfig, load_config
from reput.streaming.config.settings import GROUPS

REPUT_TOML = ROOT / "conf" / "reput.toml"


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
        "# Options of reput's commands: what each allows, its unit, the default and its reason.\n"
        "# broker.conf (--broker-conf) beats this file (--config); the command line (--option name=value) beats both.\n"
        "# With several brokers, all of this is above a section for each, [[broker]]; see docs/commands/tail.md. A "
        "section has\n"
        "# its broker's store, output and, if there is one, brokerConf, and options of its own, which beat that "
        "broker.conf;\n"
        "# then `broker = ...` is in the sections, not here.\n"
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
    index = config.index
    assert (2, 33, False) == (index.max_hash_slot_num, index.max_index_num, index.message_index_enable)
    assert config.broker.name == "broker-a"


#: A text for each option that is not its default, and what the option's field then holds.
TEXTS: dict[str, tuple[str, object]] = {
    "broker": ("broker-b", "broker-b"),
    "brokerVersion": ("5.1.4", "5.1.4"),
    "configManagerVersion": ("v2", "v2"),
    "startingOffset": ("latest", "latest"),
    "checkCrc": ("all", "all"),
    "onDamage": ("quarantine", "quarantine"),
    "messageDelayLevel": ("1s", (1000,)),
    "tableRetention": ("a=3d", RowRetention.parse("a=3d")),
    "sparkMaster": ("local[3]", "local[3]"),
    "sparkDriverMemory": ("3g", "3g"),
    "sparkLogMaxBytes": ("64k", 64 * 1024),
    "sqlMaxMemory": ("64m", 64 * 1024 * 1024),
    "metricsHost": ("127.0.0.1", "127.0.0.1"),
    "queueRestart": ("replay", "replay"),
}


def fields_of(config: PipelineConfig) -> dict[tuple[str, str], object]:
    """Every field of every group of options."""
    return {(name, key): value for name in GROUPS for key, value in vars(getattr(config, name)).items()}


@pytest.mark.parametrize("option", PIPELINE_OPTIONS, ids=lambda option: option.name)
def test_each_option_reaches_one_field_of_its_type(option: Option, tmp_path: Path) -> None:
    """A given value appears in exactly one field, whose type is that of the value and of the default."""
    (tmp_path / "dledger-n0" / "data").mkdir(parents=True)
    (tmp_path / "commitlog").mkdir()
    number = 24 if option.default is None or isinstance(option.default, int) else 0
    given: tuple[str, object] = (str(number), number)
    if isinstance(option.default, bool):
        given = (str(not option.default).lower(), not option.default)
    text, value = TEXTS.get(option.name, given)
    before = fields_of(load_config(tmp_path))
    after = fields_of(load_config(tmp_path, overrides=[f"{option.name}={text}"]))
    ((group, field),) = [place for place in after if after[place] != before[place]]
    assert after[group, field] == value
    hint = get_type_hints(GROUPS[group])[field]
    hint = get_origin(hint) if get_origin(hint) is tuple else hint
    assert isinstance(value, hint)
    assert isinstance(option.default, hint)


def test_every_field_is_an_option() -> None:
    """No option has two fields or none, and every setting can be given."""
    names = [option.name for option in PIPELINE_OPTIONS]
    assert len(names) == len(set(names)) == sum(len(fields(group)) for group in GROUPS.values())


@pytest.mark.parametrize(
    ("conf", "expected"),
    [
        ("", ["S/commitlog"]),
        ("storePathRootDir=/x/store", ["S/commitlog"]),
        ("storePathRootDir=store\nstorePathCommitLog=store/commitlog", ["S/commitlog"]),
        ("storePathRootDir=/x/store/\nstorePathCommitLog=/x/store/log", ["S/log"]),
        ("storePathRootDir=/x\nstorePathCommitLog=/disk1/log,/disk2/log", ["/disk1/log", "/disk2/log"]),
        ("storePathCommitLog= /disk1/log, /disk2/log,, ", ["/disk1/log", "C/ /disk2/log"]),
        ("storePathCommitLog=/disk1/log\nreadOnlyCommitLogStorePaths=/old", ["/disk1/log"]),
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
    store.mkdir()
    (directory / "broker.conf").write_text(conf)
    paths = load_config(store, broker_conf=directory / "broker.conf").commit_log
    wanted = [text.replace("S/", f"{store}/", 1).replace("C/", f"{directory}/", 1) for text in expected]
    assert wanted == [str(path) for path in paths]


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("maxBytesPerTrigger=-1", "maxBytesPerTrigger=-1: bytes"),
        ("nonsense=1", "unknown option 'nonsense'; conf/reput.toml has all options"),
        ("tableTrigerMs=1", "unknown option 'tableTrigerMs'; did you mean tableTriggerMs or logicTriggerMs"),
        ("guard=1", "unknown option 'guard'; did you mean tailGuardMs?"),
        ("maxIndexNum=1", "maxIndexNum=1: a whole number from 2 to 107374180 wanted"),
        ("messageIndexEnable=yes", "true or false"),
        ("messageDelayLevel=1s 5x", "messageDelayLevel=1s 5x"),
        ("messageDelayLevel=9999999999999999d", "messageDelayLevel=9999999999999999d: delays with blanks between"),
        ("maxIndexNum=99999999999999999999", "a whole number from 2 to 107374180 wanted"),
        ("maxHashSlotNum=536870891", "maxHashSlotNum=536870891 and maxIndexNum=20000000 make index files of"),
        ("mappedFileSizeConsumeQueue=2147483641", "bytes: a whole number from 1 to 2147483640"),
        ("mappedFileSizeConsumeQueueExt=23", "bytes: a whole number from 24 to 2147483647"),
        ("maxErrorRateOfBloomFilter=100", "per cent: a whole number from 1 to 99 wanted"),
        ("tableTriggerMs=2147483648", "milliseconds: a whole number from 0 to 2147483647 wanted"),
        ("brokerVersion=4.9", "brokerVersion=4.9: auto, or a version such as 4.9.3 wanted"),
        ("brokerVersion=99999.1.1", "auto, or a version such as 4.9.3 wanted"),
        ("sparkDriverMemory=2gb", "sparkDriverMemory=2gb: a whole number with k, m, g or t, from 512m to 1t wanted"),
        ("sparkDriverMemory=511m", "from 512m to 1t wanted"),
        ("sparkDriverMemory=2000000000", "from 512m to 1t wanted"),
        (
            "sparkMaster=local[*",
            "sparkMaster=local[*: local, local[N] (N from 1 to 1024, or *), spark://HOST:PORT, yarn",
        ),
        ("broker=\x1b[31m", r"broker=\x1b[31m: a name wanted"),
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
    """The error about a missing or broken configuration file has its path."""
    (tmp_path / "broken.toml").write_text("= 3")
    for name in ("missing.toml", "broken.toml"):
        with pytest.raises(OptionError, match=name):
            load_config(tmp_path, config_file=tmp_path / name)
    with pytest.raises(OptionError, match=r"missing\.conf"):
        load_config(tmp_path, broker_conf=tmp_path / "missing.conf")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'broker = "a"\n# \xd6\xd0\n', "line 2 is not UTF-8 (byte 0xd6)"),
        (b"maxIndexNum = 5\nmaxIndexNum = 6\n", "Cannot overwrite a value"),
        (b"maxIndexNum = 5\nMAXINDEXNUM = 6\n", "MAXINDEXNUM is given twice"),
        (b"maxIndexNum = 5.5\n", "maxIndexNum is a number with a fraction; text, a whole number, true or false wanted"),
        (b"maxIndexNum = [5]\n", "maxIndexNum is an array"),
        (b"[maxIndexNum]\nx = 5\n", "maxIndexNum is a table"),
        (b"startingTimestamp = 2026-01-31T12:00:00Z\n", "startingTimestamp is a date or time"),
        (b"startingTimestamp = 12:00:00\n", "startingTimestamp is a date or time"),
        (b"maxIndexNum = true\n", "reput.toml: maxIndexNum=true: a whole number from 2"),
        (b"maxIndexNum = " + b"9" * 5000 + b"\n", "cannot read the configuration"),
        (b"maxIndexNum = 0x" + b"f" * 5000 + b"\n", "maxIndexNum is too large a number"),
        (b"x = " + b"[" * 100_000, "cannot read the configuration"),
        (b"nonsense = 1\n", "reput.toml: unknown option 'nonsense'; conf/reput.toml has all"),
        (b"#" * 1_100_000, "it has more than 1048576 bytes; is it another file?"),
        (b"\x00\x01\xff\xfe" * 100, "cannot read the configuration"),
    ],
)
def test_a_wrong_file_of_options(tmp_path: Path, content: bytes, words: str) -> None:
    """One line with the file and what is wrong in it."""
    path = tmp_path / "reput.toml"
    path.write_bytes(content)
    with pytest.raises(OptionError) as caught:
        load_config(tmp_path, config_file=path)
    assert str(path) in str(caught.value)
    assert words in str(caught.value)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1200


def test_a_configuration_that_is_no_file(tmp_path: Path) -> None:
    """A directory, a device that never ends, a file without permission."""
    for path in (tmp_path, Path("/dev/zero"), tmp_path / "nothing" / "there"):
        for options in ({"config_file": path}, {"broker_conf": path}):
            with pytest.raises(OptionError, match=rf"^cannot read the (broker's )?configuration {path}: ") as caught:
                load_config(tmp_path, **options)
            assert "\n" not in str(caught.value)
    conf = tmp_path / "broker.conf"
    conf.write_bytes(b"a = \\u00zz\n")
    with pytest.raises(OptionError, match=r"line 1: .*; a broker does not start with it either$"):
        load_config(tmp_path, broker_conf=conf)


def test_an_option_of_the_command_line_twice(tmp_path: Path) -> None:
    """Two values are refused, whatever the case of the names; the same one twice does not contradict itself."""
    assert load_config(tmp_path, overrides=["maxIndexNum=5", "MAXINDEXNUM=5"]).index.max_index_num == 5
    with pytest.raises(OptionError, match=r"^option MAXINDEXNUM is given twice: 5 and 6; give one of them$"):
        load_config(tmp_path, overrides=["maxIndexNum=5", "MAXINDEXNUM=6"])


def test_source_options_read_back_the_same(tmp_path: Path) -> None:
    """The options that the pipeline passes to the source parse to the same values."""
    from reput.source.options import SourceOptions

    config = load_config(tmp_path, overrides=["messageDelayLevel=1s 90s 2h 1d", "checkCrc=all", "tailGuardMs=7"])
    options = SourceOptions.parse(config.source_options(rows="ranges", startingOffset=5))
    assert config.source.delays_ms == options.delays_ms
    assert ("all", 7, 5, "ranges") == (
        options.check_crc,
        options.tail_guard_ms,
        options.starting_offset,
        options.rows,
    )
