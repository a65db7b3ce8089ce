"""A broker's ``broker.conf``: each setting has the value that the broker's own release reads from its text.

``BrokerStartup`` passes the file's properties to setters by name (``MixAll#properties2Object``): names are
case-sensitive, a number that ``Integer#parseInt`` refuses leaves the setting at its default, and any text but ``true``
is false.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Final

import javaproperties

from reput.source import releases
from reput.source.errors import OptionError
from reput.source.log.store_layout import CONSUME_QUEUE, JAVA_BLANKS, ROCKSDB_QUEUES
from reput.source.options import shown
from reput.source.record.message_properties import parse_int
from reput.source.releases import Version
from reput.streaming.config.config_file import read_config_file

# A line of a backslash alone adds nothing to the line after it, which may then even be a comment.
_NOTHING = re.compile(r"[ \t\f\r\n]*\\(?:\r\n|\r|\n|\Z)")
_LOGICAL_LINE = re.compile(r"([ \t\f\r\n]*)((?:[#!][^\r\n]*)|(?:\\(?:\r\n|.)|[^\\\r\n])*)", re.DOTALL)
_LINE_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True)
class Property:
    """A property, and the number of the line, from 1, where it begins."""

    name: str
    value: str
    line: int


def load_properties(data: bytes) -> dict[str, Property]:
    r"""Return the properties of a file by name; if several have the same name, the last one counts, as in Java.

    Every byte is a character of ISO 8859-1, so no file has a wrong encoding.

    Raises
    ------
    ValueError
        A name or value has a malformed ``\uXXXX``, which Java also refuses; the message names the line.
    """
    text = data.decode("iso-8859-1")
    found: dict[str, Property] = {}
    at, line = 0, 1
    while at < len(text):
        nothing = _NOTHING.match(text, at)
        if nothing is not None:
            line += len(_LINE_END.findall(nothing[0]))
            at = nothing.end()
            continue
        logical = _LOGICAL_LINE.match(text, at)
        assert logical is not None
        line += len(_LINE_END.findall(logical[1]))
        try:
            pairs: dict[str, str] = javaproperties.loads(logical[2])
        except javaproperties.InvalidUEscapeError as error:
            msg = f"line {line}: {error}"
            raise ValueError(msg) from error
        found.update((name, Property(name, value, line)) for name, value in pairs.items())
        line += len(_LINE_END.findall(logical[2]))
        at = logical.end()
    return found


# The settings that reput follows, by type; a broker takes the default here for a number that it cannot read.
NUMBERS: Final[Mapping[str, int]] = {
    "mappedFileSizeCommitLog": 1024 * 1024 * 1024,
    "mappedFileSizeConsumeQueue": 300_000 * 20,
    "mappedFileSizeConsumeQueueExt": 48 * 1024 * 1024,
    "mapperFileSizeBatchConsumeQueue": 300_000 * 46,
    "maxHashSlotNum": 5_000_000,
    "maxIndexNum": 5_000_000 * 4,
    "expectConsumerNumUseFilter": 32,
    "maxErrorRateOfBloomFilter": 20,
    "cleanResourceInterval": 10_000,
}
SWITCHES: Final = (
    "enableDLegerCommitLog",
    "messageIndexEnable",
    "enableMultiDispatch",
    "enableLmq",
    "rocksdbCQDoubleWriteEnable",
    "combineCQUseRocksdbForLmq",
    "enableConsumeQueueExt",
    "enableCalcFilterBitMap",
)
#: Where DLedger's log is, if not in the store; 4.9.3 does not have this one.
DLEDGER_LOG: Final = "storePathDLedgerCommitLog"
PATHS: Final = (
    *("storePathRootDir", "storePathCommitLog", "readOnlyCommitLogStorePaths", "dLegerSelfId"),
    DLEDGER_LOG,
)
TEXTS: Final = (
    *("brokerName", "messageDelayLevel", "storeType", "configManagerVersion", "combineCQLoadingCQTypes"),
    *PATHS,
)

#: Only ``broker.conf`` counts.
NO_CHANGES: Final[Mapping[str, str]] = MappingProxyType({})
# The line of a setting that no file has.
_NO_LINE = 0

# ``StoreType``: how a broker keeps queues.
FILE_STORE: Final = "default"
ROCKSDB_STORE: Final = "defaultrocksdb"

_UP_TO_CONFIRMED = "the broker dispatches no further than the offset that its replicas have confirmed"
_RECOVERY = "a broker's recovery begins elsewhere"


def _is_true(text: str) -> bool:
    return text.lower() == "true"


def _is_given(text: str) -> bool:
    return bool(text.strip(JAVA_BLANKS))


# Settings that reput does not follow: the name, the values that matter, and what they change.
_NOT_FOLLOWED: Final[tuple[tuple[str, Callable[[str], bool], str], ...]] = (
    ("duplicationEnable", _is_true, _UP_TO_CONFIRMED),
    ("enableControllerMode", _is_true, _UP_TO_CONFIRMED),
    ("readUnCommitted", _is_true, "the broker dispatches what its replicas have not confirmed"),
    ("recheckReputOffsetFromCq", _is_true, _RECOVERY),
    ("enableAcceleratedRecovery", _is_true, _RECOVERY),
    (
        "indexRocksDBEnable",
        _is_true,
        "the broker keeps keys in RocksDB, too; query, verify and doctor read these, and nothing makes them",
    ),
    (
        "transRocksDBEnable",
        _is_true,
        "the broker keeps transactions in RocksDB, too; doctor and dump --file read these",
    ),
    ("timerRocksDBEnable", _is_true, "the broker keeps timers in RocksDB, too; doctor and dump --file read these"),
    ("messageStorePlugIn", _is_given, "a plug-in writes what it likes"),
)


@dataclass
class BrokerConf:
    """A ``broker.conf`` as a release reads it; without a `path`, a broker with default settings.

    `notes` gets a line for each setting whose text means something else to the broker than it looks like.
    """

    path: Path | None = None
    properties: Mapping[str, Property] = field(default_factory=dict)
    version: Version = (0, 0, 0)
    notes: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path | None, version: Version, changes: Mapping[str, str] = NO_CHANGES) -> BrokerConf:
        """Read the file at `path`, if any, as the release `version` does; `changes` beat the settings in it.

        Raises
        ------
        OptionError
            The file cannot be read, or a broker would not start with it.
        """
        changed = {name: Property(name, value, _NO_LINE) for name, value in changes.items()}
        if path is None:
            return cls(None, changed, version)
        data = read_config_file(path, "the broker's configuration")
        try:
            return cls(path, load_properties(data) | changed, version)
        except ValueError as error:
            msg = f"cannot read the broker's configuration {path}: {error}; a broker does not start with it either"
            raise OptionError(msg) from error

    def __contains__(self, name: str) -> bool:
        return name in self.properties

    def where(self, name: str) -> str:
        """Return the file and line of a setting, or the option that changes it."""
        line = self.properties[name].line
        return f"--set {name}" if line == _NO_LINE else f"{self.path}, line {line}"

    def number(self, name: str) -> int:
        """Return one of `NUMBERS`; the broker's default if Java cannot read its text."""
        text = self.properties[name].value
        value = parse_int(text)
        if value is None:
            value = NUMBERS[name]
            self._note(name, f"not a number that a broker reads{_blanks_of(text)}; it takes its default, {value}")
        return value

    def number_or(self, name: str, default: int) -> int:
        """Return a setting that is a number; `default` if it is missing, or if Java cannot read its text."""
        value = parse_int(self.properties[name].value) if name in self else None
        return default if value is None else value

    def switch(self, name: str, *, default: bool = False) -> bool:
        """Return whether a setting is on: ``true`` in any case is on, any other text is off; `default` if missing."""
        if name not in self:
            return default
        text = self.properties[name].value
        if not _is_true(text) and text.strip().lower() != "false":
            self._note(name, f"false to a broker{_blanks_of(text)}, which takes nothing but true for true")
        return _is_true(text)

    def text(self, name: str) -> str:
        """Return one of `TEXTS`, ``""`` if it is missing; releases before 5.2.0 keep the white space around it.

        Raises
        ------
        OptionError
            It holds U+0000 or half a surrogate pair, which no name or path can have.
        """
        if name not in self.properties:
            return ""
        text = self.properties[name].value
        trimmed = text.strip(JAVA_BLANKS)
        if releases.TRIMS_SETTINGS.holds(self.version):
            text = trimmed
        elif trimmed != text and name != "messageDelayLevel":
            self._note(name, "taken with the white space, as brokers before 5.2.0 do")
        if not _can_be_a_name(text):
            msg = f"{self.where(name)}: {name}={shown(text)}: no name or path can have these characters"
            raise OptionError(msg)
        return text

    def texts(self, *names: str) -> dict[str, str]:
        """Return the texts of those `names` that the file has; see `text`."""
        return {name: self.text(name) for name in names if name in self}

    def without_queue_files(self) -> str | None:
        """Return the setting by which the broker keeps its queues only in RocksDB; None if it writes queue files."""
        if self.text("storeType").lower() == ROCKSDB_STORE:
            return f"storeType={self.text('storeType')}"
        name = "combineCQLoadingCQTypes"
        if not self._keeps_queues_in_both or name not in self:
            return None
        types = {each.strip(JAVA_BLANKS).lower() for each in self.text(name).split(";")}
        return None if FILE_STORE in types else f"{name}={shown(self.text(name))}"

    @property
    def rocksdb_folder(self) -> str | None:
        """The folder of the store with the broker's queues in RocksDB; None if RocksDB has few of them or none."""
        keeps_both = self._keeps_queues_in_both
        if self.without_queue_files() is None and not keeps_both:
            return None
        # reput does not read which topics are LITE ones, so it does not know which queues RocksDB should have.
        is_selective = releases.DOUBLE_WRITES_LITE_ALONE.holds(self.version)
        if is_selective and keeps_both and self._is_on("rocksdbCQSelectiveDoubleWriteEnable"):
            return None
        return ROCKSDB_QUEUES if self._is_on("useSeparateStorePathForRocksdbCQ") else CONSUME_QUEUE

    @property
    def _keeps_queues_in_both(self) -> bool:
        """Whether the file asks for queues in files and in RocksDB; ``broker.queues_in_both`` asks all settings."""
        return releases.KEEPS_QUEUES_IN_BOTH.holds(self.version) and self._is_on("rocksdbCQDoubleWriteEnable")

    @property
    def writes_index_files(self) -> bool:
        """Whether the broker writes index files if it makes an index at all."""
        name = "indexFileWriteEnable"
        return not releases.KEEPS_MORE_IN_ROCKSDB.holds(self.version) or name not in self or self._is_on(name)

    def _is_on(self, name: str) -> bool:
        return name in self and _is_true(self.properties[name].value)

    def note_ignored(self) -> None:
        """Note the settings that change what a broker writes but that reput does not follow, and misspelled ones."""
        found = [
            f"{name}={shown(entry.value)} (line {entry.line}): {effect}"
            for name, matters, effect in _NOT_FOLLOWED
            if (entry := self.properties.get(name)) is not None and entry.line != _NO_LINE and matters(entry.value)
        ]
        if found:
            self.notes.append(f"{self.path}: reput does not follow {'; '.join(found)}")
        right = {name.lower(): name for name in (*NUMBERS, *SWITCHES, *TEXTS)}
        for name, entry in self.properties.items():
            meant = right.get(name.lower(), name)
            if meant != name:
                self.notes.append(
                    f"{self.path}, line {entry.line}: {shown(name)} is not a setting of a broker, {meant} is; "
                    "it is passed over, as a broker does"
                )

    def _note(self, name: str, what: str) -> None:
        value = shown(self.properties[name].value)
        self.notes.append(f"{self.where(name)}: {name}='{value}' is {what}; so does reput")


def _blanks_of(text: str) -> str:
    return ", for the white space" if text != text.strip() else ""


def _can_be_a_name(text: str) -> bool:
    try:
        return b"\0" not in os.fsencode(text) and bool(text.encode() or True)
    except UnicodeEncodeError:
        return False


# ----------------------------------------------------------------------------------------------------------------------
# Where brokers keep ``broker.conf``. A file found here is named in a message; it never replaces one that is given.
#
# A file counts only if it belongs to this store: its ``storePathRootDir`` is the store, or it has none and is beside
# the store, or a broker with this store was started with it.

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

    The files are read as the release `version` does. Files that cannot be read are skipped.
    """
    root = store.resolve()
    for path, directory in (*_of_running(), *_beside(root)):
        with suppress(OptionError):
            conf = BrokerConf.read(path, version)
            if _is_of(conf, root, directory) and fits(conf):
                return conf
    return None


def _is_of(conf: BrokerConf, root: Path, directory: Path) -> bool:
    """Whether a file names the store; a relative path in it starts at `directory`, or near the file."""
    assert conf.path is not None
    named = conf.text("storePathRootDir")
    if not named:
        return conf.path.parent in (root, root.parent, root / _CONF, root.parent / _CONF)
    bases = (directory, conf.path.parent, conf.path.parent.parent)
    return any((base / named).resolve() == root for base in bases)


def _beside(root: Path) -> Iterator[tuple[Path, Path]]:
    """Yield the files near a store and in ``$ROCKETMQ_HOME/conf``, each with its directory."""
    near = [root, *islice(root.parents, _PARENTS)]
    directories = [place for each in near for place in (each, each / _CONF)]
    if home := os.environ.get(_HOME):
        directories.append(Path(home) / _CONF)
    for directory in dict.fromkeys(directories):
        for name in _NAMES:
            with suppress(OSError):
                yield from ((path, directory) for path in sorted(islice(directory.glob(name), _FILES_MAX)))


def _of_running() -> Iterator[tuple[Path, Path]]:
    """Yield the files that running brokers were started with, each with the working directory of its process."""
    with suppress(OSError):
        for process in sorted(_PROCESSES.glob("[0-9]*")):
            with suppress(OSError, ValueError):  # it ended, or belongs to another user
                with (process / "cmdline").open("rb") as file:
                    words = file.read(_ARGUMENTS_BYTES_MAX).split(b"\0")
                given = _given(words) if any(_BROKER.encode() in word for word in words) else None
                if given is not None:
                    directory = (process / "cwd").readlink()
                    yield directory / os.fsdecode(given), directory


def _given(words: list[bytes]) -> bytes | None:
    """Return the file that a broker's command line names, if any."""
    options = [option.encode() for option in _OPTIONS]
    for word, after in zip(words, [*words[1:], b""], strict=True):
        if word in options and after:
            return after
        for option in options[1:]:
            if word.startswith(option + b"="):
                return word[len(option) + 1 :]
    return None
