"""Put what a rebuild made in the place of what an output has: all of it, whatever stops the process.

A rebuild works in a directory inside the output (``REBUILD_ROOT``), laid out like an output. The swap begins with a
durable note of what goes where; from then on it is only ever finished, by whoever takes the output next. Before, the
output is untouched.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from reput.sinks.durable_file import DurableFiles
from reput.sinks.store_path import REBUILD_OLD, REBUILD_ROOT, REBUILD_SWAP
from reput.source.errors import SinkError

Parts = tuple[str, ...]


def swap(files: DurableFiles, moves: Sequence[tuple[Parts, Parts]]) -> None:
    """Replace what the output `files` has by what the rebuild made, or has not: each move is (made, place).

    The first is below the rebuild's root, the second below the output's. All of the rebuild is durable, and nobody
    else has a file of either open.
    """
    noted = [[made, place, files.root.joinpath(*REBUILD_ROOT, *made).exists()] for made, place in moves]
    files.replace(*REBUILD_SWAP, data=json.dumps(noted).encode())
    finish_swap(files)


def finish_swap(files: DurableFiles) -> bool:
    """Finish a swap that was begun, and remove the rebuild; False when there is none.

    Raises
    ------
    SinkError
        The note of it cannot be read.
    """
    note = files.root.joinpath(*REBUILD_SWAP)
    if not note.exists():
        return False
    try:
        moves = [(tuple(made), tuple(place), bool(is_new)) for made, place, is_new in json.loads(note.read_bytes())]
    except (ValueError, TypeError) as error:
        msg = f"{note} is no note of a swap ({error!r}); remove {note.parent} and rebuild the output as a whole"
        raise SinkError(msg) from error
    for made, place, is_new in moves:
        _move(files, (*REBUILD_ROOT, *made), place, is_new=is_new)
    files.remove_tree(*REBUILD_OLD)  # with the note still there, so that nothing large is left by a crash
    files.remove(*REBUILD_SWAP)
    files.sync()
    files.remove_tree(*REBUILD_ROOT)
    return True


def _move(files: DurableFiles, made: Parts, place: Parts, *, is_new: bool) -> None:
    if is_new and not files.root.joinpath(*made).exists():
        return  # it is in place already
    if files.root.joinpath(*place).exists():
        files.move(place, (*REBUILD_OLD, *place))
    if is_new:
        files.move(made, place)
