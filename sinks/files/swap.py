"""Replace an output's files by those that a rebuild made: all of them, even if the process is stopped.

A rebuild works in a directory inside the output (``REBUILD_ROOT``), laid out like an output. The swap begins with a
durable note of what goes where. Before the note the output is untouched; after it the swap is only ever finished, by
the next command that takes the output. Files of the output are replaced by nothing only where the note allows it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from reput.sinks.files.directory import has_files
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.store_path import (
    BATCH_CONSUME_QUEUE,
    CONSUME_QUEUE,
    INDEX,
    REBUILD_OLD,
    REBUILD_ROOT,
    REBUILD_SWAP,
    RelativePath,
)
from reput.source.errors import GIVE_YES, SinkError, UnexplainedError
from reput.source.format_version import FIRST, check_format

# From below the rebuild's root to below the output's root; a noted move also tells whether anything was made.
Move = tuple[RelativePath, RelativePath]
NotedMove = tuple[RelativePath, RelativePath, bool]
# Of the note, which names it from the second one on.
_VERSION = 1
_DERIVED = (CONSUME_QUEUE, BATCH_CONSUME_QUEUE, INDEX)


def swap(files: DurableFiles, moves: Sequence[Move], *, may_empty: bool = False) -> None:
    """Replace each target below the output `files` by what the rebuild made for it, or by nothing.

    The rebuild is durable as a whole, and nobody else has a file of either side open. `may_empty` lets queues and index
    be replaced by nothing.

    Raises
    ------
    UnexplainedError
        The rebuild made no file, the output has some, and `may_empty` is not set.
    """
    noted = check_swap(files, moves, may_empty=may_empty)
    files.replace(*REBUILD_SWAP, data=json.dumps({"may_empty": may_empty, "moves": noted}).encode())
    finish_swap(files)


def check_swap(files: DurableFiles, moves: Sequence[Move], *, may_empty: bool) -> list[NotedMove]:
    """The moves as `swap` records them; raises what `swap` raises."""
    noted = [(made, target, files.root.joinpath(*REBUILD_ROOT, *made).exists()) for made, target in moves]
    _check_not_emptied(files, noted, may_empty=may_empty)
    return noted


def finish_swap(files: DurableFiles) -> bool:
    """Finish a swap that was begun, and remove the rebuild; False if there is none.

    Raises
    ------
    SinkError
        The note cannot be read, or what it puts in place is gone.
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
            check_format(note, noted.get("version", FIRST), _VERSION, file=note)
        may_empty, listed = (False, noted) if isinstance(noted, list) else (bool(noted["may_empty"]), noted["moves"])
        moves = [(tuple(made), tuple(target), bool(is_new)) for made, target, is_new in listed]
    except (ValueError, TypeError, KeyError) as error:
        raise SinkError(
            f"{note} is no note of a swap ({error!r})",
            advice=f"remove {note.parent} and rebuild the output as a whole",
            file=note,
        ) from error
    _check_not_emptied(files, moves, may_empty=may_empty)
    for made, target, is_new in moves:
        _move(files, (*REBUILD_ROOT, *made), target, is_new=is_new)
    files.remove_tree(*REBUILD_OLD)  # the note is still there, so that a crash leaves nothing large behind
    files.remove(*REBUILD_SWAP)
    files.sync()
    files.remove_tree(*REBUILD_ROOT)
    return True


def _check_not_emptied(files: DurableFiles, moves: Sequence[NotedMove], *, may_empty: bool) -> None:
    derived = [move for move in moves if move[1][0] in _DERIVED]
    if may_empty or any(is_new for _, _, is_new in derived):
        return
    standing = [target for _, target, _ in derived if has_files(files.root.joinpath(*target))]
    if standing:
        raise UnexplainedError(
            f"the rebuild found no message, and would leave nothing of {'/'.join(standing[0])}/ in {files.root}",
            advice=f"nothing was changed: {GIVE_YES}",
            file=files.root,
        )


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
