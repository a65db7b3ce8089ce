"""Where S3 is, read once from the usual environment variables and files, as each of four libraries wants it.

Credentials are not read here: pyarrow, deltalake, boto3 and Hadoop each ask AWS' own chain for them.
"""

from __future__ import annotations

import configparser
import os
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_CONNECT_S, _REQUEST_S = 5, 60
# Where AWS itself has a bucket whose region nobody told.
_FIRST_REGION = "us-east-1"


@dataclass(frozen=True)
class S3Place:
    """The server of a bucket: its URL, None for AWS itself, and its region."""

    endpoint: str | None
    region: str

    @classmethod
    def of(cls, bucket: str) -> S3Place:
        """What environment and files say of the server; the region of a bucket of AWS is asked for if they do not.

        Raises
        ------
        OSError
            It is not told, and AWS cannot be asked.
        """
        profile = _profile()
        endpoint = _variable("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL") or profile.get("endpoint_url")
        region = _variable("AWS_REGION", "AWS_DEFAULT_REGION") or profile.get("region")
        if region is None and endpoint is None:
            region = _region_of(bucket)
        return cls(endpoint, region or _FIRST_REGION)

    def filesystem(self) -> Any:
        """Arrow's file system; an object of up to 10 MB is one request."""
        from pyarrow.fs import S3FileSystem  # noqa: PLC0415  most tables are on local disks

        options: dict[str, Any] = {"region": self.region, "allow_delayed_open": True}
        options |= {"connect_timeout": _CONNECT_S, "request_timeout": _REQUEST_S}
        if self.endpoint:
            at = urlsplit(self.endpoint)
            options |= {"endpoint_override": at.netloc + at.path.rstrip("/"), "scheme": at.scheme}
        return S3FileSystem(**options)

    def client(self) -> Any:
        """boto3's client."""
        import boto3  # noqa: PLC0415  most tables are on local disks
        from botocore.config import Config  # noqa: PLC0415

        options: dict[str, Any] = {"connect_timeout": _CONNECT_S, "read_timeout": _REQUEST_S}
        # Whoever puts looks what is there before it puts again.
        options["retries"] = {"total_max_attempts": 1}
        # Servers other than AWS have no names for buckets, and not all of them know its newer checksums.
        if self.endpoint:
            options |= {"s3": {"addressing_style": "path"}, "request_checksum_calculation": "when_required"}
        return boto3.client("s3", endpoint_url=self.endpoint, region_name=self.region, config=Config(**options))

    def deltalake_options(self) -> dict[str, str]:
        """The ``storage_options`` of deltalake."""
        options = {"aws_region": self.region, "aws_force_credential_load": "true"}
        if self.endpoint:
            options["aws_endpoint_url"] = self.endpoint
            options["aws_allow_http"] = str(urlsplit(self.endpoint).scheme == "http").lower()
        return options

    def hadoop_settings(self, scratch: Path) -> dict[str, str]:
        """Hadoop's settings; `scratch` is a directory for what is being uploaded."""
        settings = {
            "fs.s3a.aws.credentials.provider": "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
            "fs.s3a.endpoint.region": self.region,
            "fs.s3a.input.stream.type": "classic",
            "fs.s3a.buffer.dir": str(scratch),
            # An endpoint that is down is said after seconds, not minutes.
            "fs.s3a.attempts.maximum": "3",
            "fs.s3a.retry.limit": "3",
        }
        if self.endpoint:
            is_tls = urlsplit(self.endpoint).scheme == "https"
            settings["fs.s3a.endpoint"] = self.endpoint
            settings["fs.s3a.path.style.access"] = "true"
            settings["fs.s3a.connection.ssl.enabled"] = str(is_tls).lower()
        return settings

    def __str__(self) -> str:
        """For messages."""
        return self.endpoint or f"AWS, region {self.region}"


@cache
def _region_of(bucket: str) -> str:
    from pyarrow.fs import resolve_s3_region  # noqa: PLC0415  only here is it needed

    return str(resolve_s3_region(bucket))


def _variable(*names: str) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


def _profile() -> dict[str, str]:
    """What the profile in AWS' configuration file says."""
    name = os.environ.get("AWS_PROFILE") or "default"
    parser = configparser.ConfigParser(interpolation=None)
    with suppress(configparser.Error, OSError, UnicodeDecodeError):
        parser.read(os.environ.get("AWS_CONFIG_FILE") or Path.home() / ".aws" / "config", encoding="utf-8")
    section = name if name == "default" else f"profile {name}"
    return dict(parser[section]) if parser.has_section(section) else {}
