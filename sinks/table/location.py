"""The place of a table: a directory on a local disk, or a prefix of an S3 bucket."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from reput.source.errors import OptionError, OutputAwayError

_SCHEMES = ("s3a", "s3")


@dataclass(frozen=True)
class S3Location:
    """A prefix of a bucket: `key` has no slash at its ends. It joins and is shown like a path."""

    bucket: str
    key: str

    def __str__(self) -> str:
        """Spark's and Hadoop's name of it."""
        return f"s3a://{self.bucket}/{self.key}".rstrip("/")

    def __truediv__(self, name: str) -> S3Location:
        return S3Location(self.bucket, f"{self.key}/{name}".strip("/"))

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.key.rpartition("/")[2]

    def resolve(self) -> S3Location:
        """The location itself: a key has no links."""
        return self


#: A table's root.
TableLocation: TypeAlias = Path | S3Location


def is_s3(text: str) -> bool:
    """Whether a text names something on S3."""
    return urlsplit(text).scheme in _SCHEMES


def parse_location(text: str) -> TableLocation:
    """The location that a text names, such as ``/data/t`` or ``s3a://bucket/t``.

    Raises
    ------
    OptionError
        It names no bucket, no key in it, or a key that no table may have.
    """
    if not is_s3(text):
        return Path(text)
    if "@" in text:  # the text before it may be a secret, which no message shows
        raise OptionError(
            "a table on S3 has no credentials in its name",
            advice="leave them to AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or to ~/.aws/credentials",
        )
    bucket, _, key = text.partition("://")[2].partition("/")
    parts = key.strip("/").split("/")
    if not bucket or not all(parts) or {".", ".."} & set(parts) or any(mark in text for mark in "?#%\\ "):
        raise OptionError(
            f"{text}: no place for a table on S3", advice="give it as s3a://BUCKET/PATH, of letters, digits and -_./"
        )
    return S3Location(bucket, "/".join(parts))


def beside(table: TableLocation, ending: str) -> TableLocation:
    """The location with `ending` appended to its name."""
    if isinstance(table, S3Location):
        return S3Location(table.bucket, table.key + ending)
    return table.with_name(table.name + ending)


def table_away(path: TableLocation) -> OutputAwayError:
    """The error for a table that existed before and is gone."""
    cause = f"{path}: there is no Delta table any more: its directory or its _delta_log is gone"
    return OutputAwayError(cause, advice="put it back, or start again", file=path)


def quarantine_table_path(table: TableLocation) -> TableLocation:
    """The path of the quarantine's table: that of the message table `table` plus ``-quarantine``."""
    return beside(table, "-quarantine")


def consumption_table_path(table: TableLocation) -> TableLocation:
    """The path of the ledger: that of the message table `table` plus ``-consumption``."""
    return beside(table, "-consumption")


def logged_name(table: TableLocation, logged: str) -> str:
    """The name in ``TableStorage`` of a data file that a table's log names by a URL-encoded name or a URI.

    It is the path below the table's root, or the whole location of a file elsewhere.
    """
    if ":" not in logged and not logged.startswith("/"):
        return unquote(logged)
    if isinstance(table, S3Location):
        for front in (f"s3a://{table.bucket}/{table.key}/", f"s3://{table.bucket}/{table.key}/"):
            logged = logged.removeprefix(front)
        return unquote(logged)
    path = Path(unquote(urlsplit(logged).path)) if logged.startswith("file:") else table / unquote(logged)
    for root in (table, table.resolve()):
        if path.is_relative_to(root):
            return str(path.relative_to(root))
    return str(path)
