"""A named question: a file of SQL whose first comment says what it answers, what it takes, and what it cannot know.

The comment's first paragraph is one line that says what the question answers. A line ``-- :NAME TYPE: meaning`` is a
parameter, ``TYPE = DEFAULT`` one with a default, and ``TYPE, required`` one that must be given. In the statement,
``:NAME`` is replaced by its value. ``-- Reads NAME, NAME.`` names the relations that it reads beside the table. All
other lines are for readers of the file, or for the help of the question.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

_ENDING: Final = ".sql"
_HEADER: Final = re.compile(r"(?:--.*\n)+")
_PARAMETER: Final = re.compile(r":(\w+) (text|integer|time)(, required)?(?: = (\S+))?: (.+)")
_READS: Final = re.compile(r"Reads (.+)\.")
# Comments and string literals come first, so that no marker is found in them.
_MARKER: Final = re.compile(r"(--[^\n]*|'[^']*')|(?<!:):([a-z_]+)\b")


@dataclass(frozen=True)
class Parameter:
    """A parameter of a question.

    Attributes
    ----------
    kind
        ``text``, ``integer`` or ``time``.
    default
        The default as a user would give it; None if there is none.
    is_required
        Whether it must be given. Without a value and a default, an optional parameter is NULL.
    """

    name: str
    kind: str
    default: str | None
    is_required: bool
    meaning: str


@dataclass(frozen=True)
class Question:
    """A named question.

    Attributes
    ----------
    summary
        What it answers, in one line.
    notes
        The other paragraphs of its comment.
    reads
        The relations that it reads beside the table.
    text
        The whole file.
    """

    name: str
    summary: str
    parameters: tuple[Parameter, ...]
    reads: tuple[str, ...]
    notes: tuple[str, ...]
    text: str

    @classmethod
    def parse(cls, name: str, text: str) -> Question:
        """Return the question in the file `text`.

        Raises
        ------
        ValueError
            The comment does not have the form of a question's, or the parameters described are not the markers in the
            statement.
        """
        header = _HEADER.match(text)
        paragraphs = _paragraphs(header.group() if header else "")
        if not paragraphs or "\n" in paragraphs[0]:
            raise ValueError(f"{name}: the first comment must begin with one line that says what it answers")
        parameters: list[Parameter] = []
        reads: list[str] = []
        notes: list[str] = []
        for paragraph in paragraphs[1:]:
            if paragraph.startswith(":"):
                parameters += [_parameter(name, line) for line in _lines(paragraph)]
            elif (found := _READS.fullmatch(paragraph)) is not None:
                reads += found.group(1).split(", ")
            else:
                notes.append(paragraph.replace("\n", " "))
        question = cls(name, paragraphs[0].rstrip("."), tuple(parameters), tuple(reads), tuple(notes), text)
        known = {each.name for each in parameters}
        # A parameter that chooses the rows of a relation need not be in the statement.
        if not question.markers() <= known or (question.markers() < known and not reads):
            raise ValueError(f"{name}: described are {sorted(known)}, the statement has {sorted(question.markers())}")
        return question

    @property
    def title(self) -> str:
        """The summary up to its colon, for a list of questions."""
        return self.summary.partition(":")[0]

    def markers(self) -> set[str]:
        """Return the names of the parameters in the statement."""
        return {marker for _, marker in _MARKER.findall(self.text) if marker}

    def with_values(self, literals: Mapping[str, str]) -> str:
        """Return the file with a literal in place of each parameter; comments and string literals stay as they are."""
        return _MARKER.sub(lambda found: found.group(1) or literals[found.group(2)], self.text)


def _paragraphs(header: str) -> list[str]:
    text = "\n".join(line.removeprefix("--").removeprefix(" ").rstrip() for line in header.splitlines())
    return [each.strip("\n") for each in re.split(r"\n{2,}", text.strip("\n")) if each.strip("\n")]


def _lines(paragraph: str) -> list[str]:
    """Split a paragraph into lines; a line that begins with blanks continues the one before it."""
    return re.sub(r"\n\s+", " ", paragraph).split("\n")


def _parameter(question: str, line: str) -> Parameter:
    found = _PARAMETER.fullmatch(line)
    if found is None:
        raise ValueError(f"{question}: {line!r} describes no parameter")
    name, kind, required, default, meaning = found.groups()
    return Parameter(name, kind, default, required is not None, meaning)


@cache
def questions() -> Mapping[str, Question]:
    """Return all questions that come with reput, by name, in alphabetical order."""
    directory = files("reput.streaming.ask") / "questions"
    texts = {
        file.name.removesuffix(_ENDING): file.read_text(encoding="utf-8")
        for file in directory.iterdir()
        if file.name.endswith(_ENDING)
    }
    return {name: Question.parse(name, texts[name]) for name in sorted(texts)}
