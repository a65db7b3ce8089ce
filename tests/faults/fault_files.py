"""Twins of the system below `DurableFiles`: one that counts its calls and stops or fails at one, one that loses power.

`FaultyOs` replaces the module ``os`` inside `durable_file`. Every call that changes or syncs something has a number; a
fault gets the number and may raise. `Disk` knows what is durable: file contents since their last fsync, names since
their directory's.
"""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any
from unittest import mock

from support.sink_runner import OneThread

from reput.sinks.files import durable_file, file_system

SECTOR_BYTES = 512
#: Told the number and the name of a call, may raise.
Fault = Callable[[int, str], None]


class Stopped(BaseException):
    """The process died: no `except Exception` catches it, and nothing it tries afterwards has an effect."""


class ShortWrite(Exception):  # noqa: N818  no error: the system wrote half, and says how much
    """Raised by a fault to make a write a short one."""


# --- what a disk holds after the power failed ------------------------------------------------------------


@dataclass
class FileNode:
    """A file's contents: the durable one, and each later one that was never synced."""

    states: list[bytes]
    #: A cut frees the blocks: what was before it and what came after do not mix.
    epochs: list[int] = field(default_factory=lambda: [0])
    #: The contents that a process reads, if they are not the last state: a failed sync left them in memory only.
    seen: bytes | None = None

    def change(self, content: bytes, seen: bytes | None = None) -> None:
        """The content as it will reach the disk, and as a process sees it, from now on."""
        self.epochs.append(self.epochs[-1] + (len(content) < len(self.states[-1])))
        self.states, self.seen = [*self.states, content], seen

    def cut(self, size: int) -> None:
        """Cut, or grown by zeros, to `size`."""
        seen = None if self.seen is None else self.seen[:size].ljust(size, b"\0")
        self.change(self.states[-1][:size].ljust(size, b"\0"), seen)

    def write(self, offset: int, data: bytes) -> None:
        """Bytes written at `offset`: their sectors will reach the disk as the process sees them."""
        seen = bytearray((self.seen or self.states[-1]).ljust(offset, b"\0"))
        seen[offset : offset + len(data)] = data
        content = bytearray(self.states[-1].ljust(len(seen), b"\0"))
        sectors = slice(offset // SECTOR_BYTES * SECTOR_BYTES, -(-(offset + len(data)) // SECTOR_BYTES) * SECTOR_BYTES)
        content[sectors] = seen[sectors]
        self.change(bytes(content), None if seen == content else bytes(seen))

    def sync(self) -> None:
        """The last content is durable."""
        self.states, self.epochs = self.states[-1:], [0]

    def fail_sync(self, rng: Random) -> None:
        """Some of it was written; all of it is marked clean, so that no later sync will write the rest."""
        size, seen = len(self.states[-1]), self.seen or self.states[-1]
        kept = self.lose(rng).ljust(size, b"\0")[:size]
        self.states, self.epochs, self.seen = [kept], [0], seen

    def lose(self, rng: Random) -> bytes:
        """One of the contents that may be found after a power failure: any sector of any time, within a size."""
        last = rng.randrange(len(self.states)) if rng.random() < 0.7 else len(self.states) - 1
        alike = [state for state, epoch in zip(self.states, self.epochs, strict=True) if epoch == self.epochs[last]]
        size = len(self.states[last])
        content = bytearray()
        for at in range(0, size, SECTOR_BYTES):
            sector = rng.choice(alike)[at : at + SECTOR_BYTES]
            content += sector.ljust(SECTOR_BYTES, b"\0")
        return bytes(content[:size])


@dataclass
class Transaction:
    """Changes of two directories that reach the disk together, as a rename's do; whether they did, once settled."""

    is_kept: bool | None = None


@dataclass
class DirectoryNode:
    """A directory's names: the durable ones, those the process sees, and the changes between them."""

    durable: dict[str, FileNode | DirectoryNode] = field(default_factory=dict)
    seen: dict[str, FileNode | DirectoryNode] = field(default_factory=dict)
    changes: list[tuple[dict[str, FileNode | DirectoryNode | None], Transaction]] = field(default_factory=list)

    def change(self, names: dict[str, FileNode | DirectoryNode | None], transaction: Transaction | None = None) -> None:
        """Names that appear, or vanish (None), together."""
        self.changes.append((names, transaction or Transaction()))
        self.seen = _changed(self.seen, names)

    def sync(self) -> None:
        """Make the present names durable."""
        for _, transaction in self.changes:
            transaction.is_kept = True
        self.durable, self.changes = dict(self.seen), []

    def lose(self, rng: Random) -> dict[str, FileNode | DirectoryNode]:
        """Names that may be found after a power failure: each change happened or not."""
        chance = rng.choice([0, 0.5, 1])
        names = self.durable
        for change, transaction in self.changes:
            if transaction.is_kept is None:
                transaction.is_kept = rng.random() < chance
            if transaction.is_kept:
                names = _changed(names, change)
        return names


def _changed(
    names: dict[str, FileNode | DirectoryNode], change: dict[str, FileNode | DirectoryNode | None]
) -> dict[str, FileNode | DirectoryNode]:
    return {name: node for name, node in {**names, **change}.items() if node is not None}


class Disk:
    """The tree below one root, in which everything is durable at first."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.top = _durable_directory(root)

    def find(self, path: str | Path) -> Any:
        """The node that the process sees at `path`, None if there is none."""
        node: Any = self.top
        for part in str(path).removeprefix(str(self.root)).split("/")[1:]:
            node = node.seen.get(part)
            if node is None:
                return None
        return node

    def name(self, path: str | Path, node: FileNode | DirectoryNode | None) -> None:
        """A name appears or vanishes."""
        parent, name = os.path.split(path)
        self.find(parent).change({name: node})

    def rename(self, source: str | Path, target: str | Path) -> None:
        """Both names change at once."""
        node, transaction = self.find(source), Transaction()
        (parent, name), (new_parent, new_name) = os.path.split(source), os.path.split(target)
        if parent == new_parent:
            self.find(parent).change({name: None, new_name: node}, transaction)
            return
        self.find(parent).change({name: None}, transaction)
        self.find(new_parent).change({new_name: node}, transaction)

    def lose_power(self, rng: Random) -> None:
        """Put on the real disk what may be left; from here on that is durable."""
        shutil.rmtree(self.root)
        _write_tree(self.root, self.top, rng)
        self.top = _durable_directory(self.root)


def _durable_directory(path: Path) -> DirectoryNode:
    names: dict[str, FileNode | DirectoryNode] = {}
    for entry in os.scandir(path):
        node = _durable_directory(Path(entry.path)) if entry.is_dir() else FileNode([Path(entry.path).read_bytes()])
        names[entry.name] = node
    return DirectoryNode(names, dict(names))


def _write_tree(path: Path, directory: DirectoryNode, rng: Random) -> None:
    path.mkdir()
    for name, node in directory.lose(rng).items():
        if isinstance(node, FileNode):
            (path / name).write_bytes(node.lose(rng))
        else:
            _write_tree(path / name, node, rng)


def _nodes_below(top: FileNode | DirectoryNode) -> Iterator[FileNode | DirectoryNode]:
    yield top
    if isinstance(top, DirectoryNode):
        for node in top.seen.values():
            yield from _nodes_below(node)


# --- the calls -------------------------------------------------------------------------------------------


def _alone(call: Callable[..., Any]) -> Callable[..., Any]:
    """A call that no other thread's comes between, as with the real system."""

    @functools.wraps(call)
    def alone(faulty: FaultyOs, *args: Any, **kwargs: Any) -> Any:
        with faulty.lock:
            return call(faulty, *args, **kwargs)

    return alone


#: Functions that change nothing that is promised: the time of a file may be lost, and cannot be set everywhere.
HARMLESS = {"fspath", "path", "strerror", "stat", "lstat", "fstat", "lseek", "pread", "scandir", "utime"}


class _TwinFile:
    """The result of ``fdopen``: each write is immediately one of the system."""

    def __init__(self, faulty: FaultyOs, descriptor: int) -> None:
        self._faulty, self._descriptor = faulty, descriptor

    def write(self, data: bytes) -> int:
        return int(self._faulty.write(self._descriptor, memoryview(data)))

    def flush(self) -> None:
        pass

    def __enter__(self) -> _TwinFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._faulty.close(self._descriptor)


class FaultyOs:
    """The functions of ``os`` that `durable_file` calls. Changing calls ask `fault` first, with number and name.

    A write that meets a fault has written half. Nothing waits for a real disk. Threads may call it: one at a time.
    """

    def __init__(self, disk: Disk, fault: Fault, rng: Random) -> None:
        self.calls = 0
        self._disk = disk
        self._fault = fault
        self._rng = rng
        self._nodes: dict[int, FileNode | DirectoryNode] = {}
        self.lock = threading.RLock()

    def __getattr__(self, name: str) -> Any:
        assert name.isupper() or name in HARMLESS, f"os.{name} is unknown to the twin"
        return getattr(os, name)

    def _count(self, name: str) -> None:
        self.calls += 1
        self._fault(self.calls, name)

    @_alone
    def open(self, path: str | Path, flags: int, mode: int = 0o777) -> int:
        node = self._disk.find(path)
        if flags & os.O_CREAT:
            self._count("create")
        descriptor = os.open(path, flags, mode)
        if node is None:
            node = FileNode([b""])
            self._disk.name(path, node)
        elif flags & os.O_TRUNC:
            node.cut(0)
        self._nodes[descriptor] = node
        return descriptor

    @_alone
    def close(self, descriptor: int) -> None:
        del self._nodes[descriptor]
        os.close(descriptor)

    def close_all(self) -> None:
        """Close what a process that died had open."""
        for descriptor in list(self._nodes):
            self.close(descriptor)

    @_alone
    def ftruncate(self, descriptor: int, size: int) -> None:
        self._count("truncate")
        os.ftruncate(descriptor, size)
        node: Any = self._nodes[descriptor]
        node.cut(size)

    @_alone
    def pwrite(self, descriptor: int, data: memoryview, offset: int) -> int:
        try:
            self._count("write")
        except ShortWrite:
            return self._put(descriptor, bytes(data[: -(-len(data) // 2)]), offset)
        except BaseException:
            self._put(descriptor, bytes(data[: len(data) // 2]), offset)
            raise
        return self._put(descriptor, bytes(data), offset)

    @_alone
    def write(self, descriptor: int, data: memoryview) -> int:
        return self.pwrite(descriptor, data, os.lseek(descriptor, 0, os.SEEK_END))

    def _put(self, descriptor: int, data: bytes, offset: int) -> int:
        node: Any = self._nodes[descriptor]
        node.write(offset, data)
        return os.pwrite(descriptor, data, offset)

    @_alone
    def fsync(self, descriptor: int) -> None:
        node = self._nodes[descriptor]
        try:
            self._count("sync")
        except OSError:
            if isinstance(node, FileNode):
                node.fail_sync(self._rng)
            raise
        node.sync()

    @_alone
    def syncfs(self, descriptor: int) -> None:
        assert isinstance(self._nodes[descriptor], DirectoryNode)
        nodes = list(_nodes_below(self._disk.top))
        try:
            self._count("sync")
        except OSError:
            for node in nodes:
                if isinstance(node, FileNode) and len(node.states) > 1:
                    node.fail_sync(self._rng)
            raise
        for node in nodes:
            node.sync()

    @_alone
    def replace(self, source: str | Path, target: str | Path) -> None:
        self._count("rename")
        with suppress(FileNotFoundError):
            os.unlink(target)
        Path(source).rename(target)
        self._disk.rename(source, target)

    @_alone
    def link(self, source: str | Path, target: str | Path) -> None:
        self._count("link")
        os.link(source, target)
        self._disk.name(target, self._disk.find(source))

    def fdopen(self, descriptor: int, mode: str, buffering: int = -1) -> Any:
        """A file that writes by the twin, where the twin opened the descriptor."""
        known = descriptor in self._nodes
        return _TwinFile(self, descriptor) if known else os.fdopen(descriptor, mode, buffering)

    @_alone
    def unlink(self, path: str | Path) -> None:
        node = self._disk.find(path)
        if node is not None:
            self._count("unlink")
        os.unlink(path)
        self._disk.name(path, None)

    @_alone
    def rmdir(self, path: str | Path) -> None:
        self._count("rmdir")
        os.rmdir(path)
        self._disk.name(path, None)

    @_alone
    def makedirs(self, path: str | Path) -> None:
        missing = list(itertools.takewhile(lambda each: not each.exists(), [Path(path), *Path(path).parents]))
        for directory in reversed(missing):
            self.mkdir(str(directory))

    @_alone
    def mkdir(self, path: str | Path) -> None:
        if self._disk.find(path) is None:
            self._count("mkdir")
        os.mkdir(path)
        self._disk.name(path, DirectoryNode())


def stop_at(number: int) -> Fault:
    """The process dies before its call `number`."""

    def fault(call: int, _: str) -> None:
        if call >= number:
            raise Stopped

    return fault


def fail_at(number: int, code: int, *, for_ever: bool = False) -> Fault:
    """Call `number` is an error of the system, and with `for_ever` every one after it."""

    def fault(call: int, _: str) -> None:
        if call == number or (for_ever and call > number):
            raise OSError(code, os.strerror(code))

    return fault


def short_at(number: int, *, for_ever: bool = False) -> Fault:
    """Call `number`, where it is a write, writes half; with `for_ever` every one after it, down to single bytes."""

    def fault(call: int, name: str) -> None:
        if name == "write" and (call == number or (for_ever and call > number)):
            raise ShortWrite

    return fault


def no_fault(_: int, __: str) -> None:
    """All is well."""


@contextmanager
def system(
    disk: Disk,
    fault: Fault = no_fault,
    seed: int = 0,
    *modules: ModuleType,
    is_synced_whole: bool = False,
    **constants: int,
) -> Iterator[FaultyOs]:
    """Let `durable_file` run on a faulty system, with other `constants`; one process from its start to its end.

    So do `modules`, which call ``os`` themselves.

    `is_synced_whole` is whether the disk's file system is one that is synced whole, where there is much to sync.
    """
    faulty = FaultyOs(disk, fault, Random(seed))
    with (
        mock.patch.multiple(durable_file, os=faulty, ThreadPoolExecutor=OneThread, **constants),
        mock.patch.multiple(file_system, os=faulty, is_synced_whole=lambda _: is_synced_whole, _sync=faulty.syncfs),
        ExitStack() as patches,
    ):
        for module in modules:
            patches.enter_context(mock.patch.object(module, "os", faulty))
        try:
            yield faulty
        finally:
            faulty.close_all()


# --- a command that is killed before a call --------------------------------------------------------------

_CHANGING = ("replace", "unlink", "rmdir", "mkdir", "makedirs", "write", "pwrite", "ftruncate", "fsync", "open", "link")


class StoppingOs:
    """The module ``os`` in which nothing changes the disk from call `number` on, as for a process that was killed."""

    def __init__(self, number: int) -> None:
        self.calls, self._number = 0, number

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in _CHANGING:
            return real

        def call(*given: Any, **more: Any) -> Any:
            if name == "open" and not given[1] & os.O_CREAT:
                return real(*given, **more)
            self.calls += 1
            if self.calls >= self._number:
                raise Stopped
            return real(*given, **more)

        return call


@contextmanager
def stopped_at(number: int, *modules: ModuleType) -> Iterator[StoppingOs]:
    """Stop what these modules, `durable_file` among them, do to the disk, from call `number` on."""
    stopping = StoppingOs(number)
    with ExitStack() as patches:
        for module in (durable_file, *modules):
            patches.enter_context(mock.patch.object(module, "os", stopping))
        yield stopping
