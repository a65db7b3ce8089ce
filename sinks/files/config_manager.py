"""Files below the broker's ``config/`` and its RocksDB databases, as a starting broker reads them."""

from __future__ import annotations

import json
import logging
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from reput.sinks.files.durable_file import DurableFiles
from reput.source.errors import StoreError
from reput.source.system import pip_install

# ----------------------------------------------------------------------------------------------------------------------
# A file below the broker's ``config/`` as a starting broker reads it: the file, or its ``.bak``.
#
# ``ConfigManager#load`` and ``#loadBak`` of 4.9.3 and 5.5.0. To save a file, a broker moves it to its ``.bak`` and then
# writes it again, so a reader beside a broker may find the file missing or half written.

_log = logging.getLogger(__name__)

T = TypeVar("T")

# fastjson writes keys that are numbers without quotes. This matches a text, which stays, or such a number.
_BARE_KEY: Final = re.compile(r'("(?:[^"\\]|\\.)*")|(-?\d+)(?=\s*:)')
# A broker needs less time than this to write a file.
_WRITTEN_AFTER_S: Final = 0.05
_NOTHING: Final = object()


def backup_of(path: Path) -> Path:
    """The path of the ``.bak`` beside a file."""
    return path.with_name(f"{path.name}.bak")


def load_config_file(path: Path, decode: Callable[[Any], T], what: str, *, advice: str) -> T | None:
    """Return the result of `decode` for the JSON value in the file at `path`.

    If the file is missing, empty or damaged, its ``.bak`` is read instead; a warning names a damaged file. Return None
    if neither has any text, or if the value is ``null``: a broker then starts with its defaults.

    Parameters
    ----------
    decode
        Raises ValueError, TypeError, LookupError or AttributeError for a value that a broker cannot use.
    what
        The content of the file, for the error's text.

    Raises
    ------
    StoreError
        The file is damaged, and its ``.bak`` is missing or damaged too, or one of them cannot be read. With a missing
        ``.bak``, a broker would delete the damaged file and start without its content.
    """
    damaged: StoreError | None = None
    for file, read in ((path, _settled), (backup_of(path), _value)):
        try:
            value = read(file)
            if value is not _NOTHING:
                return None if value is None else decode(value)
        except OSError as error:
            damaged = StoreError(f"cannot read {file}: {error.strerror}", file=file)
            if not isinstance(error, IsADirectoryError):
                raise damaged from error  # the broker may well be able to read it
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            damaged = StoreError(f"{file} does not hold {what} ({str(error)[:200]})", advice=advice, file=file)
            _log.warning("%s", damaged)
    if damaged is not None:
        raise damaged
    return None


def _settled(path: Path) -> Any:
    """Like `_value`; reads again if the file is incomplete and has a ``.bak``: a broker may be saving it."""
    if backup_of(path).exists():
        with suppress(OSError, ValueError, RecursionError):
            if (value := _value(path)) is not _NOTHING:
                return value
        time.sleep(_WRITTEN_AFTER_S)
    return _value(path)


def _value(file: Path) -> Any:
    """The JSON value in a file whose bytes are decoded as Java does; `_NOTHING` for a missing or an empty file."""
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return _NOTHING
    return json_of(data) if data.rstrip(b"\0") not in (b"", b"\xef\xbb\xbf") else _NOTHING


def json_of(data: bytes) -> Any:
    """The JSON value of a file's bytes, decoded as Java does; keys that are numbers may have no quotes.

    Raises ValueError or RecursionError for other bytes.
    """
    text = data.decode("utf-8", "replace").removeprefix("\ufeff").rstrip("\0")
    try:
        return json.loads(text)
    except ValueError:
        return json.loads(_BARE_KEY.sub(lambda key: key.group(1) or f'"{key.group(2)}"', text))


# ----------------------------------------------------------------------------------------------------------------------
# Reading a RocksDB database of the broker's, without writing into it; the broker may run on it.

_CURRENT: Final = "CURRENT"
# Files that RocksDB writes for itself and a reader does not need.
_NOT_NEEDED: Final = ("LOG", "LOCK")
# A broker removes files that it has replaced; if one vanishes, the files are listed again.
_TRIES: Final = 5
_PAUSE_S: Final = 0.1
_NO_FAMILY: Final = "Column family not found:"


def is_rocksdb(directory: Path) -> bool:
    """Whether a directory holds a RocksDB database."""
    return (directory / _CURRENT).is_file()


def read_rocksdb(directory: Path, prefix: bytes) -> dict[bytes, bytes]:
    """Return the values of all keys that begin with `prefix`, in the default column family.

    Values that a running broker has not yet written to the system are not seen. Raises the errors of `open_rocksdb`.
    """
    with open_rocksdb(directory) as database:
        found = {}
        for key, value in database.items(from_key=prefix):
            if not key.startswith(prefix):
                break
            found[key] = value
        return found


def copy_rocksdb(directory: Path) -> dict[str, bytes]:
    """Return the files of a database by name, all as of one moment, after opening a copy of them once.

    A broker on it may flush or compact: it adds to the manifest then, and may remove files that the manifest named. So
    the manifest must be the same after all files were read. A write-ahead log may be longer, which does no harm. Raises
    the errors of `open_rocksdb`.
    """
    for left in range(_TRIES - 1, -1, -1):
        try:
            files = _files_of(directory)
        except FileNotFoundError:
            files = None
        except OSError as error:
            raise StoreError(f"cannot read {error.filename}: {error.strerror}", file=directory) from error
        if files is not None:
            with tempfile.TemporaryDirectory(prefix="reput-rocksdb-") as name:
                copied = DurableFiles(Path(name))
                for file, content in files.items():
                    copied.put_unsynced(file, data=content)
                copied.close()
                read_rocksdb(Path(name), b"")
            return files
        if left:
            time.sleep(_PAUSE_S)
    raise StoreError(f"{directory} changes all the time: it could not be copied in {_TRIES} tries", file=directory)


def _files_of(directory: Path) -> dict[str, bytes] | None:
    """The files of a database; None if it changed meanwhile. Raises OSError."""
    manifest = directory / (directory / _CURRENT).read_text().strip()
    before = manifest.read_bytes()
    files = {
        file.name: file.read_bytes()
        for file in sorted(directory.iterdir())
        if file.is_file() and file.name.partition(".")[0] not in _NOT_NEEDED
    }
    is_same = files.get(_CURRENT) == f"{manifest.name}\n".encode() and manifest.read_bytes() == before
    return files if is_same and files.get(manifest.name) == before else None


@contextmanager
def open_rocksdb(directory: Path, *families: str) -> Iterator[Any]:
    """Open a database read-only, with its default column family and `families`, for keys and values of bytes.

    It is opened in a scratch directory of links to its files, because the library writes a file of its own beside them;
    opening holds a running broker's files, also those that it replaces later.

    Raises
    ------
    StoreError
        It cannot be read, here or in the body, or the library that reads it is missing.
    """
    try:
        import rocksdict  # noqa: F401, PLC0415  only a store with such a database needs it
    except ImportError as error:
        raise StoreError(
            f"cannot read the RocksDB database {directory}: {error}",
            advice=f"install reput with all that it requires: {pip_install('rocksdict')}",
            file=directory,
        ) from error
    with tempfile.TemporaryDirectory(prefix="reput-rocksdb-") as name:
        database = None
        try:
            database = _open(directory, Path(name), families)
            yield database
        except Exception as error:
            if type(error) is not Exception:  # the library has no class of its own for RocksDB's errors
                raise
            text = " ".join(str(error).split())[:300]
            if _NO_FAMILY in text:
                raise StoreError(
                    f"{directory} is a RocksDB database of another kind: it has no column family"
                    f"{text.rpartition(_NO_FAMILY)[2]}",
                    advice="reput reads those of queues and index, and those of a broker's config/",
                    file=directory,
                ) from error
            raise StoreError(
                f"cannot read the RocksDB database {directory}: {text}",
                advice="restore it from a copy, or start the broker, which recovers it, and stop it again",
                file=directory,
            ) from error
        finally:
            if database is not None:
                database.close()


def _open(directory: Path, scratch: Path, families: tuple[str, ...]) -> Any:
    from rocksdict import AccessType, DBRecoveryMode, Options, Rdict  # noqa: PLC0415  as above

    options = Options(raw_mode=True)
    options.set_wal_recovery_mode(DBRecoveryMode.skip_any_corrupted_record())  # as a broker does
    options.set_max_open_files(-1)  # all are opened now
    named = dict.fromkeys(("default", *families), options) if families else None
    for left in range(_TRIES - 1, -1, -1):
        links = scratch / str(left)
        links.mkdir()
        for file in directory.resolve().iterdir():
            if file.is_file() and file.name.partition(".")[0] not in _NOT_NEEDED:
                (links / file.name).symlink_to(file)
        try:
            return Rdict(str(links), options, named, access_type=AccessType.read_only())
        except Exception:
            if not left:
                raise
            time.sleep(_PAUSE_S)
    raise AssertionError


#: The largest offset.
LONG_MAX: Final = 2**63 - 1


def consumer_of(name: str) -> tuple[str, str] | None:
    """Group and topic of ``TOPIC@GROUP``; None for names that belong to no group (``ConsumerOffsetManager``)."""
    topic, _, group = name.partition("@")
    return (text_of(group), text_of(topic)) if topic and group and "@" not in group else None


def text_of(text: str) -> str:
    """The text in a form that Arrow accepts: half a surrogate pair, which JSON may contain, is written out."""
    return text.encode(errors="backslashreplace").decode()


def number_of(value: object) -> int:
    """The number of a queue, or an offset, as a broker writes it; raises ValueError for any other value."""
    number = int(value) if isinstance(value, str | int) else None
    if number is None or abs(number) > LONG_MAX:
        raise ValueError(f"{str(value)[:40]!r} is not the number of a queue or an offset")
    return number
