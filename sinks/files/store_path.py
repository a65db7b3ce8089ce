"""The paths below an output; no other module makes a path from a name in a record.

Topics come from producers. A topic becomes a directory only when the broker itself would accept its name
(``TopicValidator#validateTopic``): CVE-2019-17572 was a topic ``../../../x``. A light queue's name, which the broker
does not check, is accepted where it is printable and the name of one directory.
"""

from __future__ import annotations

import re

from reput.source.errors import SinkError
from reput.source.segments.mapped_file_name import file_name

# A path below an output, as a tuple of names.
RelativePath = tuple[str, ...]

CONSUME_QUEUE = "consumequeue"
CONSUME_QUEUE_EXT = "consumequeue_ext"
BATCH_CONSUME_QUEUE = "batchconsumequeue"
INDEX = "index"
STORE_CHECKPOINT = "checkpoint"
ABORT = "abort"
LOCK = "lock"
REPUT = "reput"
PROGRESS = "progress"
SCRATCH = "scratch"
SPARK_CHECKPOINT = "spark-checkpoint"
QUARANTINE_FILE = "quarantine.jsonl"
REBUILD = "rebuild"

# Which release and which sizes an output was made for.
MADE_FOR = (REPUT, "settings.json")

# Where `reput rebuild` works: an output inside the one that it will change, its plan, its swap, what it put away.
REBUILD_ROOT = (REPUT, REBUILD)
REBUILD_PLAN = (*REBUILD_ROOT, "plan.json")
REBUILD_SWAP = (*REBUILD_ROOT, "swap.json")
REBUILD_OLD = (*REBUILD_ROOT, "old")

_TOPIC = re.compile(r"[%|a-zA-Z0-9_-]+")
_TOPIC_LENGTH_MAX = 127
_GROUP_TOPIC_LENGTH_MAX = 255
_GROUP_TOPIC_PREFIXES = ("%RETRY%", "%DLQ%")
# Names of light queues come from clients unchecked; a broker takes anything that its file system takes.
_LMQ = re.compile(r"%LMQ%[^/]+")
_NAME_BYTES_MAX = 255
_INDEX_NAME = re.compile(r"[0-9]{17}")


def consume_queue_directory(topic: bytes, queue_id: int) -> tuple[str, str, str]:
    """The path of one queue's directory: ``consumequeue/<topic>/<queueId>``.

    Raises
    ------
    SinkError
        The topic is not one that a broker accepts, or the queue id is negative.
    """
    return CONSUME_QUEUE, *_queue_names(topic, queue_id)


def consume_queue_ext_directory(topic: bytes, queue_id: int) -> tuple[str, str, str]:
    """The same for a ConsumeQueueExt: ``consumequeue_ext/<topic>/<queueId>``."""
    return CONSUME_QUEUE_EXT, *_queue_names(topic, queue_id)


def batch_consume_queue_directory(topic: bytes, queue_id: int) -> tuple[str, str, str]:
    """The same for a BatchConsumeQueue: ``batchconsumequeue/<topic>/<queueId>``."""
    return BATCH_CONSUME_QUEUE, *_queue_names(topic, queue_id)


def _queue_names(topic: bytes, queue_id: int) -> tuple[str, str]:
    name = topic.decode("utf-8", "backslashreplace")
    is_light = _LMQ.fullmatch(name) and name.isprintable() and len(topic) <= _NAME_BYTES_MAX
    length_max = _GROUP_TOPIC_LENGTH_MAX if name.startswith(_GROUP_TOPIC_PREFIXES) else _TOPIC_LENGTH_MAX
    is_topic = _TOPIC.fullmatch(name) and len(name) <= length_max
    if not (is_topic or is_light) or name.encode() != topic:
        raise SinkError(f"topic {topic!r} is no name that a broker accepts: it makes no directory")
    if queue_id < 0:
        raise SinkError(f"queue id {queue_id} of topic {name!r} is negative: it makes no directory")
    return name, str(queue_id)


def consume_queue_ext_file(topic: bytes, queue_id: int, file_from_offset: int) -> tuple[str, str, str, str]:
    """The path of one ConsumeQueueExt file, named by the byte offset it begins at."""
    return (*consume_queue_ext_directory(topic, queue_id), file_name(file_from_offset))


def is_index_file_name(name: str) -> bool:
    """Whether a file below ``index/`` is an index file: its name is 17 digits, the time of its creation."""
    return _INDEX_NAME.fullmatch(name) is not None


def index_file(name: str) -> tuple[str, str]:
    """The path of an index file, named by its creation time in 17 digits."""
    if not is_index_file_name(name):
        raise SinkError(f"{name!r} is no index file's name: 17 digits wanted")
    return INDEX, name


def quarantine_file() -> tuple[str, str]:
    """The path of the file that records what was left out of the log."""
    return REPUT, QUARANTINE_FILE


def progress_file(sink: str) -> tuple[str, str, str]:
    """The path of a sink's progress record in reput's own folder."""
    return REPUT, PROGRESS, f"{sink}.json"
