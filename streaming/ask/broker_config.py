"""What a broker keeps of topics and consumers in its store's ``config/``, as rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from reput.sinks.files.config_manager import backup_of, load_config_file
from reput.source.errors import StoreError

_CONFIG: Final = "config"
_LONG_MAX: Final = 2**63 - 1


def consumer_offsets(store: Path, *, enable_lmq: bool = False) -> Iterator[tuple[str, str, int, int]]:
    """Group, topic, queue and offset: where each group goes on in each queue.

    They are in ``consumerOffset.json``, and with `enable_lmq` in ``lmqConsumerOffset.json``, as in
    ``BrokerController``. A store that has the second file alone is read by it in any case. Names other than
    ``TOPIC@GROUP`` are no group's, as in ``ConsumerOffsetManager``.

    Raises
    ------
    StoreError
        The file is missing, or is none that a broker wrote.
    """
    plain, of_lmq = (store / _CONFIG / name for name in ("consumerOffset.json", "lmqConsumerOffset.json"))
    if not (enable_lmq or _is_there(plain)):
        enable_lmq = _is_there(of_lmq)
    path = of_lmq if enable_lmq else plain
    for name, offsets in _table(path, "offsetTable").items():
        if (consumer := _topic_and_group(name)) is None:
            continue
        if not isinstance(offsets, dict):
            raise _foreign(path, f"{name!r} has no offsets")
        topic, group = consumer
        for queue_id, offset in offsets.items():
            yield group, topic, _number(path, queue_id), _number(path, offset)
    # A light queue is one, of number 0.
    for name, offset in _table(path, "lmqOffsetTable").items() if enable_lmq else ():
        if (consumer := _topic_and_group(name)) is not None:
            yield consumer[1], consumer[0], 0, _number(path, offset)


def _is_there(path: Path) -> bool:
    return path.exists() or backup_of(path).exists()


def _topic_and_group(name: str) -> tuple[str, str] | None:
    topic, _, group = name.partition("@")
    return (_text(topic), _text(group)) if topic and group and "@" not in group else None


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
