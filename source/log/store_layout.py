"""Where a store keeps its log: directories by broker.conf, names and sizes of mapped files, and hints for wrong paths.

A broker makes every file of a kind in the set size, and names each by the byte where it begins. If all of them have
another size, the settings are another broker's, and following them would damage sound files. If one file has another
size, that file is damaged. If a kind has few files, their names and their last bytes decide (``other_size``).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from stat import S_ISDIR

from reput.source.errors import OptionError, StoreError, who_refuses
from reput.source.printable import printable
from reput.source.record import message_format as fmt

# ----------------------------------------------------------------------------------------------------------------------
# The names of mapped files, of the log and of queues alike: 20 digits, the offset of the file's first byte.

FILE_NAME_DIGITS = 20


def file_name(offset: int) -> str:
    """The name of the file whose first byte is byte `offset` of its row of files (``UtilAll#offset2FileName``)."""
    return f"{offset:0{FILE_NAME_DIGITS}d}"


def is_file_name(name: str) -> bool:
    """Whether `name` is a mapped file's: 20 ASCII digits."""
    return len(name) == FILE_NAME_DIGITS and name.isdecimal() and name.isascii()


# ----------------------------------------------------------------------------------------------------------------------
# The directories of a store's log, by broker.conf and by the store itself (``MessageStoreConfig``).

COMMIT_LOG = "commitlog"
CONSUME_QUEUE = "consumequeue"
#: With ``useSeparateStorePathForRocksdbCQ`` RocksDB's queues are here, else among the topics' folders.
ROCKSDB_QUEUES = "consumequeue_rocksdb"
#: Brokers of 5.4.0 and later make this RocksDB database; if they are set to, it has the index, timers, transactions.
MORE_IN_ROCKSDB = "rocksdbstore"
MULTI_PATH_SPLITTER = ","
_DLEDGER = "dledger-"
_DLEDGER_DATA = "data"
# `String#trim` removes these, and none of Unicode's other blanks; a blank after a comma stays, as in
# ``MultiPathMappedFileQueue``.
JAVA_BLANKS = "".join(map(chr, range(0x21)))


def commit_log_paths(
    store: Path, broker: Mapping[str, str], directory: Path, setting: str = "storePathCommitLog"
) -> tuple[Path, ...]:
    """The directories that `setting` names for a commitlog, by the settings `broker` of the broker.conf in `directory`.

    Directories below the broker's root are returned as directories below `store`.
    """
    root = broker.get("storePathRootDir", "").rstrip("/")
    listed = [broker.get(setting, "")]
    if MULTI_PATH_SPLITTER in listed[0]:  # a broker reads read-only directories only if it has several others
        several = (listed[0], broker.get("readOnlyCommitLogStorePaths", ""))
        listed = [path for text in several for path in text.strip(JAVA_BLANKS).split(MULTI_PATH_SPLITTER)]
    found = []
    for text in filter(None, listed):
        inside = root and text.startswith(root + "/")
        found.append(store / text[len(root) + 1 :] if inside else directory / text)
    return tuple(dict.fromkeys(found)) or (store / COMMIT_LOG,)


def with_dledger(
    plain: tuple[Path, ...], store: Path, broker: Mapping[str, str], own: tuple[Path, ...] = ()
) -> tuple[Path, ...]:
    """The directories of a DLedger commitlog: those of `plain` that hold an older log, then its own.

    Its `own` are ``data`` in `dledger_directory` unless a setting names others (``storePathDLedgerCommitLog``).

    Raises
    ------
    StoreError
        `store` has no such directory.
    OptionError
        It has several, and `broker` does not name one of them.
    """
    own = own or (dledger_directory(store, broker) / _DLEDGER_DATA,)
    return (*(path for path in plain if _has_entries(path)), *own)


def dledger_directory(store: Path, broker: Mapping[str, str]) -> Path:
    """DLedger's own directory, ``dledger-<dLegerSelfId>`` in the store; raises the errors of `with_dledger`."""
    self_id = broker.get("dLegerSelfId")
    named = [store / f"{_DLEDGER}{self_id}"] if self_id else store.glob(f"{_DLEDGER}*")
    found = sorted(path for path in named if path.is_dir())
    if not found:
        raise StoreError(
            f"no DLedger commitlog in {store}: it has no directory {_DLEDGER}{self_id or 'SELFID'}",
            advice="give the store root that holds it, or leave enableDLegerCommitLog off",
            file=store,
        )
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise OptionError(
            f"{store} holds {names}: give the --broker-conf whose dLegerSelfId says which of them is meant", file=store
        )
    return found[0]


def check_no_dledger(plain: tuple[Path, ...], store: Path, *, is_stated: bool) -> None:
    """Raise OptionError if the store's log is DLedger's although enableDLegerCommitLog is off.

    With `is_stated`, a setting has switched it off: then an older commitlog beside DLedger's directory is enough.
    """
    others = sorted(path for path in store.glob(f"{_DLEDGER}*") if _has_entries(path / _DLEDGER_DATA))
    has_plain = any(_has_entries(path) for path in plain)
    if not others or (is_stated and has_plain):
        return
    otherwise = ", or set it to false to read the plain commitlog beside it alone" if has_plain else ""
    raise OptionError(
        f"{others[0]} holds a DLedger commitlog: set enableDLegerCommitLog=true to read it "
        f"(reput tail --dledger, or the --broker-conf that says so){otherwise}",
        file=others[0],
    )


def is_dledger_log(directory: Path) -> bool:
    """Whether a directory has the name of a DLedger log: ``dledger-SELFID/data``."""
    return directory.name == _DLEDGER_DATA and directory.parent.name.startswith(_DLEDGER)


def rocksdb_queues(store: Path) -> Path | None:
    """The directory with the RocksDB database of a store's queues (``RocksDBConsumeQueueStore``), or None."""
    for queues in (store / CONSUME_QUEUE, store / ROCKSDB_QUEUES):
        if (queues / "CURRENT").is_file() and any(queues.glob("MANIFEST-*")):
            return queues
    return None


def has_queue_files(store: Path) -> bool:
    """Whether the store has files of ConsumeQueues."""
    return any(is_file_name(path.name) for path in (store / CONSUME_QUEUE).glob("*/*/*"))


def _has_entries(directory: Path) -> bool:
    return directory.is_dir() and any(directory.iterdir())


# ----------------------------------------------------------------------------------------------------------------------
# The directory that holds a commitlog: the one that was given, one in it, or a hint what to give instead.

# A directory of the file system, at the root of each disk.
_FILE_SYSTEMS_OWN = "lost+found"
_MISSING = "the directory does not exist"
_LOOKED_AT_MAX = 1000
_NAMED_MAX = 3


def given_commit_logs(paths: Sequence[Path], *, dledger: bool) -> tuple[Path, ...]:
    """The directories of one commitlog; each of `paths` is one, or a store root that holds it.

    An empty directory counts only by its name, or if another one has files: a new broker's has none yet.

    Raises
    ------
    StoreError
        A path is not one of these; the message says what to give instead.
    OptionError
        A path is the root of a DLedger store, and `dledger` is off.
    """
    found = [directory for path in paths for directory in _commit_logs_of(path, dledger=dledger)]
    if not any(_has_segments(path) for path in found):
        for path in found:
            if not (path.name == COMMIT_LOG or is_dledger_log(path)):
                raise no_commit_log(path)
    return tuple(dict.fromkeys(found))


def _commit_logs_of(path: Path, *, dledger: bool) -> tuple[Path, ...]:
    plain = path / COMMIT_LOG
    if _has_segments(path):
        return (path,)
    if dledger and any(is_dledger_log(below / "data") for below in _directories_in(path)):
        return with_dledger((plain,), path, {})
    check_no_dledger((plain,), path, is_stated=False)
    if _is_directory(plain):
        return (plain,)
    if not _is_directory(path):
        raise no_commit_log(path)
    check_is_commit_log(path)
    return (path,)


def check_store(store: Path) -> None:
    """Raise StoreError if `store` is not a directory or cannot be entered; the message says what to give instead."""
    if names_backup(store):
        raise StoreError(
            f"{as_given(store)} is a backup, and this needs a store",
            advice=f"'reput restore --from {as_given(backup_of(store))} --to DIR' makes one of it",
            file=store,
        )
    barred = who_refuses(str(store / COMMIT_LOG))
    if barred is not None:
        words, advice = barred
        raise StoreError(f"cannot read the store {store}: {words}", advice=advice, file=store)
    if not _is_directory(store):
        raise StoreError(f"no store at {store}: {_state(store)}", advice=_instead(store), file=store)


# ----------------------------------------------------------------------------------------------------------------------
# A backup in place of a store or a log: its directory, its place on S3, or one of its restore points.

#: The directory of a backup that has its restore points.
POINTS = "points"
_S3 = ("s3:", "s3a:")


def names_backup(path: Path) -> bool:
    """Whether a path names a backup, or a restore point in one; every path on S3 counts as one."""
    return is_on_s3(path) or (_is_directory(backup_of(path) / POINTS) and not _is_directory(path / COMMIT_LOG))


def backup_of(path: Path) -> Path:
    """The backup that a path names, by itself or by the file of a restore point."""
    return path.parent.parent if path.parent.name == POINTS else path


def as_given(path: Path) -> str:
    """The text of a path; restores the second slash of ``s3://``, which a path loses."""
    return str(path).replace(":/", "://", 1) if is_on_s3(path) else str(path)


def is_on_s3(path: Path) -> bool:
    """Whether a path was given as a place on S3."""
    return path.parts[:1] != () and path.parts[0] in _S3


def no_commit_log(path: Path) -> StoreError:
    """The error for a `path` without a commitlog; it names the store root to give instead, if one is near."""
    return StoreError(f"no commitlog at {path}: {_state(path)}", advice=_instead(path), file=path)


def check_is_commit_log(path: Path) -> None:
    """Raise StoreError for a directory that has files but no segment.

    This lists the directory itself, once: a broker may have made its first segment since the caller looked.
    """
    names = list(_names_in(path))
    if names and not any(map(is_file_name, names)):
        raise no_commit_log(path)


def _state(path: Path) -> str:
    try:
        status = path.stat()
    except FileNotFoundError:
        return f"it is a link to {path.readlink()}, which does not exist" if path.is_symlink() else _MISSING
    except NotADirectoryError:
        return _MISSING
    except OSError as error:
        return f"it cannot be looked at ({error.strerror})"
    if not S_ISDIR(status.st_mode):
        return "it is not a directory"
    if (barred := who_refuses(str(path / COMMIT_LOG)) or who_refuses(str(path))) is not None:
        return barred[0]
    names = list(islice(_names_in(path), _NAMED_MAX + 1))
    if not names:
        return "the directory is empty"
    shown = ", ".join(map(printable, names[:_NAMED_MAX])) + (", ..." if len(names) > _NAMED_MAX else "")
    return f"the directory holds {shown}, and no file of a commitlog (a name of {FILE_NAME_DIGITS} digits)"


def _instead(path: Path) -> str:
    found = next((near for near in _near(path) if near != path and _has_segments(near)), None)
    if names_backup(path):
        return f"it is a backup: 'reput restore --from {as_given(path)} --to DIR' makes a store of it"
    if found is None:
        return "give the store root that holds commitlog/"
    if is_dledger_log(found):
        return f"{found} is a DLedger commitlog, in the store root {found.parent.parent}"
    if found.name != COMMIT_LOG:
        return f"{found} holds one, which a broker.conf with storePathCommitLog={found} would name"
    return f"{found} is one, in the store root {found.parent}"


def _near(path: Path) -> Iterator[Path]:
    """Directories that the user may have meant, the likeliest first."""
    root = path.parent if path.name == COMMIT_LOG else path
    yield root / "data"
    for directory in (root, root.parent, root.parent.parent):
        yield from (directory / COMMIT_LOG, directory)
    for below in (root, path):
        for child in _directories_in(below):
            yield from (child / COMMIT_LOG, child / "data")


def _has_segments(path: Path) -> bool:
    try:
        with os.scandir(path) as entries:
            return any(is_file_name(entry.name) for entry in islice(entries, _LOOKED_AT_MAX))
    except OSError:
        return False


def _names_in(path: Path) -> Iterator[str]:
    """The names in a directory, sorted; of a large one only some."""
    try:
        with os.scandir(path) as entries:
            yield from sorted({entry.name for entry in islice(entries, _LOOKED_AT_MAX)} - {_FILE_SYSTEMS_OWN})
    except OSError:
        return


def _directories_in(path: Path) -> Iterator[Path]:
    for name in _names_in(path):
        if _is_directory(path / name):
            yield path / name


def _is_directory(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a name that is too long, for one
        return False


@dataclass(frozen=True, order=True)
class SizedFile:
    """A file of a row: the byte of the row where it begins, its size in bytes, its path."""

    begin: int
    size: int
    path: str


# One row of files, in order.
Row = Sequence[SizedFile]


def row_of(directories: Iterable[Path]) -> list[SizedFile]:
    """Return the mapped files in directories that hold one row; a directory that cannot be listed has none."""
    found = []
    for directory in directories:
        with suppress(OSError), os.scandir(directory) as entries:
            for entry in entries:
                if is_file_name(entry.name) and entry.is_file(follow_symlinks=False):
                    with suppress(FileNotFoundError):  # it expired since it was listed
                        found.append(SizedFile(int(entry.name), entry.stat().st_size, entry.path))
    return sorted(found)


def last_bytes(file: SizedFile, size: int) -> bytes:
    """Return the last `size` bytes of a file; none if it cannot be read."""
    try:
        with Path(file.path).open("rb") as opened:
            return os.pread(opened.fileno(), size, max(0, file.size - size))
    except OSError:
        return b""


def log_ends_full(row: Row) -> bool:
    """Return whether a row of segments is filled up to its last byte by something other than the blank."""
    last = row[-1]
    end = last_bytes(last, fmt.BLANK_SIZE)
    blank = fmt.BLANK_SIZE.to_bytes(4, "big") + fmt.BLANK_MAGIC_CODE.to_bytes(4, "big", signed=True)
    return bool(end.strip(b"\0")) and end != blank


@dataclass(frozen=True)
class OtherSize:
    """The size that files have instead of the set size: `count` of `total` files have `size` bytes."""

    size: int
    count: int
    total: int

    def words(self, what: str) -> str:
        """The text that says which files have which size, for `what` such as ``queue file``."""
        if self.total == 1:
            return f"the only {what} has {self.size} bytes"
        whose = f"all {self.total}" if self.count == self.total else f"{self.count} of {self.total}"
        return f"{whose} {what}s have {self.size} bytes"


def other_size(
    rows: Sequence[Row],
    wanted: int,
    *,
    is_stated: bool,
    unit: int = 1,
    ends_full: Callable[[Row], bool] | None = None,
) -> OtherSize | None:
    """Return the size that the files have if it is not the set size; None if they are damaged or none is wrong.

    Parameters
    ----------
    rows
        All rows of one kind, each in order; empty files do not count.
    wanted
        The size in bytes that the settings say.
    is_stated
        Whether the user gave that size. The default alone does not show that it is this store's.
    unit
        A file's size is a multiple of this.
    ends_full
        Whether a row is filled up to its last byte, as a row that was cut is.
    """
    rows = [row for row in rows if row]
    sizes = Counter(file.size for row in rows for file in row if file.size)
    if not sizes:
        return None
    most, count = max(sizes.items(), key=lambda each: (each[1], each[0]))
    found = OtherSize(most, count, sum(sizes.values()))
    if most == wanted or sizes[wanted] >= count or most % unit:
        return None
    begins = [[file.begin for file in row] for row in rows]
    if any(begin % most for row in begins for begin in row):
        return None
    steps = [after - begin for row in begins for begin, after in pairwise(row)]
    if any(begin % wanted for row in begins for begin in row) or any(step < wanted for step in steps):
        return found  # no broker with the set size gives files these names
    if sizes[wanted] or (steps and most < wanted):
        return None  # the files begin where those of the set size begin
    if most > wanted:
        return found  # a file may be cut, and never grows
    if ends_full is not None and all(ends_full(row) for row in rows):
        return None
    return found if count > 1 or not is_stated else None
