"""A backup in place of a store: a command reads it as it was at a restore point, without restoring it.

The log is read in place (``sinks/backup/backup_log.py``). The configuration is small and is written into a scratch
directory, which takes the place of the store. A backup has no queues and no index; a look-up that needs them makes them
there.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from reput.sinks.backup.backup_log import log_of_point, restore_point_at
from reput.sinks.files.durable_file import DurableFiles
from reput.source.log.mapped_file_queue import name_log
from reput.source.log.store_layout import COMMIT_LOG, as_given
from reput.source.record.damage import QUARANTINE, STOP
from reput.streaming.backup.backup import settings_in
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.process.environment import run_directory
from reput.streaming.rebuild.plan import RebuildRequest
from reput.streaming.rebuild.rebuild import rebuild


def open_backup(
    path: Path, given: Sequence[str], broker_conf: Path | None, load: Callable[[Path, Sequence[str]], PipelineConfig]
) -> PipelineConfig:
    """Return the configuration that reads the backup, or the restore point, at `path` as a store.

    Parameters
    ----------
    given
        The settings of the command line, as ``name=value``.
    load
        Loads the configuration of a store with these settings and further ones.

    Raises
    ------
    OptionError
        There is no such restore point.
    StoreError
        The backup cannot be read.
    """
    backup, point = restore_point_at(path)
    store = Path(tempfile.mkdtemp(prefix="backup-", dir=run_directory()))
    files = DurableFiles(store)
    log = files.make_directory(COMMIT_LOG)
    for file in point.config:
        files.put_unsynced(*Path(file.path).parts, data=backup.config_content(file))
    files.close()
    name_log(log_of_point(backup, point, log))
    config = load(store, settings_in(point, given, broker_conf))
    own = (backup.location,) if isinstance(backup.location, Path) else ()
    return replace(config, commit_log=(log,), log_directories=own, backup=as_given(path))


def made_from_log(config: PipelineConfig, needed: str | None, note: Callable[[str], object]) -> Path | None:
    """Make what a look-up in a backup needs beside the log in a scratch directory; None if it needs nothing.

    Damaged records are left out, as in any look-up. The errors are those of ``rebuild``.

    Parameters
    ----------
    needed
        ``consumequeue``, ``index`` or None, as in ``RebuildRequest.only``.
    note
        Gets one line, because this may take a while.
    """
    if needed is None or (needed == "index" and not config.index.message_index_enable):
        return None
    what = "index, which is" if needed == "index" else "queues, which are"
    note(f"{config.backup} has no {what} made from its whole log first; a store that is restored has them")
    made = Path(tempfile.mkdtemp(prefix="made-", dir=run_directory()))
    damage = QUARANTINE if config.source.on_damage == STOP else config.source.on_damage
    lenient = replace(config, source=replace(config.source, on_damage=damage))
    rebuild(lenient, RebuildRequest(made, only=needed), "reput query")
    return made
