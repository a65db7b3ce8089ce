"""The output of the `logic` query: queues, index and quarantine, recovered and closed together."""

from __future__ import annotations

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.file_system import names_in
from reput.sinks.files.store_path import BATCH_CONSUME_QUEUE, CONSUME_QUEUE
from reput.sinks.quarantine import Quarantine, expired_range
from reput.sinks.queue.batch_consume_queue import queues_of_wrong_kind
from reput.source.errors import ReputError, SinkError, StoreError
from reput.source.log.log_reader import LogReader
from reput.source.record.damage import STOP
from reput.streaming.config.broker import TopicsWatch, read_topics
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.output.hand_over import check_taken_over
from reput.streaming.output.logic_sinks import LogicSinks, aligned, recover_sinks


class LogicOutput:
    """Queues and index, as far as they are switched on, and the quarantine unless damage ends the run.

    It is for one attempt: after a failure `anew` makes another one, which knows nothing about writes and syncs that
    failed.
    """

    def __init__(self, config: PipelineConfig, logic: LogicSinks, files: DurableFiles, log: LogReader) -> None:
        """Read nothing yet; `log` is for this object alone, and for one thread at a time."""
        self._config = config
        self._fails = config.source.fail_on_data_loss
        self.logic = logic
        self.files = files
        self.log = log
        self._topics = TopicsWatch(config.store)
        policy = config.source.on_damage
        self.quarantine = None if policy == STOP else Quarantine(files, config.broker.name, policy)

    def anew(self, log: LogReader) -> LogicOutput:
        """Return the same, with files of its own, not recovered yet."""
        files = DurableFiles(self.files.root)
        return LogicOutput(self._config, self.logic.anew(self._config, files), files, log)

    def has_topics_to_follow(self) -> bool:
        """Whether the store's topics may have changed; errors as in ``TopicsWatch.has_changed``."""
        return self._config.queue.consume_queue_enable and self._topics.has_changed()

    def follow_topics(self) -> bool:
        """Take the kinds of queues from the store's present topics; after True, `logic` is another object.

        Before the call, all sinks are recovered and have written everything up to the same offset.

        Raises
        ------
        StoreError, OptionError
            The topics cannot be read; they are read again at the next call.
        SinkError
            Messages of a topic were written to a queue of the wrong kind.
        """
        known = self.logic.needs.batch_topics
        try:
            topics = read_topics(self._config, self._config.store)
            if known and not topics.known:
                raise StoreError(f"{topics.path} is gone", advice="restore it", file=topics.path)
        except ReputError:
            self._topics = TopicsWatch(self._config.store)
            raise
        if topics.batch == known:
            return False
        self._check_kinds(topics.batch)
        self.logic = self.logic.following(self._config, topics.batch)
        return True

    def _check_kinds(self, batch_topics: frozenset[bytes]) -> None:
        """Raise SinkError for a ConsumeQueue of a topic with a BatchConsumeQueue; remove an empty directory."""
        for kind, topic, queue_id in queues_of_wrong_kind(self.files.root, batch_topics):
            directory = kind.directory(topic, queue_id)
            path = self.files.root.joinpath(*directory)
            if kind.top != CONSUME_QUEUE:
                continue
            if names_in(path):
                raise SinkError(
                    f"{path} has messages of a topic whose queues belong into {BATCH_CONSUME_QUEUE}/ by the store's "
                    "config/: a broker does not start with it",
                    advice="'reput rebuild' with the same --store and --output makes all queues of the right kind",
                    file=path,
                )
            self.files.remove_directory(*directory)
            self.files.remove_directory(*directory[:-1])
        self.files.sync()

    def check_taken_over(self) -> None:
        """Check the sinks' files before any sink changes them; errors also as in ``check_taken_over``.

        An empty directory of a queue of the wrong kind is removed.

        Raises
        ------
        SinkError
            A queue with files is of the wrong kind.
        """
        self._check_kinds(self.logic.needs.batch_topics)
        names = [sink.name for sink in self.logic.sinks]
        check_taken_over(self.files.root, names, self.log, fail_on_data_loss=self._fails)

    def recover_sinks(self) -> None:
        """Recover queues and index; errors as in ``recover_sinks``."""
        recover_sinks(self.logic.sinks, self.log, fail_on_data_loss=self._fails)

    def recover_quarantine(self) -> None:
        """Recover the quarantine, after the sinks, and check that the log has no hole where it is read next."""
        ends = [sink.end_offset for sink in self.logic.sinks]
        start = min(ends, default=self.log.initial_offset())
        if self.quarantine is not None:
            # If there is only a table, its end is known only with Spark.
            self.quarantine.recover(start, max(ends, default=self.log.queue().end_of_files))
            # The sinks passed over expired records (or there are no sinks, and the log's begin counts).
            least = self.log.queue().min_offset
            if not self._fails:
                least = self.log.next_available(self.quarantine.end_offset)
            if self.quarantine.end_offset < least:
                self.quarantine.write(least, [expired_range(self.quarantine.end_offset, least)])
        self.log.end(aligned(self.log, start))

    def close(self) -> None:
        """Close the files; writes that were not synced may be lost."""
        self.files.close()
