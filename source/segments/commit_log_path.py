"""The directory that holds a commitlog: the one that was given, one in it, or a hint what to give instead."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from stat import S_ISDIR

from reput.source.errors import StoreError
from reput.source.printable import printable
from reput.source.segments.mapped_file_name import FILE_NAME_DIGITS, is_file_name
from reput.source.segments.store_layout import COMMIT_LOG, check_no_dledger, is_dledger_log, with_dledger
from reput.source.system_errors import who_refuses

# A file system's own, at the root of each disk.
_FILE_SYSTEMS_OWN = "lost+found"
_MISSING = "the directory does not exist"
_LOOKED_AT_MAX = 1000
_NAMED_MAX = 3


def given_commit_logs(paths: Sequence[Path], *, dledger: bool) -> tuple[Path, ...]:
    """The directories of one commitlog where each of `paths` is one, or a store root that holds it.

    An empty directory counts only by its name, or if another one has files: a new broker's has none yet.

    Raises
    ------
    StoreError
        A path is neither; the message says what to give instead.
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
    """Raise StoreError where `store` is no directory, or cannot be entered; the message says what to give instead."""
    barred = who_refuses(str(store / COMMIT_LOG))
    if barred is not None:
        words, advice = barred
        raise StoreError(f"cannot read the store {store}: {words}", advice=advice, file=store)
    if not _is_directory(store):
        raise StoreError(f"no store at {store}: {_state(store)}", advice=_instead(store), file=store)


def no_commit_log(path: Path) -> StoreError:
    """The error for a `path` that holds no commitlog; it names the store root to give instead, if one is near."""
    return StoreError(f"no commitlog at {path}: {_state(path)}", advice=_instead(path), file=path)


def check_is_commit_log(path: Path) -> None:
    """Raise StoreError for a directory without segments that holds anything else.

    The directory is listed here, once: a broker may have made its first segment since the caller looked.
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
        return "it is no directory"
    if (barred := who_refuses(str(path / COMMIT_LOG)) or who_refuses(str(path))) is not None:
        return barred[0]
    names = list(islice(_names_in(path), _NAMED_MAX + 1))
    if not names:
        return "the directory is empty"
    shown = ", ".join(map(printable, names[:_NAMED_MAX])) + (", ..." if len(names) > _NAMED_MAX else "")
    return f"the directory holds {shown}, and no file of a commitlog (a name of {FILE_NAME_DIGITS} digits)"


def _instead(path: Path) -> str:
    found = next((near for near in _near(path) if near != path and _has_segments(near)), None)
    if found is None:
        return "give the store root that holds commitlog/"
    if is_dledger_log(found):
        return f"{found} is a DLedger commitlog, in the store root {found.parent.parent}"
    if found.name != COMMIT_LOG:
        return f"{found} holds one, which a broker.conf with storePathCommitLog={found} would name"
    return f"{found} is one, in the store root {found.parent}"


def _near(path: Path) -> Iterator[Path]:
    """Directories that somebody may have meant, the likeliest first."""
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
