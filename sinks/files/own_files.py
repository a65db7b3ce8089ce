"""The files below the folders of queues and index that may be moved or removed: only those that reput can name.

The folders may be the broker's own, and hold files of other programs: RocksDB's files among the topics' folders
(``rocksdbCQDoubleWriteEnable``), copies, links, mount points. A command that replaces or removes in these folders asks
this module, and leaves everything else in its place, at every moment.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.file_system import names_in
from reput.sinks.files.store_path import (
    BATCH_CONSUME_QUEUE,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    INDEX,
    RelativePath,
    is_directory_name,
    is_index_file_name,
    is_queue_id,
    is_topic,
)
from reput.source.errors import OutputError
from reput.source.log.store_layout import is_file_name

#: The folders whose content is derived from the log.
DERIVED = (CONSUME_QUEUE, CONSUME_QUEUE_EXT, BATCH_CONSUME_QUEUE, INDEX)

# The names of RocksDB's files.
_OF_ROCKSDB = re.compile(r"[0-9]{6,}\.(sst|log)|CURRENT|IDENTITY|LOCK|LOG(\.old\.[0-9]+)?|(MANIFEST|OPTIONS)-[0-9]+")
_MOUNTS = Path("/proc/self/mountinfo")
# A path in that file has a blank, a tab, a line feed and a backslash in octal.
_OCTAL = re.compile(rb"\\([0-7]{3})")
_KINDS = {stat.S_IFLNK: "a symbolic link", stat.S_IFREG: "a file", stat.S_IFDIR: "a directory"}


def foreign_paths(root: Path, top: RelativePath) -> Iterator[RelativePath]:
    """The topmost paths below the directory `top` of `root` that reput cannot name; `top` is in one of `DERIVED`.

    Paths are below `root`. Missing directories have none. A link or a mount point is never reput's own.
    """
    yield from _foreign_paths(root, top, _mount_points(root))


def foreign_to_queues(root: Path, folder: str) -> Iterator[RelativePath]:
    """The paths below a folder of queues that belong neither to queues in files nor to a RocksDB database there.

    A topic may have any name that reput makes a directory of, because clients name light queues.
    """
    mounts = _mount_points(root)
    for path in _foreign_paths(root, (folder,), mounts):
        place = root.joinpath(*path)
        is_database = len(path) == 2 and _OF_ROCKSDB.fullmatch(path[1]) is not None and place.is_file()
        is_topic = len(path) == 2 and place.is_dir() and is_directory_name(path[1])
        is_known = is_database or (is_topic and next(_foreign_paths(root, path, mounts), None) is None)
        if place.is_symlink() or path in mounts or not is_known:
            yield path


def check_queues_only(root: Path, folder: str) -> None:
    """Raise OutputError if a folder of queues holds more than queues in files and a RocksDB database."""
    check_own(root, (folder,))
    for path in foreign_to_queues(root, folder):
        place = root.joinpath(*path)
        raise OutputError(
            f"{place} is neither reput's nor RocksDB's, and its folder would be replaced",
            advice="nothing was changed: move it away",
            file=place,
        )


def is_foreign(root: Path, path: RelativePath) -> bool:
    """Whether `path` below `root`, in one of `DERIVED`, exists and reput cannot name it."""
    return _foreign_kind(root, path, _mount_points(root)) is not None


def check_own(root: Path, path: RelativePath) -> None:
    """Raise OutputError if `path` below `root` exists and reput cannot name it."""
    _check_own(root, path, _mount_points(root))


def paths_to_replace(root: Path, made: Path, target: RelativePath) -> list[RelativePath]:
    """The paths at and below `target` of `root` to be replaced by those of `made`, so that everything else stays.

    `made` takes the place of `target` itself, and may be missing. If everything below `target` is reput's own, `target`
    is the only path; otherwise its children are, down to single files. A path is below `root`, whether it exists or
    not.

    Raises
    ------
    OutputError
        Something that reput cannot name is in the place of what was made.
    """
    return list(_paths_to_replace(root, made, target, _mount_points(root)))


def remove_own(files: DurableFiles, folder: str) -> None:
    """Remove what reput can name in one of `DERIVED`, durably; also the folder, if nothing else is in it."""
    for path in paths_to_replace(files.root, files.root / ".nothing was made", (folder,)):
        if files.root.joinpath(*path).is_dir():
            files.remove_tree(*path)
        else:
            files.remove(*path)
    files.sync()


def _paths_to_replace(
    root: Path, made: Path, target: RelativePath, mounts: set[RelativePath]
) -> Iterator[RelativePath]:
    if _foreign_kind(root, target, mounts) is not None and not _is_odd_topic(root, made, target, mounts):
        if os.path.lexists(made):
            _check_own(root, target, mounts)
        return
    if next(_foreign_paths(root, target, mounts), None) is None:
        yield target
        return
    names = {*names_in(root.joinpath(*target)), *names_in(made)}
    for name in sorted(names):
        yield from _paths_to_replace(root, made / name, (*target, name), mounts)


def _is_odd_topic(root: Path, made: Path, target: RelativePath, mounts: set[RelativePath]) -> bool:
    """Whether the path is a queue's directory after all, because the rebuild made one with that name."""
    place = root.joinpath(*target)
    is_there = place.is_dir() and not place.is_symlink() and target not in mounts
    return len(target) == 2 and target[0] != INDEX and is_there and is_directory_name(target[1]) and made.is_dir()


def _foreign_paths(root: Path, top: RelativePath, mounts: set[RelativePath]) -> Iterator[RelativePath]:
    directory = root.joinpath(*top)
    if top in mounts or directory.is_symlink() or not directory.is_dir():
        return
    with os.scandir(directory) as entries:
        found = sorted(
            (entry.name, entry.is_dir(follow_symlinks=False), entry.is_file(follow_symlinks=False)) for entry in entries
        )
    for name, is_directory, is_file in found:
        path = (*top, name)
        if path in mounts or not _is_own(path, is_directory=is_directory, is_file=is_file):
            yield path
        elif is_directory:
            yield from _foreign_paths(root, path, mounts)


def _check_own(root: Path, path: RelativePath, mounts: set[RelativePath]) -> None:
    if (what := _foreign_kind(root, path, mounts)) is not None:
        place = root.joinpath(*path)
        raise OutputError(
            f"{place} is {what}, which is not reput's to replace",
            advice="nothing was changed: move it away, or give another --output",
            file=place,
        )


def _foreign_kind(root: Path, path: RelativePath, mounts: set[RelativePath]) -> str | None:
    """The kind of a path that reput cannot name, in words; None if reput can name it, or if it does not exist."""
    try:
        mode = root.joinpath(*path).lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    if path in mounts:
        return "a mount point"
    if _is_own(path, is_directory=stat.S_ISDIR(mode), is_file=stat.S_ISREG(mode)):
        return None
    return _KINDS.get(stat.S_IFMT(mode), "a special file")


def _is_own(path: RelativePath, *, is_directory: bool, is_file: bool) -> bool:
    """Whether reput gives such names to files or directories of this kind."""
    if len(path) == 1:
        return is_directory
    if path[0] == INDEX:
        return len(path) == 2 and is_file and is_index_file_name(path[1])
    if len(path) == 2:
        return is_directory and is_topic(path[1])
    if len(path) == 3:
        return is_directory and is_queue_id(path[2])
    return len(path) == 4 and is_file and is_file_name(path[3])


def _mount_points(root: Path) -> set[RelativePath]:
    """The paths below `root` where something is mounted; empty if the system does not list them."""
    try:
        lines = _MOUNTS.read_bytes().splitlines()
    except OSError:
        return set()
    top = os.fsencode(os.path.realpath(root)) + b"/"
    listed = (fields[4] for line in lines if len(fields := line.split(b" ")) > 4)
    found = (_OCTAL.sub(lambda octal: bytes([int(octal[1], 8)]), path) for path in listed)
    return {tuple(os.fsdecode(path[len(top) :]).split("/")) for path in found if path.startswith(top)}
