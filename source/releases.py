"""Differences between brokers of different releases on the same files: one table, a rule for each difference.

A rule names the first release whose broker does it, and the method of RocketMQ's source that does it. The releases
between two rules agree in everything that is modelled here. ``docs/releases.md`` shows this table.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

Version = tuple[int, int, int]
VERSION: Final = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})\.([0-9]{1,4})")


@dataclass(frozen=True)
class Rule:
    """Something that brokers do from the release `since` on, before `until`; `source` is RocketMQ's method for it."""

    since: Version
    what: str
    source: str
    until: Version | None = None

    def holds(self, version: Version) -> bool:
        """Whether a broker of this release does it."""
        return version >= self.since and (self.until is None or version < self.until)


#: The releases of the two generations whose brokers reput is compared with; predictions are for these by default.
V4: Final[Version] = (4, 9, 3)
V5: Final[Version] = (5, 5, 0)
FIRST: Final = V4
LAST: Final[Version] = (5, 5, 1)

# ----------------------------------------------------------------------------------------------------------------------
# Settings and configuration.

KEEPS_ATTRIBUTES = Rule(
    (5, 0, 0), "topics and groups have attributes, and their files a state version", "TopicConfig, DataVersion (common)"
)
TRIMS_SETTINGS = Rule(
    (5, 2, 0), "texts of broker.conf lose the white space around them", "MixAll#properties2Object (of common)"
)

# ----------------------------------------------------------------------------------------------------------------------
# Records.

READS_INNER_BATCHES = Rule(
    (5, 0, 0), "a record is damaged if INNER_NUM or INNER_BASE is not a number", "CommitLog#setBatchSizeIfNeeded"
)
READS_V2_RECORDS = Rule(
    (5, 1, 0),
    "records with the magic code of V2, whose topics may be longer, are read; before, the log ends there",
    "CommitLog#checkMessageAndReturnSize, #isMappedFileMatchedRecover",
)
VERIFIES_PROPERTY_CRC = Rule(
    (5, 2, 0), "forceVerifyPropCRC compares the checksum in the properties", "CommitLog#checkMessageAndReturnSize"
)
COMPARES_SIZES = Rule(
    (5, 3, 2),
    "a size that is larger than the rest of the segment is damage, also that of a blank; a segment may end without one",
    "CommitLog#checkMessageAndReturnSize",
)
TAKES_A_CHECKSUM_OF_0 = Rule(
    (5, 3, 2), "forceVerifyPropCRC takes a checksum of 0 for one", "CommitLog#checkMessageAndReturnSize"
)
REFUSES_NEGATIVE_SIZES = Rule(
    (5, 5, 1),
    "a negative size is damage; before, one with a blank's magic code ended its segment",
    "CommitLog#checkMessageAndReturnSize",
)

# ----------------------------------------------------------------------------------------------------------------------
# Loading files.

WRITES_INTO_ABORT = Rule((5, 0, 0), "a start ends where abort is a directory", "DefaultMessageStore#createTempFile")
KEEPS_BATCH_QUEUES = Rule(
    (5, 0, 0), "topics may have a BatchConsumeQueue; a queue of the wrong kind ends a start", "ConsumeQueueStore#load"
)
PASSES_OVER_DIRECTORIES = Rule(
    (5, 1, 0), "a directory among segments or queue files is passed over", "MappedFileQueue#doLoad"
)
NEEDS_THE_INDEX = Rule(
    (5, 1, 0), "a start ends at an index file that cannot be opened", "DefaultMessageStore#load, IndexService#load"
)
DELETES_AN_EMPTY_LAST_FILE = Rule(
    (5, 1, 3), "an empty last segment or queue file is deleted; before, it ended the start", "MappedFileQueue#doLoad"
)

# ----------------------------------------------------------------------------------------------------------------------
# Recovery and replay.

REPLAYS_FROM_THE_LOGS_END = Rule(
    (5, 0, 0),
    "the replay begins at the log's end unless recheckReputOffsetFromCq is on; before, where the queues end",
    "DefaultMessageStore#start, #doRecheckReputOffsetFromCq",
)
RECOVERY_BEGINS_AT_THE_QUEUES_END = Rule(
    (5, 3, 2),
    "normal recovery begins at the last segment that the queues reach; before, at the third from the end",
    "CommitLog#recoverNormally",
)
RECOVERY_DISPATCHES = Rule(
    (5, 3, 2),
    "normal recovery dispatches the records after the queues' end; before, none, and from 5.0.0 on no replay does",
    "CommitLog#recoverNormally",
)
CHECKS_FIRST_RECORDS = Rule(
    (5, 4, 0),
    "recovery begins at a segment whose first record is good, at most commitLogRecoverMaxNum segments back",
    "CommitLog#recoverNormally, #recoverAbnormally, #isMappedFileMatchedRecover",
)
ASKS_THE_QUEUES_AGAIN = Rule(
    (5, 4, 0),
    "queues are cut where they end after recovery has dispatched; before, only if they ended there before",
    "ConsumeQueueStore#truncateDirty",
)
KEEPS_QUEUED_OFFSET = Rule(
    (5, 5, 0),
    "the checkpoint says how far the queues are on disk, and abnormal recovery begins there; before, by times",
    "ConsumeQueueStore#isMappedFileMatchedRecover, StoreCheckpoint#getLogicsPhysicalOffset",
)
FAILS_AT_EMPTY_QUEUE_FILES = Rule(
    (5, 0, 0),
    "a start ends where the last file of a queue begins after queue offset 0, and recovery finds no entry in it",
    "ConsumeQueue#correctMinOffset",
    until=(5, 5, 0),
)
FORGETS_QUEUES_WITHOUT_FILES = Rule(
    (5, 5, 1),
    "a queue without files ends at no offset of the log; before, where recovery cut it",
    "ConsumeQueue#correctMinOffset",
)

# ----------------------------------------------------------------------------------------------------------------------
# Queues and index.

DISPATCHES_WITHOUT_PROPERTIES = Rule(
    (5, 0, 0),
    "a record without properties is dispatched with enableMultiDispatch; before, dispatch fails there",
    "ConsumeQueue#checkMultiDispatchQueue",
)
SLAVES_NOTIFY = Rule(
    (5, 0, 0), "a slave's replay tells waiting consumers, too", "DefaultMessageStore.ReputMessageService#doReput"
)
FLUSHES_INDEX_AT_STOP = Rule(
    (5, 0, 0), "a clean stop writes the header of the last index file", "IndexService#shutdown"
)
RETRIES_STAY_ALONE = Rule(
    (5, 1, 1),
    "messages of %RETRY% go to no further queue",
    "ConsumeQueue#checkMultiDispatchQueue, ReputMessageService#notifyMessageArrive4MultiQueue",
)
TIMERS_STAY_ALONE = Rule(
    (5, 1, 2),
    "messages of rmq_sys_wheel_timer and the delay topic go to no further queue",
    "ConsumeQueue#checkMultiDispatchQueue",
)
PASSES_OVER_PATHS = Rule(
    (5, 1, 2), "a further queue whose name holds a / is passed over", "ConsumeQueue#multiDispatchLmqQueue"
)
SQL_CONTAINS = Rule((5, 1, 3), "SQL92 filters know CONTAINS, STARTSWITH and ENDSWITH", "filter.SelectorParser")
SYSTEM_TOPICS_STAY_ALONE = Rule(
    (5, 2, 0), "messages of rmq_sys_ topics go to no further queue", "MultiDispatchUtils#isNeedHandleMultiDispatch"
)
KEEPS_QUEUES_IN_ROCKSDB = Rule(
    (5, 2, 0),
    "queues may be in RocksDB (storeType=defaultRocksDB); abnormal recovery then begins where they end, too",
    "DefaultMessageStore#createConsumeQueueStore, CommitLog#isMappedFileMatchedRecover",
)
KEEPS_TIMERS = Rule(
    (5, 0, 0),
    "timer messages are sent when they are due; before, they stay in rmq_sys_wheel_timer",
    "timer.TimerMessageStore#load, #start",
)
READS_TIMERS_WITHIN_THE_QUEUE = Rule(
    (5, 3, 2),
    "timer messages are read from their queue's end at most; before, those up to a later place were passed over",
    "timer.TimerMessageStore#recover",
)
RECALLS_BY_TOPIC = Rule(
    (5, 3, 2),
    "what recalls a timer message names its topic, too; from 5.4.0 on, only with appendTopicForTimerDeleteKey",
    "timer.TimerMessageStore#buildDeleteKey",
    until=(5, 4, 0),
)
ENDS_TRANSACTIONS_TOGETHER = Rule(
    (5, 1, 0),
    "one message ends several transactions; before, a broker ends none by it, and checks these again",
    "TransactionalMessageServiceImpl#fillOpRemoveMap (of the broker)",
)
KEEPS_MORE_IN_ROCKSDB = Rule(
    (5, 4, 0),
    "index, timers and transactions may be in RocksDB (indexRocksDBEnable, timerRocksDBEnable, transRocksDBEnable)",
    "rocksdb.MessageRocksDBStorage",
)
KEEPS_LIGHT_QUEUES_IN_ROCKSDB = Rule(
    (5, 3, 2),
    "queues in RocksDB have further queues of a message, too (enableLmq); before, none",
    "queue.RocksDBConsumeQueueStore#dispatchLMQ",
)
CUTS_ALL_QUEUES_IN_ROCKSDB = Rule(
    (5, 3, 2),
    "queues in RocksDB that reach past the log's end are cut; before, only those of the topics in config/",
    "queue.RocksDBConsumeQueueOffsetTable#truncateDirty",
)
KEEPS_ROCKSDB_APART = Rule(
    (5, 5, 0),
    "queues in RocksDB may have a folder of their own (useSeparateStorePathForRocksdbCQ)",
    "queue.RocksDBConsumeQueueStore",
)
DOUBLE_WRITES_LITE_ALONE = Rule(
    (5, 5, 1),
    "with queues in both, RocksDB may have those of LITE topics alone (rocksdbCQSelectiveDoubleWriteEnable)",
    "CombineConsumeQueueStore#shouldDoubleWriteForTopic",
)
INDEXES_TAGS = Rule((5, 4, 0), "the index has tags, too", "IndexService#buildIndex")
KEEPS_QUEUES_IN_BOTH = Rule(
    (5, 4, 0), "queues may be in files and in RocksDB (rocksdbCQDoubleWriteEnable)", "CombineConsumeQueueStore"
)

# ----------------------------------------------------------------------------------------------------------------------

RULES: Final[dict[str, Rule]] = {name: value for name, value in globals().items() if isinstance(value, Rule)}
#: The releases that change something, the first release included, in order.
CHANGING_RELEASES: Final[tuple[Version, ...]] = tuple(sorted({FIRST, *(rule.since for rule in RULES.values())}))


def version_of(text: str) -> Version | None:
    """The version that a text such as 5.5.0 states; None for any other text."""
    match = VERSION.fullmatch(text)
    return None if match is None else (int(match[1]), int(match[2]), int(match[3]))


def version_text(version: Version) -> str:
    """A version as text."""
    return ".".join(map(str, version))
