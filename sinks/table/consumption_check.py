"""`reput verify` of the ledger of consumption: its moves compared with each other, because the log has none of them.

Each move of a group in a queue must begin where the previous one ended, and be later. Then none is missing in between,
and none is repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reput.sinks.findings import FIRST_MAX, Difference, Findings
from reput.sinks.table.columns import CONSUMPTION_SCHEMA, FIRST_SEEN, GONE, PROGRESS, RESET_BACK
from reput.sinks.table.consumption import KEY, by_queue, consumption_transaction, of_broker, read_moves
from reput.sinks.table.data_file import DataFile, bad_files
from reput.sinks.table.delta_table import is_table
from reput.sinks.table.location import TableLocation, consumption_table_path
from reput.sinks.table.log import UNREADABLE, Snapshot, read_snapshot
from reput.source.arrays import Bools, Int64s
from reput.source.times import milliseconds_of, time_of, utc_text

# The number for null.
_NONE: Final = -(2**63)
# The last time of a run.
_UNTIL: Final = "until"
# At most this many queues whose files overlap are read again.
_QUEUES_MAX: Final = 1000


def check_consumption(table: TableLocation, broker: str, findings: Findings) -> dict[str, int] | None:
    """Check a broker's rows of the ledger beside `table`; return what was compared, None if there are no rows.

    Memory: the rows of one file, and a row for each queue of a group in each file.

    Raises
    ------
    OutputError
        The ledger's log, or the size of a file, cannot be read.
    """
    path = consumption_table_path(table).resolve()
    snapshot = read_snapshot(path) if is_table(path) else None
    files = [] if snapshot is None else [*snapshot.files_of(broker)]
    if snapshot is None or not files:
        return None
    bad = {file.path: problem for file, problem in bad_files(snapshot.storage, files)}
    runs, moves = [], 0
    for file in files:
        if file.path not in bad:
            try:
                rows = _moves_of(snapshot, file, broker)
            except UNREADABLE as error:
                bad[file.path] = f"cannot be read: {error}"
                continue
            _check_each(rows, findings)
            runs.append(_runs_of(rows))
            moves += rows.num_rows
    for name, problem in bad.items():
        findings.differ(Difference("file_unreadable", f"{path / name} {problem}", str(path / name)))
    if bad:
        findings.tell("moves are not compared with those before them, because a file cannot be read")
    else:
        joined = _joined(pa.concat_tables(runs), lambda: (_moves_of(snapshot, file, broker) for file in files))
        _check_runs(joined, findings)
        _check_transaction(joined, snapshot.transactions.get(consumption_transaction(broker)), findings)
    return {"moves": moves}


def _moves_of(snapshot: Snapshot, file: DataFile, broker: str) -> pa.Table:
    return of_broker(read_moves(snapshot.storage, file), file, broker)


def _check_each(moves: pa.Table, findings: Findings) -> None:
    """Check that a move's kind is that of its offsets, and that its interval does not end before it begins."""
    before, after = _numbers(moves, "offset_before"), _numbers(moves, "offset_after")
    found = moves["move"].combine_chunks().dictionary_encode()
    codes = {name: code for code, name in enumerate(found.dictionary.to_pylist())}
    kinds = [codes.get(kind, -1) for kind in (FIRST_SEEN, GONE, PROGRESS, RESET_BACK)]
    wanted = np.select([before == _NONE, after == _NONE, after > before], kinds[:3], kinds[3])
    is_wrong = (before == after) | (wanted != found.indices.to_numpy())
    _differ(moves, is_wrong, "move_kind", _kind_is_wrong, findings)
    is_wrong = _numbers(moves, "seen_before") > _numbers(moves, "seen_after")
    _differ(moves, is_wrong, "move_times", _times_are_wrong, findings)


def _runs_of(moves: pa.Table) -> pa.Table:
    """Consecutive moves of a queue as one row, from where the first begins to where the last ends."""
    order, queues = by_queue(moves)
    moves = moves.take(order)
    joins = (np.diff(queues) == 0) & (_numbers(moves, "offset_before")[1:] == _numbers(moves, "offset_after")[:-1])
    joins &= np.diff(_numbers(moves, "seen_after")) > 0
    begins = np.flatnonzero(np.append(True, ~joins)[: len(order)])
    last = moves.take(np.append(begins[1:], len(order))[: len(begins)] - 1)
    runs = moves.take(begins).append_column(_UNTIL, last["seen_after"])
    return runs.set_column(runs.column_names.index("offset_after"), "offset_after", last["offset_after"])


def _joined(runs: pa.Table, moves: Callable[[], Iterable[pa.Table]]) -> pa.Table:
    """The runs of all files, by queue and time; `moves` reads the moves again for queues in which runs overlap."""
    order, queues = by_queue(runs)
    runs = runs.take(order)
    overlaps = np.append(False, _overlap(runs, queues))[: len(order)]
    if not overlaps.any():
        return runs
    some = runs.filter(pa.array(overlaps)).slice(0, _QUEUES_MAX)
    names = {name: some[name].cast(CONSUMPTION_SCHEMA.field(name).type).combine_chunks() for name in KEY}

    def are_meant(rows: pa.Table) -> pa.Array:
        masks = [pc.is_in(rows[name].cast(values.type), values) for name, values in names.items()]
        return pc.and_(masks[0], pc.and_(masks[1], masks[2]))

    again = _runs_of(pa.concat_tables([rows.filter(are_meant(rows)) for rows in moves()]))
    all_runs = pa.concat_tables([runs.filter(pc.invert(are_meant(runs))), again])
    return all_runs.take(by_queue(all_runs)[0])


def _overlap(runs: pa.Table, queues: Int64s) -> Bools:
    """For each run but the first, whether it begins before or when the previous run of the same queue ends."""
    found: Bools = (np.diff(queues) == 0) & (_numbers(runs, "seen_after")[1:] <= _numbers(runs, _UNTIL)[:-1])
    return found


def _check_runs(runs: pa.Table, findings: Findings) -> None:
    """Check that each run begins where the previous one ended, and that a queue's first begins with a first sight."""
    queues = by_queue(runs)[1]
    is_next = np.append(False, np.diff(queues) == 0)[: len(queues)]
    overlaps = np.append(False, _overlap(runs, queues))[: len(queues)]
    begins, before = _numbers(runs, "offset_before"), np.append(_NONE, _numbers(runs, "offset_after"))[: len(queues)]
    is_missing = ~overlaps & (begins != np.where(is_next, before, _NONE))
    _differ(runs, overlaps, "move_twice", _overlapping, findings)
    reached = iter(before[is_missing].tolist())
    continues = iter(is_next[is_missing].tolist())
    _differ(runs, is_missing, "move_missing", lambda row: _missing(row, next(continues), next(reached)), findings)


def _check_transaction(runs: pa.Table, version: int | None, findings: Findings) -> None:
    """Check that no move is later than the broker's last transaction, from which a tail continues."""
    latest = pc.max(runs[_UNTIL]).as_py()
    if latest is not None and (version is None or milliseconds_of(latest) > version):
        said = "says nothing" if version is None else f"is {version}, {utc_text(time_of(version))}"
        text = f"the last move is of {utc_text(latest)}, and the broker's last transaction {said}"
        findings.differ(Difference("transaction_behind", text))


def _differ(moves: pa.Table, mask: Bools, kind: str, text: Callable[[dict[str, Any]], str], findings: Findings) -> None:
    """Report the rows of the mask: the first of them in words, and the others by their number."""
    count = int(mask.sum())
    shown = moves.filter(pa.array(mask)).slice(0, FIRST_MAX).to_pylist() if count else []
    for number, row in enumerate(shown, 1):
        where = f"{row['consumer_group']} in {row['topic']}-{row['queue_id']}: {text(row)}"
        findings.differ(Difference(kind, where), 1 if number < len(shown) else count - len(shown) + 1)


def _kind_is_wrong(row: dict[str, Any]) -> str:
    return f"{_move(row)} is called {row['move']}"


def _times_are_wrong(row: dict[str, Any]) -> str:
    return f"{_move(row)} came after {utc_text(row['seen_before'])}"


def _overlapping(row: dict[str, Any]) -> str:
    return f"the move from {_offset(row['offset_before'])} by {utc_text(row['seen_after'])} is repeated, or too late"


def _missing(row: dict[str, Any], has_one_before: bool, reached: int) -> str:
    begins = f"the move by {utc_text(row['seen_after'])} begins at {_offset(row['offset_before'])}"
    if not has_one_before:
        return f"{begins}, and is the first"
    return f"{begins}, and the one before it ends at {_offset(None if reached == _NONE else reached)}"


def _move(row: dict[str, Any]) -> str:
    offsets = f"{_offset(row['offset_before'])} to {_offset(row['offset_after'])}"
    return f"the move from {offsets} by {utc_text(row['seen_after'])}"


def _offset(offset: int | None) -> str:
    return "none" if offset is None else str(offset)


def _numbers(rows: pa.Table, name: str) -> Int64s:
    """Offsets, or times in microseconds; `_NONE` for null."""
    found: Int64s = rows[name].cast(pa.int64()).fill_null(_NONE).to_numpy()
    return found
