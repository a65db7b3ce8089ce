"""The paths below an output; no other module makes a path from a name in a record.

Topics come from producers, and the broker's own dispatch checks none: any name that a message gives its queue becomes a
directory, even ``../../../x`` (CVE-2019-17572). Here a name becomes a directory only if it is the name of one
directory, so that it stays inside, and printable, so that it does no harm in a terminal or a list of files.
"""

from __future__ import annotations

import os
import re

from reput.source.errors import SinkError
from reput.source.log.store_layout import file_name
from reput.source.options import INT_MAX

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

# The release and the sizes that an output was made for.
MADE_FOR = (REPUT, "settings.json")

# The paths of `reput rebuild`: an output inside the one that it will change, its plan, its swap, the replaced files.
REBUILD_ROOT = (REPUT, REBUILD)
REBUILD_PLAN = (*REBUILD_ROOT, "plan.json")
REBUILD_SWAP = (*REBUILD_ROOT, "swap.json")
REBUILD_OLD = (*REBUILD_ROOT, "old")

#: The prefix of a light queue's name (``MixAll#LMQ_PREFIX``).
LIGHT_QUEUE = b"%LMQ%"
# The names that ``TopicValidator`` accepts; names of light queues come from clients unchecked.
_TOPIC = re.compile(r"[%|a-zA-Z0-9_-]{1,255}|%LMQ%[^/]+")
_NAME_BYTES_MAX = 255
_INDEX_NAME = re.compile(r"[0-9]{17}")
_QUEUE_ID = re.compile(r"0|[1-9][0-9]{0,9}")


def consume_queue_directory(topic: bytes, queue_id: int) -> tuple[str, str, str]:
    """The path of one queue's directory: ``consumequeue/<topic>/<queueId>``.

    Raises
    ------
    SinkError
        The topic is not the name of one directory, or not printable, or the queue id is negative.
    """
    return CONSUME_QUEUE, *_queue_names(topic, queue_id)


def consume_queue_ext_directory(topic: bytes, queue_id: int) -> tuple[str, str, str]:
    """The path of one ConsumeQueueExt's directory, ``consumequeue_ext/<topic>/<queueId>``; raises the same errors."""
    return CONSUME_QUEUE_EXT, *_queue_names(topic, queue_id)


def batch_consume_queue_directory(topic: bytes, queue_id: int) -> tuple[str, str, str]:
    """The path of one BatchConsumeQueue's directory, ``batchconsumequeue/<topic>/<queueId>``; the same errors."""
    return BATCH_CONSUME_QUEUE, *_queue_names(topic, queue_id)


def _queue_names(topic: bytes, queue_id: int) -> tuple[str, str]:
    name = topic.decode("utf-8", "backslashreplace")
    is_one_directory = name not in {"", ".", ".."} and "/" not in name and len(topic) <= _NAME_BYTES_MAX
    if not (is_one_directory and name.isprintable() and name.encode() == topic):
        raise SinkError(f"topic {topic!r} is not the printable name of one directory: no queue is made of it")
    if queue_id < 0:
        raise SinkError(f"queue id {queue_id} of topic {name!r} is negative: no queue is made of it")
    return name, str(queue_id)


def consume_queue_ext_file(topic: bytes, queue_id: int, file_from_offset: int) -> tuple[str, str, str, str]:
    """The path of one ConsumeQueueExt file, named by the byte of the queue where it begins."""
    return (*consume_queue_ext_directory(topic, queue_id), file_name(file_from_offset))


def is_topic(name: str) -> bool:
    """Whether a directory below a folder of queues has the name of a topic or light queue.

    Further queues of a message may have other names (``enableMultiDispatch``): `consume_queue_directory` accepts more.
    """
    return _TOPIC.fullmatch(name) is not None and is_directory_name(name)


def is_directory_name(name: str) -> bool:
    """Whether `consume_queue_directory` gives any topic a directory of this name."""
    try:
        return _queue_names(os.fsencode(name), 0)[0] == name
    except SinkError:
        return False


def is_queue_id(name: str) -> bool:
    """Whether `consume_queue_directory` gives any queue a directory of this name."""
    return _QUEUE_ID.fullmatch(name) is not None and int(name) <= INT_MAX


def is_index_file_name(name: str) -> bool:
    """Whether a file below ``index/`` is an index file: its name is 17 digits, the time of its creation."""
    return _INDEX_NAME.fullmatch(name) is not None


def index_file(name: str) -> tuple[str, str]:
    """The path of an index file, named by its creation time in 17 digits."""
    if not is_index_file_name(name):
        raise SinkError(f"{name!r} is not an index file's name: 17 digits wanted")
    return INDEX, name


def quarantine_file() -> tuple[str, str]:
    """The path of the file that records the ranges left out of the log."""
    return REPUT, QUARANTINE_FILE


def progress_file(sink: str) -> tuple[str, str, str]:
    """The path of a sink's progress record in reput's own folder."""
    return REPUT, PROGRESS, f"{sink}.json"
