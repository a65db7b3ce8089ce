"""Another writer of a table, in the very moment of one of reput's commits."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock


@contextmanager
def in_the_moment_of_a_commit(other: Callable[[], object]) -> Iterator[None]:
    """Have `other` act once, between the next commit's look at the log and that commit; there must be a commit."""
    link, seen = os.link, []

    def after_another(source: Path, target: Path) -> None:
        if not seen:
            seen.append(target)
            with mock.patch.object(os, "link", link):
                other()
        link(source, target)

    with mock.patch.object(os, "link", after_another):
        yield
    assert seen, "nothing was committed"
