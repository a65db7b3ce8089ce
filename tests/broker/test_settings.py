"""The meaning of a broker.conf: thousands of generated ones, read here and by the release's own classes."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from support.proof_counts import Proof

from broker.rocketmq import RocketMQ
from reput.source.errors import OptionError
from reput.source.log.store_layout import commit_log_paths
from reput.source.record.message_properties import parse_delay_levels
from reput.streaming.config.broker_conf import NUMBERS, PATHS, SWITCHES, TEXTS, BrokerConf, load_properties

FILES = 3000
JAVA_TIMEOUT_S = 120
NAMES = (*NUMBERS, *SWITCHES, *TEXTS)
# 4.9.3 does not know these; what they speak of is not in its stores, or reput passes over it, too.
SINCE_5 = {
    "storePathDLedgerCommitLog",
    "storeType",
    "mapperFileSizeBatchConsumeQueue",
    "rocksdbCQDoubleWriteEnable",
    "combineCQUseRocksdbForLmq",
    "combineCQLoadingCQTypes",
    "configManagerVersion",
}

NUMBER_TEXTS = (
    *(
        "5000",
        "7",
        "0",
        "-1",
        "+5",
        "007",
        "2147483647",
        "2147483648",
        "-2147483648",
        "-2147483649",
        "9" * 30,
        "1" * 5000,
    ),
    *("", "+", "-", "+-5", "5 000", "5_000", "5L", "0x10", "1e3", "5.0", "4k", "5,000", "abc", "true", "\x005"),
    *(
        r"\u0665\u0660",
        r"\uff15",
        r"\ud835\udfd3",
        r"5\u0000",
        r"\u0035",
        r"\u00b2",
        r"\u2155",
        r"\u0967",
        r"5\t",
        r"\ 5",
    ),
)
SWITCH_TEXTS = (
    *(
        "true",
        "false",
        "TRUE",
        "True",
        "tRuE",
        "FALSE",
        "yes",
        "on",
        "1",
        "0",
        "no",
        "",
        "t",
        "truee",
        '"true"',
        "true;",
    ),
    *(
        r"\u0074rue",
        r"t\rue",
        r"true\u0000",
        r"tr\ue",
        r"\uff54rue",
        r"true\ ",
        r"\ttrue",
        "true#no",
        "true\x0b",
        "true\xa0",
    ),
)
TEXT_TEXTS = (
    *("broker-a", "a b", "a,b", "/data/log", "/data/log,/data2/log", " /a , /b ", "a,,b", ",", ",a", "a,", "default"),
    *("1s 5s 10s", "1s", "1s  5s", "1d 2h 3m 4s", "1s 5x", "1S", "+1s", "-1s", "s", "1", "", "9999999999999s", "1s,5s"),
    *(
        r"1s\t5s",
        r"\u0031s",
        "1s ",
        r"\u0665s",
        "defaultRocksDB",
        r"C:\data",
        r"a\u0000b",
        "\xe4\xb8\xad",
        "\u4e2d",
        r"\ a\ ",
        r"\ ",
    ),
)
BLANKS = ("", "", "", "", " ", "  ", "\t", "\f", " \t ", "\xa0", "\x85", r"\u0020", r"\ ", r"\t", "\\", "\x00")
SEPARATORS = (
    "=",
    "=",
    "=",
    ":",
    " ",
    "\t",
    " = ",
    ":=",
    "==",
    "\f:\t",
    "",
    "\\\n  =",
    "=\\\n\t",
    "=\\\r\n",
    "\\=",
    "=\\\n\\\n",
)
LINE_ENDS = ("\n", "\n", "\n", "\r\n", "\r", "\n\n", "\\\n", "\n \t\f\n", "")
BETWEEN = (
    *(
        "# comment",
        "! comment",
        "#",
        "# \\",
        "  # blank first",
        "\xe9\xff latin",
        "# \xd6\xd0\xce\xc4 GBK",
        "\\",
        "#\\u00zz",
    ),
    *("\xef\xbb\xbf", "rocketmqHome=/x", "foo = bar", "=", ": x", "\\u0041=1"),
)


def escaped(rng: random.Random, name: str) -> str:
    """A setting's name in an odd spelling; some of these are other names to Java."""
    change = rng.randrange(20)
    if change == 0:
        return name.lower()
    if change == 1:
        return name[0].upper() + name[1:]
    if change == 2:
        at = rng.randrange(len(name))
        return f"{name[:at]}\\u{ord(name[at]):04x}{name[at + 1 :]}"
    if change == 3:
        at = rng.randrange(1, len(name))
        return f"{name[:at]}\\\n  {name[at:]}"
    if change == 4:
        at = rng.randrange(len(name))
        return f"{name[:at]}\\{name[at:]}"
    return name


def a_line(rng: random.Random) -> str:
    name = rng.choice(NAMES)
    texts = NUMBER_TEXTS if name in NUMBERS else SWITCH_TEXTS if name in SWITCHES else TEXT_TEXTS
    text = rng.choice(texts if rng.random() < 0.9 else (*NUMBER_TEXTS, *SWITCH_TEXTS, *TEXT_TEXTS))
    if rng.random() < 0.1 and text:
        at = rng.randrange(len(text))
        text = f"{text[:at]}\\\n \t{text[at:]}"
    if rng.random() < 0.03:
        text += rng.choice((r"\u12", r"\uzzzz", r"\u"))  # malformed: no broker starts
    blanks = rng.choice(("", "", "", " ", "\t", "\f", "\\\n"))
    return blanks + escaped(rng, name) + rng.choice(SEPARATORS) + text + rng.choice(BLANKS)


def a_file(rng: random.Random) -> tuple[bytes, int]:
    """A broker.conf and how many settings were meant to be in it."""
    lines = [a_line(rng) for _ in range(rng.randrange(1, 6))]
    text = ""
    for line in lines:
        if rng.random() < 0.3:
            text += rng.choice(BETWEEN) + rng.choice(LINE_ENDS)
        text += line + rng.choice(LINE_ENDS)
    return b"".join(c.encode("latin-1") if c <= "\xff" else c.encode() for c in text), len(lines)


def units(text: str) -> str:
    return text.encode("utf-16-be", "surrogatepass").hex()


def read_here(data: bytes, version: tuple[int, int, int]) -> BrokerConf | None:
    try:
        return BrokerConf(Path("broker.conf"), load_properties(data), version)
    except ValueError:
        return None


def value_here(conf: BrokerConf, name: str, default: str) -> str | None:
    """As Java prints it; None for text that reput refuses since nothing can be called so."""
    if name not in conf:
        return default
    if name in NUMBERS:
        return str(conf.number(name))
    if name in SWITCHES:
        return str(conf.switch(name)).lower()
    try:
        return conf.text(name)
    except OptionError:
        return None


def delays_here(conf: BrokerConf, default: str) -> str:
    if "messageDelayLevel" not in conf:
        return default
    try:
        return "[" + ", ".join(map(str, parse_delay_levels(conf.text("messageDelayLevel")))) + "]"
    except (ValueError, OptionError):
        return "refused"


def paths_here(conf: BrokerConf, java: set[str]) -> bool:
    """Whether the directories are those of Java; the store's root does not matter here."""
    try:
        texts = conf.texts(*(name for name in PATHS if name != "storePathRootDir"))
    except OptionError:
        return True
    if not texts.get("storePathCommitLog"):
        return True  # the broker has its default, and reput the one that --store says
    found = {str(path) for path in commit_log_paths(Path("/store"), texts, Path("/conf"))}
    wanted = {bytes.fromhex(text).decode("utf-16-be") for text in java} - {""}
    return found == ({str(Path("/conf") / text) for text in wanted} or {"/store/commitlog"})


@pytest.mark.broker
@pytest.mark.parametrize("version", ["4.9.3", "5.5.0"])
def test_each_setting_is_read_as_the_release_reads_it(
    version: str, release: Callable[[str], RocketMQ], tmp_path: Path, proof: Proof
) -> None:
    """Every setting that reput follows, in every file: the value of the broker's own field."""
    rng = random.Random(version)
    generated = [(b"", 0), *(a_file(rng) for _ in range(FILES))]
    questions, answers = tmp_path / "questions", tmp_path / "answers"
    questions.write_text("".join(data.hex() + "\n" for data, _ in generated))
    process = release(version).launch(tmp_path, (), "Settings", str(questions), str(answers), *NAMES)
    try:
        assert process.wait(JAVA_TIMEOUT_S) == 0, process.stderr.read_text()[-2000:]
    finally:
        process.end()
    number = tuple(map(int, version.split(".")))
    defaults: dict[str, str] = {}
    differences = []
    lines = answers.read_text().splitlines()
    assert len(lines) == len(generated)
    for (data, count), answer in zip(generated, lines, strict=True):
        conf = read_here(data, (number[0], number[1], number[2]))
        if answer == "refused" or conf is None:
            if (answer == "refused") != (conf is None):
                differences.append((data, answer))
            continue
        java = dict(pair.split("=") for pair in answer.removesuffix(";").split(";"))
        defaults = defaults or java
        for name in NAMES:
            default = bytes.fromhex(defaults[name]).decode("utf-16-be")
            value = value_here(conf, name, default)
            if value is not None and units(value) != java[name] and not (name in SINCE_5 and version < "5"):
                differences.append((data, f"{name}: {value!r} here, {bytes.fromhex(java[name])!r} in Java"))
        if (
            value_here(conf, "messageDelayLevel", "") is not None
            and delays_here(conf, defaults["delays"]) != java["delays"]
        ):
            differences.append((data, f"delays: {delays_here(conf, '')} here, {java['delays']} in Java"))
        if not paths_here(conf, set(java["paths"].split(","))):
            differences.append((data, f"paths: {java['paths']}"))
        proof("G13 settings of broker.conf read as the broker reads them", count)
    assert differences == []
