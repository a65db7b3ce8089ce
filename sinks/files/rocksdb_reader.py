"""Reads a RocksDB database of the broker's, and writes nothing into it; the broker may run on it."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Final

from reput.source.errors import StoreError

_CURRENT: Final = "CURRENT"
# What RocksDB writes for itself, and what a reader does not need.
_NOT_NEEDED: Final = ("LOG", "LOCK")
# A broker removes files that it has replaced; one that vanished is looked for again in the next list.
_TRIES: Final = 5
_PAUSE_S: Final = 0.1


def is_rocksdb(directory: Path) -> bool:
    """Whether a directory holds a RocksDB database."""
    return (directory / _CURRENT).is_file()


def read_rocksdb(directory: Path, prefix: bytes) -> dict[bytes, bytes]:
    """Return the values of all keys that begin with `prefix`, in the default column family.

    The database is opened read-only in a scratch directory of links to its files, since the library writes a file of
    its own beside them. What a running broker has not written to the system yet is not seen.

    Raises
    ------
    StoreError
        The database cannot be read, or the library that reads it is missing.
    """
    try:
        import rocksdict  # noqa: F401, PLC0415  only a store with such a database needs it
    except ImportError as error:
        raise StoreError(
            f"cannot read the RocksDB database {directory}: {error}",
            advice="install reput with all that it requires: pip install rocksdict",
            file=directory,
        ) from error
    for left in range(_TRIES - 1, -1, -1):
        try:
            return _read(directory, prefix)
        except Exception as error:  # the library has no class of its own for RocksDB's errors
            if not left:
                raise StoreError(
                    f"cannot read the RocksDB database {directory}: {' '.join(str(error).split())[:300]}",
                    advice="restore it from a copy, or start the broker, which recovers it, and stop it again",
                    file=directory,
                ) from error
            time.sleep(_PAUSE_S)
    raise AssertionError


def _read(directory: Path, prefix: bytes) -> dict[bytes, bytes]:
    from rocksdict import AccessType, DBRecoveryMode, Options, Rdict  # noqa: PLC0415  as above

    with tempfile.TemporaryDirectory(prefix="reput-rocksdb-") as name:
        scratch = Path(name)
        for file in directory.resolve().iterdir():
            if file.name.partition(".")[0] not in _NOT_NEEDED:
                (scratch / file.name).symlink_to(file)
        options = Options(raw_mode=True)
        options.set_wal_recovery_mode(DBRecoveryMode.skip_any_corrupted_record())  # as a broker does
        database = Rdict(name, options, access_type=AccessType.read_only())
        try:
            found = {}
            for key, value in database.items(from_key=prefix):
                if not key.startswith(prefix):
                    break
                found[key] = value
            return found
        finally:
            database.close()
