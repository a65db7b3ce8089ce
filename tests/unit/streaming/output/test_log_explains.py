"""Whether the log explains the files of an output: every command that replaces or removes asks, in the same words."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from support.command_line import run_reput
from support.outputs import SEGMENT_BYTES, Output, cut_log, messages_of
from support.rebuild_runner import rebuild
from support.sink_runner import files_below, no_fsync
from support.tail_runs import quiet_reporter

from reput.sinks.files import swap
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.formats.index_file import IndexHeader
from reput.source.errors import CommitLogRewoundError, DataLossError, StoreError, TransientError, UnexplainedError
from reput.source.log.log_reader import LogReader
from reput.source.options import SourceOptions
from reput.streaming.output.hand_over import Gap, find_unexplained
from reput.streaming.output.paths import OutputPaths
from reput.streaming.recover.recover import expire_output, recover_output
from reput.streaming.tail.tail import Tail

Change = Callable[[Output], None]
SEEDS = range(5)


@pytest.fixture(autouse=True)
def fast_disk() -> Iterator[None]:
    with no_fsync():
        yield


@pytest.fixture
def output(tmp_path: Path) -> Output:
    return Output.make(tmp_path, Random(3))


def no_segment(output: Output) -> None:
    """The volume is not mounted."""
    for segment in output.log.iterdir():
        segment.unlink()


def only_zeros(output: Output) -> None:
    for segment in output.log.iterdir():
        segment.write_bytes(bytes(SEGMENT_BYTES))


def new_zeros(output: Output) -> None:
    """One segment that a broker has allocated, behind all that was dispatched."""
    no_segment(output)
    (output.log / f"{20 * SEGMENT_BYTES:020d}").write_bytes(bytes(SEGMENT_BYTES))


def other_log(output: Output) -> None:
    """Another store's: the same sizes and times, other topics."""
    output.write_log([replace(record.message, topic="C", body=b"another", sys_flag=0) for record in output.records])


def newer_log(output: Output) -> None:
    """Another store's, which begins behind all that was dispatched."""
    output.write_log([*messages_of(Random(1), 60), *messages_of(Random(8), 600, 100)])
    for segment in sorted(output.log.iterdir())[:20]:
        segment.unlink()


def cut(output: Output) -> None:
    """A part of the log, as of a copy that was not finished."""
    cut_log(output, Random(5))


def one_record_less(output: Output) -> None:
    """Of a queue: the last record that was dispatched."""
    messages = [record.message for record in output.records]
    output.write_log(messages[: max(at for at, message in enumerate(messages) if message.is_queued)])


def begins_later(output: Output) -> None:
    """The first segments expired: a log that is in order."""
    for segment in sorted(output.log.iterdir())[:3]:
        segment.unlink()


def goes_on(output: Output) -> None:
    messages = [record.message for record in output.records]
    output.write_log([*messages, *messages_of(Random(9), 30, 60)])


GAPS: dict[Change, Gap | None] = {
    no_segment: Gap.GONE,
    only_zeros: Gap.GONE,
    new_zeros: Gap.GONE,
    other_log: Gap.OTHER,
    newer_log: Gap.PASSED,
    cut: Gap.CUT,
    one_record_less: Gap.CUT,
    begins_later: None,
    goes_on: None,
}
changes = pytest.mark.parametrize("change", GAPS, ids=lambda change: change.__name__)
lost = pytest.mark.parametrize(
    "change", [change for change, gap in GAPS.items() if gap], ids=lambda change: change.__name__
)
# Progress records, or a broker's own files without any.
owners = pytest.mark.parametrize("owner", ["reput", "broker"])


def give_to(owner: str, output: Output) -> None:
    if owner == "broker":
        shutil.rmtree(output.out / "reput")


def log_of(output: Output) -> LogReader:
    return LogReader(SourceOptions.parse({"path": str(output.log), "tailGuardMs": "0"}))


def unchanged(output: Output, before: dict[str, bytes]) -> bool:
    return {path: data for path, data in files_below(output.out).items() if path != "lock"} == before


@owners
@changes
def test_what_a_log_does_not_explain(change: Change, owner: str, output: Output) -> None:
    """By progress records, or by the entries and headers of files that have none."""
    give_to(owner, output)
    change(output)
    found = find_unexplained(log_of(output), output.out)
    assert (found.gap if found else None) == GAPS[change]


@pytest.mark.parametrize("folder", ["consumequeue", "index"])
def test_either_kind_of_file_tells(folder: str, output: Output) -> None:
    """Queues alone, and the index alone, know another log."""
    give_to("broker", output)
    shutil.rmtree(output.out / folder)
    assert find_unexplained(log_of(output), output.out) is None
    other_log(output)
    found = find_unexplained(log_of(output), output.out)
    assert found is not None
    assert found.gap is Gap.OTHER


def test_the_same_sizes_of_another_time_are_another_log(output: Output) -> None:
    """Records of the same places, sizes and topics: the index knows their times."""
    give_to("broker", output)
    later = [replace(record.message, store_timestamp=record.message.store_timestamp + 5) for record in output.records]
    output.write_log(later)
    found = find_unexplained(log_of(output), output.out)
    assert found is not None


@pytest.mark.parametrize(
    "request_of",
    [{}, {"only": "index"}, {"only": "consumequeue"}, {"topic": "A"}, {"exclude": ("A",)}],
    ids=["whole", "index", "queues", "topic", "exclude"],
)
@owners
@changes
def test_rebuild_asks(change: Change, owner: str, request_of: dict[str, object], output: Output) -> None:
    """Whatever it replaces; it never asks where the log is in order."""
    give_to(owner, output)
    change(output)
    if GAPS[change] is None:
        assert rebuild(output.config, output.out, **request_of).messages
        return
    before = files_below(output.out)
    with pytest.raises(UnexplainedError, match=r"nothing was changed: give the right --store, or --yes to go by"):
        rebuild(output.config, output.out, **request_of)
    assert unchanged(output, before)


@lost
def test_rebuild_goes_by_the_log_when_told_so(change: Change, output: Output) -> None:
    """The option replaces the present files by those of the log, even if the log has nothing."""
    change(output)
    # The other log's queue offsets are in no order, as no broker leaves them.
    config = replace(output.config, queue=replace(output.config.queue, queue_restart="replay"))
    rebuild(config, output.out, yes=True)
    rebuild(config, output.root / "expected")
    assert kept(output.out) == kept(output.root / "expected")


def kept(root: Path) -> list[str]:
    return sorted(path for path in files_below(root) if path.startswith("consumequeue/"))


def test_a_part_of_the_log_is_asked_about_too(output: Output) -> None:
    """With --from and --to."""
    cut(output)
    end = output.records[0].msg_size
    with pytest.raises(UnexplainedError):
        rebuild(output.config, output.out, start=0, end=end)
    rebuild(output.config, output.out, start=0, end=end, yes=True)


def test_a_first_rebuild_never_asks(output: Output, tmp_path: Path) -> None:
    """The output is empty; nor does a rebuild ask that follows it."""
    for _ in range(2):
        rebuild(output.config, tmp_path / "new")
    no_segment(output)
    rebuild(output.config, tmp_path / "newer")


def test_a_stopped_rebuild_is_not_thrown_away_for_an_empty_log(output: Output, tmp_path: Path) -> None:
    """Its files are also worth the question."""
    made = tmp_path / "new" / "reput" / "rebuild"
    shutil.copytree(output.out, made)
    (made / "plan.json").write_text(json.dumps({"start": 0, "end": 4000, "command": {}}))
    before = files_below(made)
    no_segment(output)
    with pytest.raises(UnexplainedError):
        rebuild(output.config, tmp_path / "new")
    assert files_below(made) == before


@owners
@changes
def test_recover_asks_where_nothing_agrees(change: Change, owner: str, output: Output) -> None:
    """To go back to a log that was cut is what it is for; to remove all is not."""
    give_to(owner, output)
    change(output)
    before = files_below(output.out)
    if GAPS[change] not in (Gap.GONE, Gap.OTHER):
        recover_output(output.config, output.store, output.out)
        return
    report = recover_output(output.config, output.store, output.out, dry_run=True)
    assert report.unexplained
    with pytest.raises(UnexplainedError, match=r"nothing was changed: give the right --store, or --yes to go by"):
        recover_output(output.config, output.store, output.out)
    assert unchanged(output, before)
    recover_output(output.config, output.store, output.out, yes=True)
    if GAPS[change] is Gap.GONE:
        output.write_log([record.message for record in output.records])
    output.go_on()
    output.check()


@owners
@changes
def test_expire_asks(change: Change, owner: str, output: Output) -> None:
    """Where the log begins says nothing of an output that was made from another one."""
    give_to(owner, output)
    change(output)
    before = files_below(output.out)
    if GAPS[change] is None:
        assert bool(expire_output(output.config, output.out).removed) == (change is begins_later)
        return
    way_out = "recover --yes" if GAPS[change] is Gap.GONE else "or --yes to go by this log"
    with pytest.raises(UnexplainedError, match=rf"nothing was changed: .*{way_out}") as refused:
        expire_output(output.config, output.out)
    assert refused.value.file == str(output.out)
    assert way_out in str(refused.value.advice)
    assert unchanged(output, before)
    if GAPS[change] is Gap.PASSED:
        assert expire_output(output.config, output.out, yes=True).removed


@owners
@changes
def test_tail_changes_nothing_before_it_refuses(change: Change, owner: str, output: Output) -> None:
    """Entries after the progress record, which its recovery would drop, still exist afterwards."""
    give_to(owner, output)
    if owner == "reput":
        path = max((output.out / "consumequeue" / "A" / "0").iterdir())
        path.write_bytes(
            path.read_bytes().rstrip(b"\0").ljust(80, b"\0") + (10**9).to_bytes(8, "big") + b"\0\0\0\1" * 3
        )
    change(output)
    before = files_below(output.out)
    if GAPS[change] is None or (owner, GAPS[change]) == ("broker", Gap.PASSED):
        return
    refused, words = (UnexplainedError, CommitLogRewoundError), "'reput recover' with the same --store and --output"
    if owner == "reput" and change in (newer_log, new_zeros):
        refused, words = (DataLossError,), "records between expired unread"
    paths = OutputPaths(output.out)
    with pytest.raises(refused, match=words):
        Tail(output.config, paths, quiet_reporter()).__enter__()
    assert unchanged(output, before)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_damaged_in_files_is_not_the_logs_fault(seed: int, output: Output) -> None:
    """Zeros and nonsense in a broker's files make no command take the log for another one."""
    rng = Random(seed)
    give_to("broker", output)
    for path in rng.sample([path for path in output.out.rglob("*") if path.is_file()], 5):
        data = bytearray(path.read_bytes())
        for _ in range(3):
            at = rng.randrange(len(data))
            data[at : at + 20] = rng.choice([bytes(20), rng.randbytes(20)])[: len(data) - at]
        path.write_bytes(data)
    (output.out / "index" / "notes.txt").write_text("not one of the index")
    found = find_unexplained(log_of(output), output.out)
    assert found is None or found.gap is Gap.CUT


def test_files_that_say_nothing(output: Output) -> None:
    """An index file without a key, a queue of pre-blank units, a file that cannot be read as one."""
    shutil.rmtree(output.out)
    (output.out / "index").mkdir(parents=True)
    (output.out / "index" / "20260101000000000").write_bytes(IndexHeader().encode())
    queue = output.out / "consumequeue" / "A" / "0"
    queue.mkdir(parents=True)
    (queue / f"{0:020d}").write_bytes((bytes(8) + b"\x7f\xff\xff\xff" + bytes(8)) * 5)
    (queue / f"{100:020d}").write_bytes(b"")
    assert find_unexplained(log_of(output), output.out) is None
    no_segment(output)
    found = find_unexplained(log_of(output), output.out)
    assert found is not None
    assert found.gap is Gap.GONE


# --- the swap --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("note", [[[["index"], ["index"], False]], {"may_empty": False}])
def test_a_swap_puts_nothing_in_the_place_of_files(note: object, output: Output) -> None:
    """Begun by a reput that did not ask: the next command does not finish it."""
    moves = [[["index"], ["index"], False], [["consumequeue"], ["consumequeue"], False]]
    noted = {**note, "moves": moves} if isinstance(note, dict) else note
    files = DurableFiles(output.out)
    files.replace("reput", "rebuild", "swap.json", data=json.dumps(noted).encode())
    before = files_below(output.out)
    with pytest.raises(
        UnexplainedError, match=r"would leave nothing of index/ in .*nothing was changed: give the right"
    ):
        swap.finish_swap(files)
    assert files_below(output.out) == before
    files.replace("reput", "rebuild", "swap.json", data=json.dumps({"may_empty": True, "moves": moves}).encode())
    assert swap.finish_swap(files)
    assert not (output.out / "index").exists()


def test_a_swap_whose_files_are_gone_is_told(output: Output) -> None:
    """The files are neither in the work directory nor in place, because a user removed them."""
    files = DurableFiles(output.out)
    shutil.rmtree(output.out / "index")
    noted = {"may_empty": False, "moves": [[["index"], ["index"], True]]}
    files.replace("reput", "rebuild", "swap.json", data=json.dumps(noted).encode())
    with pytest.raises(swap.SinkError, match=r"reput/rebuild/index is gone; remove .* and rebuild the output"):
        swap.finish_swap(files)


@pytest.mark.parametrize(
    ("vanish_by", "refused"),
    [
        (only_zeros, pytest.raises(UnexplainedError, match="the rebuild found no message")),
        (no_segment, pytest.raises(TransientError, match="holds no segment any more")),
    ],
    ids=["zeros", "no segment"],
)
def test_a_log_that_vanishes_while_it_is_rebuilt(
    vanish_by: Callable[[Output], None],
    refused: AbstractContextManager[object],
    output: Output,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After the question, before the plan: nothing was made, and nothing is put in place."""
    from reput.streaming.rebuild import rebuild as module

    def vanish(*_: object, **__: object) -> None:
        vanish_by(output)

    monkeypatch.setattr(module, "check_explained", vanish)
    before = files_below(output.out)
    with refused:
        rebuild(output.config, output.out)
    assert {path: data for path, data in files_below(output.out).items() if path in before} == before


# --- the command line ------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["rebuild", "recover", "expire"])
def test_one_line_and_the_exit_code(command: str, output: Output) -> None:
    """No traceback; the same word in each command."""
    conf = output.root / "broker.conf"
    conf.write_text("mappedFileSizeConsumeQueue=100\nmaxHashSlotNum=7\nmaxIndexNum=10\n")
    no_segment(output)
    paths = ["--store", str(output.store), "--output", str(output.out), "--broker-conf", str(conf)]
    result = run_reput([command, *paths], code=1)
    assert result.output.startswith("reput: the log in ")
    assert result.output.count("\n") == 1
    assert "is the volume mounted?" in result.output
    assert "--yes" in result.output


@pytest.mark.parametrize("target", ["/nowhere/at/all", None])
def test_a_commitlog_that_leads_nowhere(target: str | None, output: Output) -> None:
    """A dangling link, a file: told, and nothing is changed."""
    before = files_below(output.out)
    output.log.rename(output.root / "elsewhere")
    output.log.symlink_to(target) if target else output.log.touch()
    for command in (
        lambda: rebuild(output.config, output.out, yes=True),
        lambda: recover_output(output.config, output.store, output.out, yes=True),
        lambda: expire_output(output.config, output.out, yes=True),
    ):
        with pytest.raises(StoreError, match=r"no commitlog at .*(does not exist|it is not a directory)"):
            command()
    assert files_below(output.out) == before
