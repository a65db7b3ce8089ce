"""The work of a rebuild. It is written to disk first, so that the same command resumes a rebuild that was stopped."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reput.sinks.dispatch.piece import QueueFilter
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.store_path import REBUILD_PLAN, REBUILD_ROOT, consume_queue_directory
from reput.sinks.table.location import TableLocation
from reput.source.errors import FIRST_FORMAT, OptionError, check_format
from reput.source.log.log_reader import LogReader
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.spark.class_archive import prepare_kernels

_log = logging.getLogger("reput")

# Of the plan, which names it from the second one on.
_VERSION = 1
# Options that change no byte of the result.
_FREE = {
    *("sparkMaster", "sparkDriverMemory", "sparkLogMaxBytes", "tailGuardMs", "logicTriggerMs", "tableTriggerMs"),
    *("rebuildMaxBytesPerWave", "rebuildMaxBytesPerPartition"),
    *("maxBytesPerPartition", "tableMaxBytesPerPartition", "maxBytesPerTrigger", "tableMaxBytesPerTrigger"),
}
# What may differ when a rebuild is resumed: where the output is, and the consent to begin.
_NOT_OF_PLAN = {"output", "yes"}


@dataclass(frozen=True)
class RebuildPlan:
    """The range `[start, end)` of the log, between whole records, and the command that it is for."""

    start: int
    end: int
    command: dict[str, Any]

    @classmethod
    def take_up(
        cls, files: DurableFiles, config: PipelineConfig, request: RebuildRequest, log: LogReader, end: int | None
    ) -> RebuildPlan:
        """The plan of the same command if that was stopped, else a new one; what another command left is removed.

        `end` is where the rebuild ends, None for the current end of the log.

        Raises
        ------
        OptionError
            No record begins or ends at the request's `start` or `end`.
        """
        queue = log.queue()
        least = queue.min_offset
        log_end = log.settled_end(least, meanwhile=lambda: prepare_kernels(with_rows=request.makes_table))
        start = least if request.start is None else request.start
        check_record_offset(log, "--from", start, least, log_end)
        if request.end is not None:
            check_record_offset(log, "--to", request.end, start, log_end)
        command = _command(config, request, log.identity(start + 1) if start < queue.end_of_files else {})
        plan = _load(files)
        if plan is not None and plan.command == command and plan.start == start and plan.end <= log_end:
            _log.info("continuing the rebuild of [%d, %d) that was stopped", plan.start, plan.end)
            return plan
        if plan is not None:
            _log.warning("the rebuild that was stopped had other options or another log: starting again")
        files.remove_tree(*REBUILD_ROOT)
        if end is None:
            end = log_end if request.end is None else request.end
        plan = cls(start, min(end, log_end), command)
        files.replace(*REBUILD_PLAN, data=json.dumps(vars(plan)).encode())
        return plan

    @staticmethod
    def drop(files: DurableFiles) -> None:
        """Remove a rebuild's plan and all that it made."""
        files.remove_tree(*REBUILD_ROOT)


def check_record_offset(log: LogReader, name: str, offset: int, least: int, most: int) -> None:
    """Raise OptionError unless `offset` is in `[least, most]` and a record begins or ends there."""
    if not least <= offset <= most:
        raise OptionError(
            f"{name} {offset}: an offset from {least} to {most} wanted, where whole records of the log begin and end"
        )
    before = log.align_down(least, offset)
    if before not in (offset, most):
        after = log.limit(before, most, 1, None)
        raise OptionError(
            f"{name} {offset} is inside the record at {before}; records begin or end at {before} and at {after}",
            physical_offset=before,
        )


def _command(config: PipelineConfig, request: RebuildRequest, identity: dict[str, int]) -> dict[str, Any]:
    values = {name: value for name, value in config.values.items() if name not in _FREE}
    # In the form in which it is read back from JSON.
    command: dict[str, Any] = json.loads(
        json.dumps(
            {
                "store": str(config.store.resolve()),
                "values": values,
                "request": {name: value for name, value in vars(request).items() if name not in _NOT_OF_PLAN},
                "log": identity,
            },
            default=str,
        )
    )
    return command


def _load(files: DurableFiles) -> RebuildPlan | None:
    path = files.root.joinpath(*REBUILD_PLAN)
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
        check_format(path, found.pop("version", FIRST_FORMAT), _VERSION, file=path)
        return RebuildPlan(**found)
    except FileNotFoundError:
        # Without a plan, anything left there is useless.
        return None
    except (ValueError, TypeError, AttributeError):
        return RebuildPlan(-1, -1, {})


# ----------------------------------------------------------------------------------------------------------------------
# The request of a `reput rebuild`, and what it makes again in an output.

ONLY = ("consumequeue", "index", "table")


@dataclass(frozen=True)
class RebuildRequest:
    """The command's options; see ``cli.rebuild``.

    `start` (inclusive) and `end` (exclusive) are physical offsets, None for all the log has. `yes` replaces what is in
    the output even if the log does not explain it. `restore_forgotten` makes rows again that were forgotten.
    """

    output: Path
    table: TableLocation | None = None
    topic: str | None = None
    queue_id: int | None = None
    exclude: tuple[str, ...] = ()
    only: str | None = None
    start: int | None = None
    end: int | None = None
    yes: bool = False
    restore_forgotten: bool = False

    def check(self, config: PipelineConfig) -> None:
        """Raise OptionError if options contradict each other, or nothing is left to make."""
        if self.only not in (None, *ONLY):
            raise OptionError(f"--only {self.only}: {', '.join(ONLY[:-1])} or {ONLY[-1]} wanted")
        if self.only == "table" and self.table is None:
            raise OptionError("--only table needs --table DIR")
        if self.restore_forgotten and self.only != "table":
            raise OptionError("--restore-forgotten needs --only table")
        if self.queue_id is not None and self.topic is None:
            raise OptionError("--queue-id needs --topic")
        if self.topic is not None:
            self._check_topic(self.topic)
        if not (self.makes_queues(config) or self.makes_index(config) or self.makes_table):
            raise OptionError(
                "nothing to make: consumeQueueEnable and messageIndexEnable are off, or --only asks for one of them"
            )

    def _check_topic(self, topic: str) -> None:
        if self.exclude or self.table is not None or self.only not in (None, "consumequeue"):
            raise OptionError("--topic makes queues of one topic only: leave out --exclude, --table and --only")
        if self.start is not None or self.end is not None:
            raise OptionError(
                "--topic takes the log from its beginning to where the output's other queues end: no --from, no --to"
            )
        consume_queue_directory(topic.encode(), self.queue_id or 0)

    def makes_queues(self, config: PipelineConfig) -> bool:
        """Whether queues are made."""
        return self.only in (None, "consumequeue") and config.queue.consume_queue_enable

    def makes_index(self, config: PipelineConfig) -> bool:
        """Whether the index is made."""
        return self.only in (None, "index") and self.topic is None and config.index.message_index_enable

    @property
    def is_whole(self) -> bool:
        """Whether all that the configuration asks for is made again, and the quarantine with it."""
        return self.only is None and self.topic is None

    @property
    def is_of_all(self) -> bool:
        """Whether every queue and key of the log is made again."""
        return self.is_whole and not self.exclude and self.start is None and self.end is None

    @property
    def makes_table(self) -> bool:
        """Whether rows go to the table."""
        return self.only in (None, "table") and self.table is not None

    @property
    def queue_filter(self) -> QueueFilter:
        """The queues that are made."""
        topic = None if self.topic is None else self.topic.encode()
        return QueueFilter(topic, self.queue_id, frozenset(name.encode() for name in self.exclude))


def only_queues(config: PipelineConfig) -> PipelineConfig:
    """The same configuration without the index."""
    return replace(config, index=replace(config.index, message_index_enable=False))


def only_index(config: PipelineConfig) -> PipelineConfig:
    """The same configuration without queues."""
    return replace(config, queue=replace(config.queue, consume_queue_enable=False))
