"""Which files an object writes by: what two threads use at the same time must not be the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from reput.sinks.files.durable_file import DurableFiles

#: Modules whose objects are looked into.
_OWN = "reput."


def durable_files_of(*roots: Any) -> set[int]:
    """The ids of all ``DurableFiles`` that these objects hold, themselves or through others of the product."""
    found, seen, todo = set(), set(), list(roots)
    while todo:
        each = todo.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, DurableFiles):
            found.add(id(each))
        else:
            todo += _held(each)
    return found


def _held(each: Any) -> Iterator[Any]:
    if isinstance(each, Mapping):
        yield from each.values()
    elif isinstance(each, list | tuple | set):
        yield from each
    elif type(each).__module__.startswith(_OWN):
        yield from getattr(each, "__dict__", {}).values()


def share_no_files(*objects: Any) -> bool:
    """Whether each of the objects has files, and no two of them the same."""
    held = [durable_files_of(each) for each in objects]
    return all(held) and sum(map(len, held)) == len(set().union(*held))
