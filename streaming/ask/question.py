"""A named question: a file of SQL whose first comment says what it answers, what it takes, and what it cannot know.

The comment's first paragraph is one line that says what the question answers. A line ``-- :NAME TYPE: meaning`` is a
parameter, ``TYPE = DEFAULT`` one with a default, and ``TYPE, required`` one that must be given; ``:NAME`` stands for
its value in the statement. ``-- Reads NAME, NAME.`` names the relations that it reads beside the table. All other
lines are for readers of the file, or the help of the question.
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
# What a marker may not be taken from: comments and texts.
_MARKER: Final = re.compile(r"(--[^\n]*|'[^']*')|(?<!:):([a-z_]+)\b")


@dataclass(frozen=True)
class Parameter:
    """What a question takes.

    Attributes
    ----------
    kind
        ``text``, ``integer`` or ``time``.
    default
        The default as it would be given; None for none.
    is_required
        Whether it must be given. If it need not and has no default, its value is NULL without.
    """

    name: str
    kind: str
    default: str | None
    is_required: bool
    meaning: str


@dataclass(frozen=True)
class Question:
    """One question.

    Attributes
    ----------
    summary
        What it answers, in one line.
    notes
        What else its comment says, a paragraph each.
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
        """The question that a file holds.

        Raises
        ------
        ValueError
            Its comment is none of a question, or the statement has a marker that is no parameter.
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
        # What chooses the messages of a relation need not be in the statement.
        if not question.markers() <= known or (question.markers() < known and not reads):
            raise ValueError(f"{name}: described are {sorted(known)}, the statement has {sorted(question.markers())}")
        return question

    @property
    def title(self) -> str:
        """What it answers in a few words, as a list of questions has it: the summary up to its colon."""
        return self.summary.partition(":")[0]

    def markers(self) -> set[str]:
        """The names of the parameters that stand in the statement."""
        return {marker for _, marker in _MARKER.findall(self.text) if marker}

    def with_values(self, literals: Mapping[str, str]) -> str:
        """The file with each parameter's literal in its place; what stands in comments and texts is left alone."""
        return _MARKER.sub(lambda found: found.group(1) or literals[found.group(2)], self.text)


def _paragraphs(header: str) -> list[str]:
    text = "\n".join(line.removeprefix("--").removeprefix(" ").rstrip() for line in header.splitlines())
    return [each.strip("\n") for each in re.split(r"\n{2,}", text.strip("\n")) if each.strip("\n")]


def _lines(paragraph: str) -> list[str]:
    """The lines of a paragraph, each with those that go on with it, which begin with blanks."""
    return re.sub(r"\n\s+", " ", paragraph).split("\n")


def _parameter(question: str, line: str) -> Parameter:
    found = _PARAMETER.fullmatch(line)
    if found is None:
        raise ValueError(f"{question}: {line!r} describes no parameter")
    name, kind, required, default, meaning = found.groups()
    return Parameter(name, kind, default, required is not None, meaning)


@cache
def questions() -> Mapping[str, Question]:
    """All questions that come with reput, by name, in alphabetical order."""
    directory = files("reput.streaming.ask") / "questions"
    texts = {
        file.name.removesuffix(_ENDING): file.read_text(encoding="utf-8")
        for file in directory.iterdir()
        if file.name.endswith(_ENDING)
    }
    return {name: Question.parse(name, texts[name]) for name in sorted(texts)}
