"""The directories of a store's log, by broker.conf and by the store itself (``MessageStoreConfig``)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from reput.source.errors import OptionError, StoreError
from reput.source.segments.mapped_file_name import is_file_name

COMMIT_LOG = "commitlog"
CONSUME_QUEUE = "consumequeue"
# With ``useSeparateStorePathForRocksdbCQ`` RocksDB's queues are here, else among the topics' folders.
_ROCKSDB_QUEUES = "consumequeue_rocksdb"
MULTI_PATH_SPLITTER = ","
_DLEDGER = "dledger-"
_DLEDGER_DATA = "data"
# `String#trim` takes these away; a blank behind a comma stays, as in ``MultiPathMappedFileQueue``.
_JAVA_BLANKS = "".join(map(chr, range(0x21)))


def commit_log_paths(store: Path, broker: Mapping[str, str], directory: Path) -> tuple[Path, ...]:
    """The directories of a plain commitlog, by the settings `broker` of the broker.conf in `directory`.

    Those that are below the broker's root are taken below `store`.
    """
    root = broker.get("storePathRootDir", "").rstrip("/")
    listed = [broker.get("storePathCommitLog", "")]
    if MULTI_PATH_SPLITTER in listed[0]:  # a broker has directories only to read beside several alone
        several = (listed[0], broker.get("readOnlyCommitLogStorePaths", ""))
        listed = [path for text in several for path in text.strip(_JAVA_BLANKS).split(MULTI_PATH_SPLITTER)]
    found = []
    for text in filter(None, listed):
        inside = root and text.startswith(root + "/")
        found.append(store / text[len(root) + 1 :] if inside else directory / text)
    return tuple(dict.fromkeys(found)) or (store / COMMIT_LOG,)


def with_dledger(plain: tuple[Path, ...], store: Path, broker: Mapping[str, str]) -> tuple[Path, ...]:
    """The directories of a DLedger commitlog: its own, and before it those of `plain` that hold an older log.

    Raises
    ------
    StoreError
        `store` has no such directory.
    OptionError
        It has several, and `broker` does not name the one that is meant.
    """
    own = dledger_directory(store, broker) / _DLEDGER_DATA
    return (*(path for path in plain if _has_entries(path)), own)


def dledger_directory(store: Path, broker: Mapping[str, str]) -> Path:
    """DLedger's own directory, ``dledger-<dLegerSelfId>`` in the store; the errors are those of `with_dledger`."""
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
    """Raise OptionError when the store's log is DLedger's, though enableDLegerCommitLog is off.

    With `is_stated`, somebody has switched it off: then an older commitlog beside DLedger's directory is enough.
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
    """The directory with the RocksDB database of a store's queues (``RocksDBConsumeQueueStore``), None without one."""
    for queues in (store / CONSUME_QUEUE, store / _ROCKSDB_QUEUES):
        if (queues / "CURRENT").is_file() and any(queues.glob("MANIFEST-*")):
            return queues
    return None


def has_queue_files(store: Path) -> bool:
    """Whether the store has files of ConsumeQueues, whatever else is beside them."""
    return any(is_file_name(path.name) for path in (store / CONSUME_QUEUE).glob("*/*/*"))


def _has_entries(directory: Path) -> bool:
    return directory.is_dir() and any(directory.iterdir())
