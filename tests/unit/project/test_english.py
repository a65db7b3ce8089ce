"""Pages, help texts, docstrings and comments stay free of patterns that make a reader read twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.english import PATTERNS, comments, found_in, texts

#: Kinds of texts, by how their places begin.
KINDS = (
    "README.md",
    "CHANGELOG.md",
    "docs/",
    "help",
    "messages/",
    "conf/",
    *("reput/", "source/", "sinks/", "streaming/", "tests/"),
)
#: One text for each pattern, and texts that none may match.
EXAMPLES = (
    "Only the first rows of the result, so many.",
    "Users who may give a statement to it, and nobody else.",
    "The tail goes on after ten seconds.",
    "It shows what stands in the log.",
    "A table that is away.",
    "Whole records lie behind the last good record.",
    "The file is made anew.",
    "Bytes that are no record.",
    "## What passes is waited for",
    "The offset is told on standard error.",
    "Look for what is behind a failure.",
    "It reads no queue, and no index neither.",
)
SOUND = (
    "So many records were lost that the queue is empty. How far is it behind the log? There is no record after it.",
    "What does it cost? A flag stands for it. Is there a file? The tail continues, and waits only once.",
    "It is no longer used, and is no larger than before. The word `nobody` is a name, and so is `so many`.",
)


def test_each_pattern_is_found() -> None:
    """A pattern that matches nothing would keep nothing out."""
    assert [{name for name, _ in found_in(example)} for example in EXAMPLES] == [{name} for name in PATTERNS]


@pytest.mark.parametrize("text", SOUND)
def test_sound_words_are_not_found(text: str) -> None:
    assert found_in(text) == []


def test_comments_are_read(tmp_path: Path) -> None:
    """Consecutive lines are one paragraph; a comment beside code is another, and orders to tools do not count."""
    path = tmp_path / "code.py"
    path.write_text(
        "# A record that\n# stands\n#\n# here.\nx = 1  # beside\ny = '# a text'  # noqa: S105\n#: Another.\n"
    )
    assert comments(path).split("\n\n") == ["A record that\nstands", "here.", "beside", "Another."]


def test_no_text_has_them() -> None:
    """Texts of every kind are read; the message names the words."""
    read = dict(texts())
    assert [kind for kind in KINDS if not any(place.startswith(kind) and text for place, text in read.items())] == []
    assert [(place, words) for place, text in read.items() for _, words in found_in(text)] == []
