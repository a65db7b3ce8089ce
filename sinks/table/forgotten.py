"""What was forgotten, and the proof: every data file and every file of the log below a table is looked into."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from reput.sinks.table.forget_request import ForgetRequest, RowsFound
from reput.sinks.table.storage import LOG, TableStorage

# Delta cuts longer texts in statistics; reput does not.
_BOUND_LENGTH = 32


@dataclass(frozen=True)
class Traces:
    """What is left of rows below a table.

    Attributes
    ----------
    files
        How many data files were looked into.
    rows
        Data files with such rows, by their path relative to the table's root, each with their number; those that a
        deletion vector takes away and those of older versions among them.
    mentions
        Data files in which other rows have one of the texts in a property, each with their number.
    log_files
        Files of the table's log that have one of the texts.
    unreadable
        Files that could not be looked into.
    """

    files: int
    rows: dict[str, int]
    mentions: dict[str, int]
    log_files: list[str]
    unreadable: list[str]

    @property
    def is_clean(self) -> bool:
        """Whether nothing is left, and nothing is unknown."""
        return not (self.rows or self.log_files or self.unreadable)


@dataclass
class Forgotten:
    """What was done.

    Attributes
    ----------
    rows
        How many rows of the present version were taken away.
    files_rewritten
        How many of its files had such rows.
    files_removed, bytes_removed
        Data files that were removed from the disk: those, those of older versions, orphans.
    commits_removed
        How many versions went from the log.
    version
        The version that took the rows away; None if there was nothing to do.
    left
        What is left.
    """

    rows: int = 0
    files_rewritten: int = 0
    files_removed: int = 0
    bytes_removed: int = 0
    commits_removed: int = 0
    version: int | None = None
    left: Traces = field(default_factory=lambda: Traces(0, {}, {}, [], []))


def traces(storage: TableStorage, request: ForgetRequest, looked_into: dict[str, RowsFound] | None = None) -> Traces:
    """Look for the rows in every file below a table's root; `looked_into` gets what was found in each data file.

    Raises
    ------
    OSError
        A directory cannot be listed.
    """
    found: dict[str, RowsFound] = {}
    log_files, unreadable = [], []
    for name in sorted(file.name for file in storage.files(deep=True)):
        try:
            if name.startswith(f"{LOG}/"):
                if _has_text(storage, name, request):
                    log_files.append(name)
            elif name.endswith(".parquet"):
                found[name] = find(storage, name, request)
            elif name.endswith(".parquet.tmp"):  # of a writer that is at work, or died
                unreadable.append(name)
        except FileNotFoundError:  # a writer that is at work removed it
            continue
        except (OSError, pa.ArrowException):
            unreadable.append(name)
    if looked_into is not None:
        looked_into.update(found)
    return Traces(
        len(found),
        {name: each.rows for name, each in found.items() if each.rows},
        {name: each.mentions for name, each in found.items() if each.mentions},
        log_files,
        [name for name in unreadable if storage.status(name) is not None],
    )


def find(storage: TableStorage, name: str, request: ForgetRequest) -> RowsFound:
    """Look for the rows in a data file; raises what ``ForgetRequest.find`` raises."""
    with storage.parquet(name) as file:
        return request.find(file)


def _has_text(storage: TableStorage, name: str, request: ForgetRequest) -> bool:
    patterns = [_pattern(text) for text in request.unwanted_texts]
    if not patterns:
        return False
    if name.endswith(".parquet"):
        return any(pattern.search(text) for text in _texts_of(storage, name) for pattern in patterns)
    content = storage.read(name).decode("utf-8", errors="replace")
    return any(pattern.search(content) for pattern in patterns)


def _pattern(text: str) -> re.Pattern[str]:
    """How a text may stand in a log: quoted, with JSON's escapes once, or twice as in statistics, perhaps cut."""
    cut = text[:_BOUND_LENGTH]
    spellings = {each for plain in (cut, text) for once in _escaped(plain) for each in (plain, once, *_escaped(once))}
    end = "" if len(text) > _BOUND_LENGTH else r"(?=\\*[\"'])"
    return re.compile(r"(?<=[\"'])(?:" + "|".join(map(re.escape, sorted(spellings))) + ")" + end)


def _escaped(text: str) -> tuple[str, str]:
    return json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]


def _texts_of(storage: TableStorage, name: str) -> Iterator[str]:
    """All texts of a checkpoint, each in quotes."""
    with storage.parquet(name) as file:
        actions = file.read()
    for column in actions.flatten().flatten().columns:
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            for text in pc.unique(column.drop_null()).to_pylist():
                yield f'"{text}"'
