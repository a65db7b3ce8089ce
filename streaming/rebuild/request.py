"""The request of a `reput rebuild`, and what it makes again in an output."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from reput.sinks.dispatch.piece import QueueFilter
from reput.sinks.files.store_path import consume_queue_directory
from reput.sinks.table.location import TableLocation
from reput.source.errors import OptionError
from reput.streaming.config.pipeline import PipelineConfig

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
