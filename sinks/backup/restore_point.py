"""Restore points, and the names of the files of a backup.

::

    points/0000000001.json                    a restore point: its files, and the settings it was made with
    log/BEGIN-END-DIGEST.zst                  a part: the bytes [BEGIN, END) of the log, both in 20 digits
    config/DIGEST.zst                         a file of configuration, by the SHA-256 of its content

Parts and files of configuration are compressed as `zstd_frames` says. Nothing is ever changed in place: a restore point
names its files with their digests, and is put in place after all of them, so a file without a restore point means
nothing. A restore point has a digest of itself.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from reput.source.errors import check_format
from reput.source.log.store_layout import POINTS
from reput.source.record.message_decoder import RecordFingerprint
from reput.source.times import time_text

LOG_PARTS: Final = "log"
CONFIG_FILES: Final = "config"
_FORMAT: Final = 1


@dataclass(frozen=True)
class StoredPart:
    """The bytes `[begin, end)` of the log; `size` and `sha256` are those of the compressed file."""

    begin: int
    end: int
    size: int
    sha256: str

    @property
    def name(self) -> str:
        """The name of the file in the backup."""
        return f"{LOG_PARTS}/{self.begin:020d}-{self.end:020d}-{self.sha256[:16]}.zst"


@dataclass(frozen=True)
class ConfigFile:
    """A file of the store's configuration: its path below the store; `size` and `sha256` are those of its content."""

    path: str
    size: int
    sha256: str

    @property
    def name(self) -> str:
        """The name of the file in the backup."""
        return f"{CONFIG_FILES}/{self.sha256}.zst"


@dataclass(frozen=True)
class RestorePoint:
    """A store as it was at a moment.

    Attributes
    ----------
    number
        The first has 1.
    created_ms
        The moment, in milliseconds since 1970: the log has every message that was stored before.
    store
        The store's path, for people.
    reput
        The release of reput.
    settings
        The options that shape queues and index, by name; ``brokerVersion`` is the broker's release.
    mapped_file_size
        Bytes of a segment; 0 if the log had none.
    begin, end
        The log's first offset and its end; a record ends at `end`.
    last_record
        The last record before `end`, or None.
    config
        The files of configuration.
    parts
        The parts of the log, in order. Between two of them is a hole if the log had one.
    """

    number: int
    created_ms: int
    store: str
    reput: str
    settings: Mapping[str, Any]
    mapped_file_size: int
    begin: int
    end: int
    last_record: RecordFingerprint | None = None
    config: Sequence[ConfigFile] = field(default_factory=tuple)
    parts: Sequence[StoredPart] = field(default_factory=tuple)

    @property
    def name(self) -> str:
        """The name of the file in the backup."""
        return f"{POINTS}/{self.number:010d}.json"

    @property
    def files(self) -> set[str]:
        """The names of the files that it needs."""
        return {part.name for part in self.parts} | {file.name for file in self.config}

    @property
    def last_stored_ms(self) -> int | None:
        """When the last message was stored, in milliseconds since 1970; None without messages."""
        return None if self.last_record is None else self.last_record.store_timestamp

    def encode(self) -> bytes:
        """Return the bytes of the file."""
        fields = {"format": _FORMAT, "created": time_text(self.created_ms), **asdict(self)}
        fields["sha256"] = _digest(fields)
        return json.dumps(fields, indent=1).encode() + b"\n"

    @classmethod
    def decode(cls, data: bytes, file: object) -> RestorePoint:
        """Return the restore point of a file's bytes; `file` is for messages.

        Raises
        ------
        ValueError
            They are not those of a restore point, or have changed.
        LaterFormatError
            A later release wrote it.
        """
        try:
            fields = json.loads(data)
            check_format(file, fields.pop("format"), _FORMAT, file=file)
            if fields.pop("sha256") != _digest({"format": _FORMAT, **fields}):
                raise ValueError("it has changed: its digest is another one")
            del fields["created"]
            last = fields.pop("last_record")
            parts = tuple(StoredPart(**each) for each in fields.pop("parts"))
            config = tuple(ConfigFile(**each) for each in fields.pop("config"))
            known = None if last is None else RecordFingerprint(**last)
            return cls(last_record=known, parts=parts, config=config, **fields)
        except (TypeError, LookupError, AttributeError) as error:
            raise ValueError(f"it is not a restore point: {error!r}") from error

    def up_to(self, end: int) -> RestorePoint:
        """Return the restore point without the parts at and after offset `end`; the last one may reach beyond it."""
        return replace(self, end=min(end, self.end), parts=tuple(each for each in self.parts if each.begin < end))


def _digest(fields: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
