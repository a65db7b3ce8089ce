"""Replace an output's files by those that a rebuild made: all of them, even if the process is stopped.

A rebuild works in a directory inside the output (``REBUILD_ROOT``), laid out like an output. The swap begins with a
durable note of what goes where. Before the note the output is untouched. After it the swap is only ever finished, by
the next command that takes the output. Files of the output are removed without a replacement only if the note allows
it. Files that reput cannot name are never moved (``own_files``): a folder that holds one is swapped child by child.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.file_system import has_files
from reput.sinks.files.own_files import DERIVED, check_queues_only, foreign_paths, foreign_to_queues, paths_to_replace
from reput.sinks.files.store_path import REBUILD_OLD, REBUILD_ROOT, REBUILD_SWAP, RelativePath
from reput.source.errors import FIRST_FORMAT, GIVE_YES, OutputError, SinkError, UnexplainedError, check_format
from reput.source.printable import printable

# From a path below the rebuild's root to one below the output's root; a noted move also says whether the first exists.
Move = tuple[RelativePath, RelativePath]
NotedMove = tuple[RelativePath, RelativePath, bool]
# The note's version, named from the second one on: with a database, which earlier releases would put back.
_VERSION = 2
_NAMED_MAX = 3

_log = logging.getLogger(__name__)


def swap(files: DurableFiles, moves: Sequence[Move], *, may_empty: bool = False, database: str | None = None) -> None:
    """Replace each target below the output `files` by the rebuild's file or directory for it, or remove it.

    The rebuild is durable as a whole, and no other process has a file of either side open. `may_empty` allows removing
    queues and index without a replacement. `database` is a folder that holds or gets a RocksDB database: it is replaced
    as a whole.

    Raises
    ------
    UnexplainedError
        The rebuild made no file, the output has some, and `may_empty` is not set.
    OutputError
        Something that reput does not replace is in the place of what was made; nothing was changed.
    """
    noted = check_swap(files, moves, may_empty=may_empty, database=database)
    if [target for _, target, _ in noted] != [target for _, target in moves]:
        _tell_what_stays(files, moves)
    note = {"may_empty": may_empty, "moves": noted}
    if database is not None:
        note |= {"version": _VERSION, "database": database}
    files.replace(*REBUILD_SWAP, data=json.dumps(note).encode())
    finish_swap(files)


def check_swap(
    files: DurableFiles, moves: Sequence[Move], *, may_empty: bool, database: str | None = None
) -> list[NotedMove]:
    """The moves as `swap` records them; raises what `swap` raises."""
    if database in DERIVED:
        check_queues_only(files.root, database)
    rebuild = files.root.joinpath(*REBUILD_ROOT)
    noted = []
    for made, target in moves:
        paths: Sequence[RelativePath] = [target]
        if target[0] in DERIVED and target != (database,):
            paths = paths_to_replace(files.root, rebuild.joinpath(*made), target)
        for path in paths:
            part = (*made, *path[len(target) :])
            noted.append((part, path, rebuild.joinpath(*part).exists()))
    _check_not_emptied(files, noted, may_empty=may_empty)
    _check_one_file_system(files, noted)
    return noted


def finish_swap(files: DurableFiles) -> bool:
    """Finish a swap that was begun, and remove the rebuild; return False if there is none.

    Raises
    ------
    SinkError
        The note cannot be read, or the files that it puts in place are gone.
    UnexplainedError
        As in `swap`, for a note older than this rule.
    LaterFormatError
        A later release wrote the note.
    """
    note = files.root.joinpath(*REBUILD_SWAP)
    if not note.exists():
        return False
    try:
        noted = json.loads(note.read_bytes())
        if isinstance(noted, dict):  # a list is older than any version
            check_format(note, noted.get("version", FIRST_FORMAT), _VERSION, file=note)
        may_empty, listed = (False, noted) if isinstance(noted, list) else (bool(noted["may_empty"]), noted["moves"])
        database = noted.get("database") if isinstance(noted, dict) else None
        moves = [(tuple(made), tuple(target), bool(is_new)) for made, target, is_new in listed]
    except (ValueError, TypeError, KeyError) as error:
        raise SinkError(
            f"{note} is not a note of a swap ({error!r})",
            advice=f"remove {note.parent} and rebuild the output as a whole",
            file=note,
        ) from error
    _check_not_emptied(files, moves, may_empty=may_empty)
    for made, target, is_new in moves:
        _move(files, (*REBUILD_ROOT, *made), target, is_new=is_new)
    _put_back(files, {target for _, target, _ in moves}, database)
    files.remove_tree(*REBUILD_OLD)  # while the note exists, so that the next command finishes this after a crash
    files.remove(*REBUILD_SWAP)
    files.sync()
    files.remove_tree(*REBUILD_ROOT)
    return True


def _check_not_emptied(files: DurableFiles, moves: Sequence[NotedMove], *, may_empty: bool) -> None:
    derived = [move for move in moves if move[1][0] in DERIVED]
    if may_empty or any(is_new for _, _, is_new in derived):
        return
    for _, target, _ in derived:
        path = files.root.joinpath(*target)
        if path.is_file() or has_files(path):
            shown = "/".join(target) + ("/" if path.is_dir() else "")
            raise UnexplainedError(
                f"the rebuild found no message, and would leave nothing of {shown} in {files.root}",
                advice=f"nothing was changed: {GIVE_YES}",
                file=files.root,
            )


def _check_one_file_system(files: DurableFiles, moves: Sequence[NotedMove]) -> None:
    """Raise OutputError if a rename cannot put the new files in place."""
    made = files.root.joinpath(*REBUILD_ROOT)
    for _, target, is_new in moves:
        place = files.root.joinpath(*target).parent
        if is_new and place.is_dir() and place.stat().st_dev != made.stat().st_dev:
            raise OutputError(
                f"{made} and {place} are on different file systems: what was made cannot be put in place",
                advice="nothing was changed: give another --output",
                file=place,
            )


def _tell_what_stays(files: DurableFiles, moves: Sequence[Move]) -> None:
    targets = [target for _, target in moves if target[0] in DERIVED]
    kept = ["/".join(path) for target in targets for path in foreign_paths(files.root, target)]
    if kept:
        more = f" and {len(kept) - _NAMED_MAX} more" if len(kept) > _NAMED_MAX else ""
        names = ", ".join(map(printable, kept[:_NAMED_MAX]))
        _log.warning("%s: left as it is what reput did not make: %s%s", files.root, names, more)


def _put_back(files: DurableFiles, replaced: set[RelativePath], database: str | None) -> None:
    """Put back files that reput cannot name: an earlier release put them away, or another program after the note.

    The paths of the note are in `replaced`. All queues in the folder `database` were replaced, too.
    """
    old = files.root.joinpath(*REBUILD_OLD)
    for folder in DERIVED:
        found = foreign_to_queues(old, folder) if folder == database else foreign_paths(old, (folder,))
        for path in [path for path in found if path not in replaced]:
            if os.path.lexists(files.root.joinpath(*path)):
                raise SinkError(
                    f"{old.joinpath(*path)} was put away by a rebuild, is not reput's, and its place is taken",
                    advice="move it somewhere else and run the command again",
                    file=old.joinpath(*path),
                )
            files.move((*REBUILD_OLD, *path), path)


def _move(files: DurableFiles, made: RelativePath, target: RelativePath, *, is_new: bool) -> None:
    if is_new and not files.root.joinpath(*made).exists():
        if not files.root.joinpath(*target).exists():
            raise SinkError(
                f"a rebuild was being put in place, and {files.root.joinpath(*made)} is gone",
                advice=f"remove {files.root.joinpath(*REBUILD_ROOT)} and rebuild the output as a whole",
                file=files.root.joinpath(*made),
            )
        return  # it is in place already
    if files.root.joinpath(*target).exists():
        files.move(target, (*REBUILD_OLD, *target))
    if is_new:
        files.move(made, target)
