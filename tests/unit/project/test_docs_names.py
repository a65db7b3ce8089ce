"""The names in the pages exist: commands, options, metrics, targets, exit codes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from support.command_line import APPLICATION, command_of, every_option_name, option_names
from support.pages import PAGES, blocks, name_of, prompted, prose, spans
from support.paths import ROOT, TESTS
from support.promql import documented

from reput.source.options import SOURCE_OPTIONS, Option, parse_given
from reput.streaming.config import broker_conf
from reput.streaming.config.config_file import PATHS, Configuration
from reput.streaming.config.settings import PIPELINE_OPTIONS

OPTIONS: Mapping[str, Option] = {each.name: each for each in (*SOURCE_OPTIONS, *PIPELINE_OPTIONS)}
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
# The places of a program's name, not of a package, an image or a user: first, or after a program that runs it.
_REPUT = re.compile(r"(?:^|-- |&& |\|\| |\w/)reput ((?:[a-z]|--?[a-z]).*)")
_MAY_BE_LEFT_OUT = re.compile(r"(?<!\w)\[([^]]*)\]")
_END_OF_COMMAND = re.compile(r"\s(?:\|\|?|&&|>|;|#)\s.*")
#: Options of other programs.
OTHERS_OPTIONS = {
    "--build-arg": "podman",
    "--group-add": "podman",
    "--stop-timeout": "podman",
    "--verify-index-only": "kafka-dump-log",
    "--conf": "spark-submit",
    "--driver-class-path": "spark-submit",
    "--driver-java-options": "spark-submit",
    "--driver-memory": "spark-submit",
    "--jars": "spark-submit",
    "--packages": "spark-submit",
    "--py-files": "spark-submit",
}
#: Names in camel case that are neither options of reput nor settings that it reads in broker.conf.
OTHERS_NAMES = {
    "a broker's setting that is only spoken of": {
        "autoCreateSubscriptionGroup",
        "autoCreateTopicEnable",
        "checkCRCOnRecover",
        "checkCommitLogOffsetOnRecover",
        "combineCQPreferCQType",
        "commitLogRecoverMaxNum",
        "appendTopicForTimerDeleteKey",
        "defaultRocksDB",
        "diskMaxUsedSpaceRatio",
        "duplicationEnable",
        "enableAcceleratedRecovery",
        "enableControllerMode",
        "enableRetryTopicV2",
        "fileReservedTime",
        "filterDataCleanTimeSpan",
        "forceVerifyPropCRC",
        "indexFileReadEnable",
        "indexFileWriteEnable",
        "indexRocksDBEnable",
        "messageIndexSafe",
        "recallMessageEnable",
        "rocksdbCQSelectiveDoubleWriteEnable",
        "timerRocksDBEnable",
        "timerWheelEnable",
        "transRocksDBEnable",
        "transWriteOriginTransHalfEnable",
    },
    "a file of a broker's store that is only spoken of": {"brokerIdentity", "epochFileCheckpoint"},
    "a method, field or variable of RocketMQ's": {
        "addFirst",
        "bornTime",
        "commitLogOffset",
        "correctMinOffset",
        "destroyLogics",
        "endPhyOffset",
        "loadConsumeQueue",
        "logicsPhysicalOffset",
        "putKey",
        "queryMessage",
        "queueId",
        "longPollingEnable",
        "recheckReputOffsetFromCq",
        "recoverAbnormally",
        "recoverNormally",
        "recoverTopicQueueTable",
        "reputFromOffset",
        "rollNextFile",
        "startOffset",
        "yyyyMMddHHmmssSSS",
    },
    "a field of an error in JSON": {"exitCode", "physicalOffset"},
    "Delta's": {"dataChange", "userMetadata"},
    "Kubernetes'": {"hostPath"},
    "commands of mqadmin": {
        "checkRocksdbCqWriteProgress",
        "consumeMessage",
        "consumerProgress",
        "dumpCompactionLog",
        "exportMetadataInRocksDB",
        "printMsg",
        "queryMsgByKey",
        "resetOffsetByTime",
        "rocksDBConfigToJson",
    },
}
each_page = pytest.mark.parametrize("page", PAGES, ids=name_of)


def commands(page: Path) -> Iterator[list[str]]:
    """The words behind `reput`, of every command line on a page."""
    for line in (*prompted(page), *spans(page)):
        found = _REPUT.search(line)
        if found:
            words = _MAY_BE_LEFT_OUT.sub(r"\1", _END_OF_COMMAND.sub("", found[1]))
            yield [word for word in shlex.split(words) if word != "..."]


@each_page
def test_commands_and_their_options_are_there(page: Path) -> None:
    """Wherever a page has a command line of reput's, behind a prompt or in a sentence, whole or in part."""
    for words in commands(page):
        command, rest = command_of(words)
        if hasattr(command, "commands"):
            assert not [word for word in rest[:1] if not word.startswith("-")], f"no such command: {words}"
        given = {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
        assert given <= option_names(command), words
        values = [value for option, value in zip(rest, rest[1:], strict=False) if option in ("-o", "--option")]
        pairs = dict(value.split("=", 1) for value in values)
        # A value in capitals is yours to fill in.
        parse_given(PIPELINE_OPTIONS, {name: value for name, value in pairs.items() if not value.isupper()})


@each_page
def test_a_command_behind_a_prompt_can_be_given(page: Path) -> None:
    """With all the arguments that it wants."""
    for line in prompted(page):
        if line.startswith("reput "):
            words = _MAY_BE_LEFT_OUT.sub(r"\1", _END_OF_COMMAND.sub("", line.removeprefix("reput ")))
            command, rest = command_of(shlex.split(words))
            command.make_parser(command.context_class(command)).parse_args(rest)


@each_page
def test_options_that_stand_alone_are_there(page: Path) -> None:
    """`--option` in a sentence is of a command of reput's, of a tool of the project's, or of another program's."""
    tools = {name for path in TESTS.rglob("*.py") for name in re.findall(r'"(--[a-z-]+)"', path.read_text())}
    known = every_option_name(APPLICATION) | OTHERS_OPTIONS.keys() | tools
    assert {name for code in spans(page) for name in re.findall(r"(?<![\w-])--[a-z][a-z-]+", code)} <= known


@each_page
def test_names_in_camel_case_are_options(page: Path) -> None:
    """Of reput, of a broker's section, of broker.conf, or of a product that is listed here."""
    known = (
        OPTIONS.keys() | broker_conf.NUMBERS.keys() | set(broker_conf.SWITCHES) | set(broker_conf.TEXTS) | set(PATHS)
    )
    camel = re.compile(r"(?<![\w.#/:-])[a-z]+[a-z0-9]*(?:[A-Z][a-z0-9]*)+(?![\w.(:/#-])")
    found = {name for code in spans(page) for name in camel.findall(code)}
    assert found - known.union(*OTHERS_NAMES.values()) == set()


def test_no_option_is_somebody_elses() -> None:
    """A name that this file excuses is not one of reput's."""
    assert not OPTIONS.keys() & set().union(*OTHERS_NAMES.values())
    assert not every_option_name(APPLICATION) & OTHERS_OPTIONS.keys()


@each_page
def test_metrics_are_there(page: Path) -> None:
    """Those of docs/metrics.md, which another test compares with what a run serves."""
    named = set(re.findall(r"\brocketmq_reput_\w+\b(?!\*)", page.read_text(encoding="utf-8")))
    assert named - documented().keys() - {"rocketmq_reput_"} == set()


@each_page
def test_exit_codes_are_in_the_table(page: Path) -> None:
    """Of docs/commands/README.md."""
    table = (ROOT / "docs" / "commands" / "README.md").read_text(encoding="utf-8").partition("## Exit codes")[2]
    rows = re.findall(r"^\| ([\d, ]+) \|", table.partition("\n## ")[0], re.MULTILINE)
    known = {code for row in rows for code in row.split(", ")}
    assert {"0", "75", "130"} <= known
    assert set(re.findall(r"(?:exit codes?|end(?:s|ed)? with) `?(\d+)", prose(page))) <= known


@each_page
def test_targets_are_in_the_makefile(page: Path) -> None:
    """Every `make ...` in a page has its target."""
    lines = [*prompted(page), *spans(page)]
    assert {target for line in lines for target in re.findall(r"^make ([a-z-]+)", line)} <= TARGETS


@each_page
def test_a_benchmark_on_a_page_takes_its_options(page: Path) -> None:
    """The module exists, and knows each of them."""
    for line in prompted(page):
        for module, words in re.findall(r"python -m ([\w.]+)(.*)", line):
            path = TESTS.joinpath(*module.split("."))
            files = [*path.rglob("*.py")] if path.is_dir() else [path.with_suffix(".py")]
            known = {name for file in files for name in re.findall(r'"(--[a-z-]+)"', file.read_text())}
            assert set(re.findall(r"--[a-z-]+", words)) <= known, line


@each_page
def test_a_configuration_on_a_page_is_allowed(page: Path, tmp_path: Path) -> None:
    """Every option, with its value."""
    for number, code in enumerate(blocks(page, "toml")):
        file = tmp_path / f"{number}.toml"
        file.write_text(code, encoding="utf-8")
        configuration = Configuration.read(file)
        assert configuration.options or configuration.sections
