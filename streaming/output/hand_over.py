"""The hand-over of an output between reput and a broker: what `reput tail` takes over, and when `abort` is removed.

Without `abort` a broker trusts queues and index as they are and goes on behind them; a 5.x broker even passes over the
first record behind its queues. With `abort` it removes the newest index file and dispatches again. So reput creates
`abort` before it changes a file of an output, and removes it once queues and index have every record of a whole log.
This is the broker's own rule (``DefaultMessageStore#shutdown`` keeps it while ``dispatchBehindBytes`` is above 0).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from reput.sinks.abort_file import LeftBy, abort_left_by, clear_abort, mark_abort
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.file_system import has_files
from reput.sinks.files.sink_progress import ProgressFile
from reput.sinks.files.store_path import ABORT
from reput.source.errors import OutputError, ReputError
from reput.source.log.log_reader import LogReader
from reput.source.log.range_reader import scan_windows
from reput.source.record.damage import STOP
from reput.source.record.message_decoder import Verdict
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.output.log_explains import FOLDERS, RECOVER, Gap, check_explained
from reput.streaming.output.logic_sinks import aligned, check_fingerprint, check_not_expired
from reput.streaming.output.recovery_start import broker_recovers_from

_log = logging.getLogger("reput")


class Ending(Protocol):
    """A sink, as far as it says where it ends."""

    name: str

    @property
    def end_offset(self) -> int:
        """Where the sink ends."""


@dataclass(frozen=True)
class HandOver:
    """What becomes, or would become, of an output's `abort`; `reason` says why it stays, and what to do."""

    is_cleared: bool
    reason: str | None = None

    def text(self, *, dry_run: bool = False) -> str:
        """The hand-over in one line."""
        if self.is_cleared:
            verb = "would be removed" if dry_run else "is removed"
            return f"{ABORT} {verb}: a broker may start here as after a clean stop"
        return f"{ABORT} {'would stay' if dry_run else 'stays'}: {self.reason}"


# --- taking over ---------------------------------------------------------------------------------------------


def check_taken_over(output: Path, sinks: Sequence[str], log: LogReader, *, fail_on_data_loss: bool) -> None:
    """Check what `sinks` find in the output, before any of them changes it.

    Raises
    ------
    OutputError
        A sink would take over files of a broker that stopped uncleanly, or of a killed reput whose progress records are
        lost. Their last pages may be missing, and their index headers outdated (``DefaultMessageStore#load`` does not
        trust them either).
    UnexplainedError
        The log does not explain the files that a sink would take over.
    CommitLogRewoundError
        The last record that a sink has is no longer where it was.
    DataLossError
        Records behind a sink's end have expired unread, and `fail_on_data_loss` is set.
    """
    taken_over = False
    for sink in sinks:
        record = ProgressFile(DurableFiles(output), sink).load()
        if not has_files(output / FOLDERS[sink]):
            continue
        if record is None:
            taken_over = True
            _check_trusted(output, output / FOLDERS[sink])
            continue
        if record.last_record is not None:
            check_fingerprint(log, sink, record.last_record, record.start_offset)
        check_not_expired(log, sink, record.end_offset, fail_on_data_loss=fail_on_data_loss)
    if taken_over:
        check_explained(log, output, [Gap.GONE, Gap.OTHER, Gap.CUT], way_out=RECOVER)


def _check_trusted(output: Path, folder: Path) -> None:
    left_by = abort_left_by(output)
    if left_by is LeftBy.NOBODY:
        return
    stopped = "broker which left" if left_by is LeftBy.BROKER else "reput which wrote"
    raise OutputError(
        f"{output / ABORT} says that the {stopped} {folder} stopped uncleanly: its last writes may be missing or torn",
        advice="'reput recover' with the same --store and --output brings it into agreement with the log",
        file=output / ABORT,
    )


# --- handing over --------------------------------------------------------------------------------------------


@contextmanager
def abort_while_written(
    files: DurableFiles, sinks: Callable[[], Sequence[Ending] | None], log: LogReader
) -> Iterator[None]:
    """Keep `abort` in the output while sinks write there, and after a failure.

    A clean stop removes it if `sinks`, asked then, are at the end of the log. They are None where they failed and were
    not recovered since. A broker's `abort` from before stays.
    """
    if abort_left_by(files.root) is not LeftBy.BROKER:
        mark_abort(files)
    yield
    if abort_left_by(files.root) is LeftBy.BROKER:
        _log.info("%s is a broker's and stays: 'reput recover' looks the log over and removes it", files.root / ABORT)
        return
    ending = sinks()
    if ending is None:
        _log.info("%s stays: the last batch failed; the next start makes it good", files.root / ABORT)
        return
    try:
        behind = why_behind(log, [(sink.name, sink.end_offset) for sink in ending])
    except (ReputError, OSError) as error:  # a store that is gone does not spoil a clean stop
        behind = str(error)
    if behind is None:
        clear_abort(files)
    else:
        _log.info("%s stays, for a broker that is started here: %s", files.root / ABORT, behind)


@contextmanager
def abort_while_changed(files: DurableFiles) -> Iterator[None]:
    """Keep `abort` in the output during a change after which the output is as fit for a broker as before."""
    before = abort_left_by(files.root)
    if before is LeftBy.NOBODY:
        mark_abort(files)
    yield
    if before is LeftBy.NOBODY:
        clear_abort(files)


def why_behind(log: LogReader, ends: Sequence[tuple[str, int]]) -> str | None:
    """Why queues and index, which end at `ends`, are not at the log's end, and what to do; None if they are there."""
    name, end = min(ends, key=lambda each: each[1])
    begin = max(log.queue().min_offset, aligned(log, end))
    # A live log always goes on; waiting pays only for one that seems to have ended.
    log_end = log.end(begin)
    if log_end <= end:
        log_end = log.settled_end(begin)
    if log_end <= end:
        return None
    return (
        f"{name} ends at {end}, the log at {log_end}; 'reput tail --available-now' with the same --store and --output "
        f"goes on to there and removes {ABORT}"
    )


def hand_over(
    files: DurableFiles,
    log: LogReader,
    ends: Sequence[tuple[str, int]],
    doubt: str | None,
    *,
    dry_run: bool = False,
) -> HandOver | None:
    """Remove the output's `abort` if queues and index agree with a whole log; returns None without an `abort`.

    `ends` is where each of them ends once it agrees; `doubt` is the earlier result of `doubt_of_log`. A broker's
    `abort` becomes reput's own if queues and index only have yet to reach the end of the log.
    """
    left_by = abort_left_by(files.root)
    if left_by is LeftBy.NOBODY:
        return None
    if doubt is not None:
        return HandOver(is_cleared=False, reason=doubt)
    behind = why_behind(log, ends)
    if not dry_run:
        if behind is None:
            clear_abort(files)
        elif left_by is LeftBy.BROKER:
            mark_abort(files)
    return HandOver(is_cleared=behind is None, reason=behind)


def doubt_of_log(files: DurableFiles, log: LogReader, config: PipelineConfig) -> str | None:
    """Why the broker that left `abort` must find it at its start; None if it loses no message without.

    With `abort` the broker of `config` reads from an older segment on, chosen by the store's checkpoint, and cuts the
    log at the first record that fails its checks. If all records pass, the log ends at the same offset either way.

    A run that leaves damage out (``onDamage``) knows that one may fail, and that the broker would cut the good records
    behind it: there it counts what the broker reads without `abort`, once its queues have all of the log.
    """
    segments = log.queue()
    if not segments.files or abort_left_by(files.root) is not LeftBy.BROKER:
        return None
    end, leaves_out = log.settled_end(segments.min_offset), log.decode_options.on_damage != STOP
    offset = broker_recovers_from(files, segments, config, unclean=not leaves_out, queued_to=end)
    options = replace(log.decode_options, check_crc=True, on_damage=STOP)
    verdict = Verdict.EMPTY
    file = segments.find(offset)
    while file is not None:
        for window in scan_windows(file, file.file_from_offset, file.end, options):
            offset, verdict = window.end, window.verdict
        if verdict is not Verdict.BLANK:
            break
        file = segments.following(file)
    if offset >= end and (leaves_out or verdict in (Verdict.EMPTY, Verdict.BLANK)):
        return None
    why = f"what stands in the log at {offset} is no whole record ({verdict.name})"
    if leaves_out:
        return f"{why}; a broker cuts the log there without {ABORT}: 'reput doctor' says what it does with it"
    return f"{why}; a broker that finds {ABORT} cuts the log there and dispatches again"
