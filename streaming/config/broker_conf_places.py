"""Where brokers keep ``broker.conf``: looked for to be named in a message, never read in place of one that is given.

A file counts only if it says that it is this store's: its ``storePathRootDir`` is the store, or it has none and lies
beside the store, or a broker was started with it that has the store.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from reput.source.errors import OptionError
from reput.streaming.config.broker import Version
from reput.streaming.config.broker_conf import BrokerConf

_NAMES = ("broker*.conf", "broker*.properties")
_CONF = "conf"
_HOME = "ROCKETMQ_HOME"
_PARENTS = 3
_FILES_MAX = 100
_BROKER = "BrokerStartup"
_OPTIONS = ("-c", "--configFile", "-configFile")
_PROCESSES = Path("/proc")
_ARGUMENTS_BYTES_MAX = 128 * 1024


def broker_conf_of(store: Path, version: Version, fits: Callable[[BrokerConf], bool]) -> BrokerConf | None:
    """Return the ``broker.conf`` of a store that `fits`, that of a running broker first; None if none is found.

    `version` is the release that the files are read for. Files that cannot be read are passed over.
    """
    root = store.resolve()
    for path, directory in (*_of_running(), *_beside(root)):
        with suppress(OptionError):
            conf = BrokerConf.read(path, version)
            if _is_of(conf, root, directory) and fits(conf):
                return conf
    return None


def _is_of(conf: BrokerConf, root: Path, directory: Path) -> bool:
    """Whether a file names the store; a path in it that is relative is one from `directory`, or from near the file."""
    assert conf.path is not None
    named = conf.text("storePathRootDir")
    if not named:
        return conf.path.parent in (root, root.parent, root / _CONF, root.parent / _CONF)
    bases = (directory, conf.path.parent, conf.path.parent.parent)
    return any((base / named).resolve() == root for base in bases)


def _beside(root: Path) -> Iterator[tuple[Path, Path]]:
    """Files near a store and in ``$ROCKETMQ_HOME/conf``, each with its directory."""
    near = [root, *islice(root.parents, _PARENTS)]
    directories = [place for each in near for place in (each, each / _CONF)]
    if home := os.environ.get(_HOME):
        directories.append(Path(home) / _CONF)
    for directory in dict.fromkeys(directories):
        for name in _NAMES:
            with suppress(OSError):
                yield from ((path, directory) for path in sorted(islice(directory.glob(name), _FILES_MAX)))


def _of_running() -> Iterator[tuple[Path, Path]]:
    """The files that running brokers were started with, each with the directory of its process."""
    with suppress(OSError):
        for process in sorted(_PROCESSES.glob("[0-9]*")):
            with suppress(OSError, ValueError):  # it ended, or is another user's
                with (process / "cmdline").open("rb") as file:
                    words = file.read(_ARGUMENTS_BYTES_MAX).split(b"\0")
                given = _given(words) if any(_BROKER.encode() in word for word in words) else None
                if given is not None:
                    directory = (process / "cwd").readlink()
                    yield directory / os.fsdecode(given), directory


def _given(words: list[bytes]) -> bytes | None:
    """The file that a broker's command line names."""
    options = [option.encode() for option in _OPTIONS]
    for word, after in zip(words, [*words[1:], b""], strict=True):
        if word in options and after:
            return after
        for option in options[1:]:
            if word.startswith(option + b"="):
                return word[len(option) + 1 :]
    return None
