"""What a broker keeps of topics and consumers in its store's ``config/``, as rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from reput.sinks.files.config_manager import load_config_file
from reput.source.errors import StoreError

_CONFIG: Final = "config"
_LONG_MAX: Final = 2**63 - 1


def consumer_offsets(store: Path) -> Iterator[tuple[str, str, int, int]]:
    """Group, topic, queue and offset of ``consumerOffset.json``: where each group goes on in each queue.

    As in ``ConsumerOffsetManager``, what has another name than ``TOPIC@GROUP`` is no group's.

    Raises
    ------
    StoreError
        The file is missing, or is none that a broker wrote.
    """
    path = store / _CONFIG / "consumerOffset.json"
    table = _table(path, "offsetTable")
    for name, offsets in table.items():
        topic, _, group = name.partition("@")
        if not topic or not group or "@" in group:
            continue
        if not isinstance(offsets, dict):
            raise _foreign(path, f"{name!r} has no offsets")
        for queue_id, offset in offsets.items():
            yield _text(group), _text(topic), _number(path, queue_id), _number(path, offset)


def topic_configs(store: Path) -> Iterator[tuple[str, int, int, int]]:
    """Topic, read and write queues and permission of ``topics.json``; errors as in `consumer_offsets`."""
    path = store / _CONFIG / "topics.json"
    for topic, config in _table(path, "topicConfigTable").items():
        if not isinstance(config, dict):
            raise _foreign(path, f"{topic!r} has no configuration")
        numbers = (_number(path, config.get(name, 0)) for name in ("readQueueNums", "writeQueueNums", "perm"))
        read_queues, write_queues, permission = numbers
        yield _text(topic), read_queues, write_queues, permission


def subscription_groups(store: Path) -> Iterator[tuple[str]]:
    """The consumer groups of ``subscriptionGroup.json``; errors as in `consumer_offsets`."""
    for group in _table(store / _CONFIG / "subscriptionGroup.json", "subscriptionGroupTable"):
        yield (_text(group),)


def _table(path: Path, name: str) -> dict[str, Any]:
    """What a broker would load of the table `name` (``load_config_file``)."""

    def decode(value: Any) -> dict[str, Any]:
        found = value[name]
        if not isinstance(found, dict):
            raise TypeError(f"{name} is no table")
        return found

    found = load_config_file(path, decode, f"a broker's {name}", advice="restore it")
    if found is None:
        raise StoreError(f"no {path}", advice="a broker that keeps its configuration in RocksDB has none", file=path)
    return found


def _number(path: Path, value: object) -> int:
    try:
        number = int(value) if isinstance(value, str | int) else None
    except ValueError:
        number = None
    if number is None or abs(number) > _LONG_MAX:
        raise _foreign(path, f"{value!r} is no number of a queue or an offset")
    return number


def _text(text: str) -> str:
    """The text as Arrow takes it: half a surrogate pair, which JSON can have, is written out."""
    return text.encode(errors="backslashreplace").decode()


def _foreign(path: Path, what: str) -> StoreError:
    return StoreError(f"{path} is none that a broker wrote: {what[:200]}", advice="restore it", file=path)
