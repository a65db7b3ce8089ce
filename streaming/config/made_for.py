"""The record of what an output was made for: the release and the sizes that shape its files.

The files themselves do not record it. A command with another release or other sizes would take sound files for damaged
ones, and `reput recover` would remove them. Nothing is recorded if the output is the store itself: others configure and
upgrade its broker.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.store_path import MADE_FOR, REBUILD_ROOT, REBUILD_SWAP
from reput.sinks.queue.consume_queue import rounded_file_size
from reput.source.errors import OptionError, check_format
from reput.source.options import parse_given
from reput.source.releases import version_text
from reput.streaming.config.broker import broker_version, release_of
from reput.streaming.config.settings import AUTO, PIPELINE_OPTIONS, Settings

_log = logging.getLogger(__name__)

_FORMAT = 1
_VERSION = "brokerVersion"
_DLEDGER = "enableDLegerCommitLog"
_QUEUE_FILE_SIZE = "mappedFileSizeConsumeQueue"
_OF_BOTH: Final = (_VERSION, _DLEDGER, "enableMultiDispatch", "enableLmq")
_OF_QUEUES: Final = (
    _QUEUE_FILE_SIZE,
    "rocksdbCQDoubleWriteEnable",
    "combineCQUseRocksdbForLmq",
    "enableConsumeQueueExt",
    "mappedFileSizeConsumeQueueExt",
    "mapperFileSizeBatchConsumeQueue",
)
_OF_INDEX: Final = ("maxHashSlotNum", "maxIndexNum")

# Values by option name.
Recorded = Mapping[str, Any]


def recorded_in(output: Path, store: Path) -> Recorded:
    """Return what `output` was made for; empty without a record, as in an older output or in a copy of a store.

    While a rebuild is being put in place, its record counts: the next command finishes the rebuild.

    Raises
    ------
    OptionError
        The record cannot be read.
    LaterFormatError
        A later release wrote it.
    """
    if is_store(output, store):
        return {}
    path = output.joinpath(*REBUILD_ROOT, *MADE_FOR)
    if not (output.joinpath(*REBUILD_SWAP).exists() and path.exists()):
        path = output.joinpath(*MADE_FOR)
    try:
        return _decoded(json.loads(path.read_bytes()), path)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise OptionError(f"cannot read {path}: {error.strerror}", file=path) from error
    except (ValueError, OptionError) as error:
        raise OptionError(
            f"{path} does not say what the output was made for ({error})",
            advice="remove it, and give the settings that the output was made with",
            file=path,
        ) from error


def made_for(settings: Settings, store: Path, *, queues: bool, index: bool) -> Recorded:
    """Return the record for a run with these settings that makes `queues` or an `index`, with the release resolved."""
    if not (queues or index):
        return {}
    names = (*_OF_BOTH, *(_OF_QUEUES if queues else ()), *(_OF_INDEX if index else ()))
    values = settings.values
    values[_VERSION] = version_text(broker_version(settings.broker.version, store))
    values[_QUEUE_FILE_SIZE] = rounded_file_size(settings.queue.mapped_file_size_consume_queue)
    return {name: values[name] for name in names}


def write_record(files: DurableFiles, recorded: Recorded) -> None:
    """Put the record in place, whole and durably."""
    text = json.dumps({"version": _FORMAT, "settings": dict(recorded)}, indent=1)
    files.replace(*MADE_FOR, data=text.encode() + b"\n")


def record_in(files: DurableFiles, settings: Settings, store: Path) -> None:
    """Record what an output is made for from now on; `check_made_for` must have passed."""
    if is_store(files.root, store):
        return
    known = recorded_in(files.root, store)
    made = made_for(settings, store, **_sinks_of(settings))
    # The record of a sink that is switched off stays.
    recorded = {**made, **known}
    if made:
        recorded[_DLEDGER] = made[_DLEDGER]
    if recorded != known:
        write_record(files, recorded)


def check_made_for(settings: Settings, store: Path, output: Path) -> None:
    """Raise OptionError unless `output` was made for these settings; see `check_stated`."""
    made = made_for(settings, store, **_sinks_of(settings))
    check_stated(output, recorded_in(output, store), made, lambda _: "this command")


def check_stated(output: Path, recorded: Recorded, stated: Mapping[str, Any], where: Callable[[str], str]) -> None:
    """Raise OptionError for a stated setting that `output` was not made for; `where` returns where it is stated.

    Releases that treat every record alike count as one. A plain log may have become DLedger's: the files made from it
    stay as they are.
    """
    for name, value in recorded.items():
        if name in stated and not _is_same(name, value, stated[name]):
            was, asked = (f"{name}={_text(each)}" for each in (value, stated[name]))
            path = output.joinpath(*MADE_FOR)
            raise OptionError(
                f"{path}: the output was made with {was}, and {where(name)} has {asked}",
                advice=f"leave {name} out to continue as it was made, or run 'reput rebuild' with {asked} to make the "
                "whole output so",
                file=path,
            )


def makes_all_of(settings: Settings, recorded: Recorded) -> bool:
    """Whether a rebuild with `settings` replaces everything that is recorded."""
    sinks = _sinks_of(settings)
    left = (*(() if sinks["queues"] else _OF_QUEUES), *(() if sinks["index"] else _OF_INDEX))
    return not recorded.keys() & set(left)


def warn_of_newer(output: Path, recorded: Recorded, store: Path) -> None:
    """Warn if the store shows a newer release than the recorded one; the recorded one still counts."""
    if _VERSION not in recorded:
        return
    shown, version = broker_version(AUTO, store), broker_version(recorded[_VERSION], store)
    if release_of(shown) > release_of(version):
        _log.warning(
            "%s: the output was made with brokerVersion=%s, and the store looks like one of %s now; continuing with %s",
            output.joinpath(*MADE_FOR),
            version_text(version),
            version_text(shown),
            version_text(version),
        )


def _sinks_of(settings: Settings) -> dict[str, bool]:
    return {"queues": settings.queue.consume_queue_enable, "index": settings.index.message_index_enable}


def _decoded(record: Any, path: Path) -> Recorded:
    if not isinstance(record, dict):
        raise ValueError("it is not an object")  # noqa: TRY004  as for any other bad content
    check_format(path, record.get("version"), _FORMAT, file=path)
    settings = record.get("settings")
    if not isinstance(settings, dict):
        raise ValueError("it has no settings")  # noqa: TRY004  as for any other bad content
    values = parse_given(PIPELINE_OPTIONS, {name: _text(value) for name, value in settings.items()})
    if values.get(_VERSION) == AUTO:
        raise ValueError(f"{_VERSION}={AUTO} is not a release")
    return values


def _is_same(name: str, recorded: Any, stated: Any) -> bool:
    if name == _VERSION:
        nowhere = Path()  # no store is looked at: both versions are stated
        return release_of(broker_version(recorded, nowhere)) == release_of(broker_version(stated, nowhere))
    if name == _QUEUE_FILE_SIZE:
        return rounded_file_size(recorded) == rounded_file_size(stated)
    if name == _DLEDGER and not recorded:
        return True
    return bool(recorded == stated)


def is_store(output: Path, store: Path) -> bool:
    """Whether the output is the store itself, for which nothing is recorded."""
    return output.resolve() == store.resolve()


def _text(value: object) -> str:
    return str(value).lower()
