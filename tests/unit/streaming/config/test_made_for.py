"""An output records the settings that it was made for; every later command takes them, and accepts no others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from conftest import BrokerStore
from support.command_line import invoke, run_reput
from support.outputs import Output, messages_of
from support.rebuild_runner import rebuild
from support.tail_runs import tail_of
from typer.testing import Result

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.store_path import MADE_FOR, REBUILD_SWAP
from reput.source.errors import OptionError, OutputError
from reput.streaming.config.made_for import check_stated, record_in, recorded_in
from reput.streaming.config.pipeline import load_config
from reput.streaming.tail.tail import Tail

SIZES = {"mappedFileSizeConsumeQueue": "90", "maxHashSlotNum": "7", "maxIndexNum": "10"}
# These logs do not grow: no command need wait whether their last record stays.
NO_GUARD = ("-o", "tailGuardMs=0")
NEW = {**SIZES, "brokerVersion": "5.5.0", "enableMultiDispatch": "true"}
AUTO_RECORD = '{"version": 1, "settings": {"brokerVersion": "auto"}}'
RECORDED = {
    "brokerVersion": "5.5.0",
    "enableDLegerCommitLog": False,
    "enableMultiDispatch": True,
    "enableLmq": False,
    "mappedFileSizeConsumeQueue": 100,
    "rocksdbCQDoubleWriteEnable": False,
    "combineCQUseRocksdbForLmq": False,
    "enableConsumeQueueExt": False,
    "mappedFileSizeConsumeQueueExt": 48 << 20,
    "mapperFileSizeBatchConsumeQueue": 13_800_000,
    "maxHashSlotNum": 7,
    "maxIndexNum": 10,
}


def options(given: dict[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in given.items()]


@pytest.fixture
def output(tmp_path: Path) -> Output:
    """A store that looks like one of 4.9.3, and no output yet."""
    made = Output(tmp_path, [])
    made.write_log(messages_of(Random(5), 60))
    return made


def make(output: Output, given: dict[str, str] = NEW) -> None:
    rebuild(load_config(output.store, overrides=[*options(given), NO_GUARD[1]]), output.out)


def run(output: Output, command: str, *more: str) -> Result:
    words = ["--store", str(output.store), "--output", str(output.out), *NO_GUARD]
    return invoke([command, *words, *more])


def record_of(output: Output) -> dict[str, object]:
    record = json.loads(output.out.joinpath(*MADE_FOR).read_text())
    assert record.pop("version") == 1
    return record["settings"]  # type: ignore[no-any-return]


def test_an_output_is_found_sound_without_any_option(output: Output) -> None:
    """As which release, and with which sizes, it was made: no later command need be told."""
    make(output)
    assert record_of(output) == RECORDED
    planned = run(output, "recover", "--dry-run")
    assert planned.exit_code == 0, planned.output
    assert "queues and index agree with the log: nothing to do" in planned.output
    assert "would remove" not in planned.output
    verified = run(output, "verify")
    assert verified.exit_code == 0, verified.output
    assert "nothing has expired" in run(output, "expire").output
    found = run(output, "query", "--topic", "A", "--key", "k1", "--format", "json")
    assert found.exit_code == 0, found.output
    assert '"topic": "A"' in found.output
    again = run(output, "rebuild", "--only", "index", "--master", "local[1]")
    assert again.exit_code == 0, again.output
    assert run(output, "verify").exit_code == 0


def test_without_a_record_settings_are_those_that_are_given(output: Output) -> None:
    """As in an output of an older reput: taken for one of another release, its files would be removed."""
    make(output)
    output.out.joinpath(*MADE_FOR).unlink()
    sizes = [word for text in options(SIZES) for word in ("-o", text)]
    assert "would remove index/" in run(output, "recover", "--dry-run", *sizes).output
    assert run(output, "verify").exit_code == 1
    assert run(output, "verify", *(word for text in options(NEW) for word in ("-o", text))).exit_code == 0


@pytest.mark.parametrize("command", ["tail", "verify", "recover", "expire", "query", "rebuild"])
def test_another_value_is_refused(command: str, output: Output) -> None:
    """In one line: which file, which setting, both values, the place of the other one and the advice."""
    make(output)
    (output.root / "reput.toml").write_text("maxIndexNum = 11\n")
    (output.root / "broker.conf").write_text("brokerName=b\nmaxHashSlotNum=8\n")
    more = {"query": ["--msg-id", "7F" * 16], "rebuild": ["--topic", "A"]}.get(command, [])
    record = output.out.joinpath(*MADE_FOR)
    for words, where, was, asked in (
        (["-o", "brokerVersion=4.9.3"], "the command line", "brokerVersion=5.5.0", "brokerVersion=4.9.3"),
        (["--config", f"{output.root}/reput.toml"], f"{output.root}/reput.toml", "maxIndexNum=10", "maxIndexNum=11"),
        (
            ["--broker-conf", f"{output.root}/broker.conf"],
            f"{output.root}/broker.conf, line 2",
            "maxHashSlotNum=7",
            "maxHashSlotNum=8",
        ),
        (["-o", "enableLmq=true"], "the command line", "enableLmq=false", "enableLmq=true"),
    ):
        result = run(output, command, *more, *words)
        assert result.exit_code == 2
        assert (
            f"reput: {record}: the output was made with {was}, and {where} has {asked}; leave {was.partition('=')[0]} "
            f"out to continue as it was made, or run 'reput rebuild' with {asked} to make the whole output so\n"
        ) in result.output
    assert record_of(output) == RECORDED


def test_what_says_the_same_is_accepted(output: Output) -> None:
    """The sizes that it was made with, before they are rounded, too; a release that makes the same; auto."""
    make(output)
    same = {**NEW, "mappedFileSizeConsumeQueue": "81", "brokerVersion": "5.4.1"}
    for given in (same, {"brokerVersion": "auto"}):
        config = load_config(output.store, overrides=options(given), output=output.out)
        assert config.index.max_hash_slot_num == 7
        record_in(DurableFiles(output.out), config, output.store)
    assert config.broker.version == "5.5.0"
    assert record_of(output) == RECORDED


def test_a_rebuild_of_all_may_have_other_settings(output: Output) -> None:
    """The record is replaced with the files; a part of them, with other settings, would be a mixture."""
    make(output)
    refused = run(output, "rebuild", "--only", "consumequeue", "-o", "brokerVersion=5.1.4", "--master", "local[1]")
    assert "the output was made with brokerVersion=5.5.0" in refused.output
    half = ["-o", "brokerVersion=5.1.4", "-o", "messageIndexEnable=false"]
    assert "the output was made with brokerVersion=5.5.0" in run(output, "rebuild", *half).output
    done = run(output, "rebuild", "-o", "brokerVersion=5.1.4", "-o", "maxIndexNum=12", "--master", "local[1]")
    assert done.exit_code == 0, done.output
    assert record_of(output) == {**RECORDED, "brokerVersion": "5.1.4", "maxIndexNum": 12}
    assert run(output, "verify").exit_code == 0


def test_a_part_is_added_to_the_record(output: Output) -> None:
    """Queues alone have no sizes of an index; what is made later is recorded beside them."""
    make(output, {**NEW, "messageIndexEnable": "false"})
    queues = {name: value for name, value in RECORDED.items() if name not in ("maxHashSlotNum", "maxIndexNum")}
    assert record_of(output) == queues
    done = run(output, "rebuild", "--only", "index", "-o", "maxHashSlotNum=9", "--master", "local[1]")
    assert done.exit_code == 0, done.output
    assert record_of(output) == {**queues, "maxHashSlotNum": 9, "maxIndexNum": 20_000_000}


def test_a_tail_records_before_it_writes(output: Output) -> None:
    """A fresh output says what it is made for before it has a file of a queue or of the index."""

    def tail(*given: str) -> Tail:
        config = load_config(output.store, overrides=["tailGuardMs=0", *given], output=output.out)
        return tail_of(config, output.out)

    with tail(*options(NEW)):
        assert record_of(output) == RECORDED
        assert not (output.out / "index").exists()
        assert not (output.out / "consumequeue").exists()
    with tail():
        assert record_of(output) == RECORDED
    config = load_config(output.store, overrides=options(SIZES))
    with (
        pytest.raises(OptionError, match=r"with brokerVersion=5\.5\.0, and this command has brokerVersion=4\.9\.3"),
        tail_of(config, output.out),
    ):
        pass


def test_a_tail_that_cannot_go_on_records_nothing(output: Output) -> None:
    """An older output whose files are of other sizes keeps its chance to be told the right ones."""
    make(output)
    output.out.joinpath(*MADE_FOR).unlink()
    config = load_config(output.store, overrides=options({**NEW, "mappedFileSizeConsumeQueue": "60"}))
    with (
        pytest.raises(Exception, match="bytes"),
        tail_of(config, output.out),
    ):
        pass
    assert not output.out.joinpath(*MADE_FOR).exists()


@pytest.mark.parametrize("moves", range(12))
def test_a_rebuild_that_dies_while_it_replaces(moves: int, output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever of it is in place, the next command goes by what the output will be."""
    make(output)
    config = load_config(output.store, overrides=options({**SIZES, "maxIndexNum": "12", "brokerVersion": "5.1.4"}))
    move, done = DurableFiles.move, 0

    def some(self: DurableFiles, source: tuple[str, ...], target: tuple[str, ...]) -> None:
        nonlocal done
        done += 1
        if done > moves:
            raise OutputError("enough")
        move(self, source, target)

    monkeypatch.setattr(DurableFiles, "move", some)
    try:
        rebuild(config, output.out)
    except OutputError:
        assert output.out.joinpath(*REBUILD_SWAP).exists()
    monkeypatch.undo()
    assert recorded_in(output.out, output.store)["brokerVersion"] == "5.1.4"
    recovered = run(output, "recover")
    assert recovered.exit_code == 0, recovered.output
    assert "queues and index agree with the log: nothing to do" in recovered.output
    assert run(output, "verify").exit_code == 0
    assert record_of(output) == {**RECORDED, "enableMultiDispatch": False, "brokerVersion": "5.1.4", "maxIndexNum": 12}


def test_a_record_that_cannot_be_read(output: Output) -> None:
    """One line with the file, and what to do."""
    make(output)
    record = output.out.joinpath(*MADE_FOR)
    for text in (
        "",
        "[]",
        '{"version": 0}',
        '{"version": 1, "settings": {"maxIndexNum": "x"}}',
        AUTO_RECORD,
        "\x00\xff",
    ):
        record.write_text(text)
        told = run(output, "verify").output
        assert told.startswith(f"reput: {record} does not say what the output was made for (")
        assert told.endswith("remove it, and give the settings that the output was made with\n")
        assert told.count("\n") == 1
    record.unlink()
    record.mkdir()
    assert f"cannot read {record}: Is a directory" in run(output, "verify").output


def test_a_log_may_become_dledgers(tmp_path: Path) -> None:
    """Files made from the plain log stay; the other way round nothing of the output would be left."""
    check_stated(tmp_path, {"enableDLegerCommitLog": False}, {"enableDLegerCommitLog": True}, str)
    with pytest.raises(OptionError, match="made with enableDLegerCommitLog=true"):
        check_stated(tmp_path, {"enableDLegerCommitLog": True}, {"enableDLegerCommitLog": False}, str)


@pytest.mark.parametrize("name", ["v4-dledger", "v4-lmq", "v5-plain", "v5-batchcq"])
def test_settings_of_real_brokers_need_not_be_given_again(
    name: str, broker_store: Callable[[str], BrokerStore], tmp_path: Path
) -> None:
    """Sizes, light queues, DLedger's log and the release: what a broker.conf said once is taken from then on."""
    store = broker_store(name)
    rebuild(load_config(store.root, broker_conf=store.broker_conf), tmp_path / "out")
    words = ["--store", str(store.root), "--output", str(tmp_path / "out")]
    run_reput(["verify", *words])
    if name != "v5-batchcq":  # of which recover compares nothing
        planned = invoke(["recover", *words, "--dry-run"])
        assert "queues and index agree with the log: nothing to do" in planned.output
    assert invoke(["expire", *words, "--dry-run"]).exit_code == 0


def test_a_broker_that_was_upgraded_is_told(output: Output, caplog: pytest.LogCaptureFixture) -> None:
    """The output continues as it was made; there is no warning about a store that looks older than it is."""
    make(output, SIZES)
    caplog.clear()
    load_config(output.store, output=output.out)
    assert not caplog.records
    (output.store / "rocksdbstore").mkdir()
    assert load_config(output.store, output=output.out).broker.version == "4.9.3"
    (message,) = [record.getMessage() for record in caplog.records]
    assert message == (
        f"{output.out.joinpath(*MADE_FOR)}: the output was made with brokerVersion=4.9.3, and the store looks like one "
        "of 5.5.0 now; continuing with 4.9.3"
    )


def test_nothing_is_recorded_in_the_store_itself(output: Output) -> None:
    """Its broker is configured, and upgraded, by others."""
    output.out = output.store
    make(output)
    assert not output.out.joinpath(*MADE_FOR).exists()
    assert recorded_in(output.out, output.store) == {}


def test_an_output_of_a_log_that_is_gone_was_made_for_nothing(output: Output) -> None:
    """The files are removed, and the record of their settings with them."""
    make(output)
    for segment in output.log.iterdir():
        segment.unlink()
    assert run(output, "recover", "--yes").exit_code == 0
    assert not output.out.joinpath(*MADE_FOR).exists()
