"""What of a table's log cannot be read, and what can be done about it; looked for once something else has failed.

A checkpoint only repeats what commits say, and `_last_checkpoint` only says which is the newest. Where all commits are
there, a damaged one is set aside, and another is written.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from reput.sinks.table.history import commit_file
from reput.sinks.table.storage import LOG, TableStorage
from reput.source.errors import OutputError

_HINT = f"{LOG}/_last_checkpoint"
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(\..+)?\.parquet")
# Delta takes files of other names for none of its own.
_ASIDE = "_damaged-"
_ELSE = "or make the table again at another path with 'reput rebuild --table'"


@dataclass(frozen=True)
class LogDamage:
    """A file of a log that is damaged or missing.

    Attributes
    ----------
    name
        Its name as ``TableStorage`` has it.
    found
        What was found.
    advice
        What to do.
    to_set_aside
        The files without which the log can be read; none if commits are missing.
    """

    name: str
    found: str
    advice: str
    to_set_aside: tuple[str, ...] = ()

    def error(self, storage: TableStorage) -> OutputError:
        """It as an error."""
        path = storage.location / self.name
        return OutputError(f"{path}: {self.found}", advice=self.advice, file=path)

    def repair(self, storage: TableStorage) -> None:
        """Give the damaged files names that no reader of the table looks at; raises OSError or OutputError."""
        for name in self.to_set_aside:
            storage.put(f"{LOG}/{_ASIDE}{name.rpartition('/')[2]}", storage.read(name), durable=True)
            storage.remove([name], durable=True)


def log_damage(storage: TableStorage) -> LogDamage | None:
    """The damage that keeps the table's log from being read; None if there is none, or no log.

    Raises
    ------
    OSError
        The log cannot be listed.
    """
    names = sorted(file.name.rpartition("/")[2] for file in storage.files(LOG))
    commits = [int(found[1]) for name in names if (found := _COMMIT.fullmatch(name))]
    checkpoints = {name: int(found[1]) for name in names if (found := _CHECKPOINT.fullmatch(name))}
    bad = {name: cause for name in checkpoints if (cause := _problem_of_checkpoint(storage, f"{LOG}/{name}"))}
    base = max((version for name, version in checkpoints.items() if name not in bad), default=-1)
    damaged = _damaged_commit(storage, commits, base)
    if damaged is not None:
        first = next((name for name, version in checkpoints.items() if name in bad and version > base), None)
        return LogDamage(f"{LOG}/{first}", bad[first], f"put it back from a backup, {_ELSE}") if first else damaged
    later = [f"{LOG}/{name}" for name, version in checkpoints.items() if name in bad and version > base]
    aside = tuple([*later, _HINT] if later or _hint_is_wrong(storage, base) else ())
    if not aside:
        return None
    problem = bad[later[0].rpartition("/")[2]] if later else "it names a checkpoint that is not there"
    if storage.status(_HINT) is None:
        aside = aside[:-1]
    advice = f"all commits are there: 'reput table repair --table {storage.location}' writes another checkpoint by them"
    return LogDamage(aside[0], problem, advice, aside)


def raise_log_damage(storage: TableStorage, error: BaseException) -> None:
    """Raise OutputError from `error` if the table's log is damaged, or else return."""
    damage = None
    with suppress(OSError, OutputError):
        damage = log_damage(storage)
    if damage is not None:
        raise damage.error(storage) from error


def _problem_of_checkpoint(storage: TableStorage, name: str) -> str | None:
    try:
        with storage.parquet(name) as file:
            file.read()
    except (OSError, pa.ArrowException) as error:
        status = storage.status(name)
        size = f"{status.size_bytes} bytes, " if status else ""
        return f"a checkpoint that cannot be read ({size}{type(error).__name__})"
    return None


def _hint_is_wrong(storage: TableStorage, base: int) -> bool:
    """Whether the hint names another version than that of the newest checkpoint; one that is no JSON is not heeded."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        return int(json.loads(storage.read(_HINT))["version"]) > base
    return False


def _damaged_commit(storage: TableStorage, commits: list[int], base: int) -> LogDamage | None:
    """The first commit behind version `base` that is missing or is not whole."""
    later = [version for version in commits if version > base]
    if not later:
        return None
    for expected, version in enumerate(later, base + 1):
        if version != expected:
            found = f"this commit is missing; the next one is version {version}"
            return LogDamage(commit_file(expected), found, f"put it back from a backup, {_ELSE}")
        if (problem := _problem_of_commit(storage, version)) is not None:
            advice = f"put it back from a backup, {_ELSE}"
            if version == later[-1]:
                advice = (
                    "put it back from a backup; or, with every writer stopped, move it out of the directory: the table "
                    f"is version {version - 1} then, and reput brings its rows again from the log"
                )
            return LogDamage(commit_file(version), problem, advice)
    return None


def _problem_of_commit(storage: TableStorage, version: int) -> str | None:
    content = storage.read(commit_file(version))
    number = 0
    for number, line in enumerate(content.splitlines(), 1):
        try:
            is_action = isinstance(json.loads(line), dict) if line.strip() else True
        except ValueError:
            is_action = False
        if not is_action:
            return (
                f"a commit that is torn or damaged: line {number} of its {len(content)} bytes is not an action in JSON"
            )
    return None if number else f"an empty commit of {len(content)} bytes"
