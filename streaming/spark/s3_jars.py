"""What Spark needs for a table on S3: Hadoop's jars for it, which Ivy gets once, and Hadoop's settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from reput.sinks.table.location import S3Location, TableLocation
from reput.sinks.table.s3_place import S3Place
from reput.source.errors import EnvironmentSetupError
from reput.streaming.process.jvm import spark_home

# The version of AWS' library that Hadoop of this version was built with.
_HADOOP, _SDK = "3.5.0", "2.35.4"
#: Of AWS' library only the parts that Hadoop loads: all of it would be 600 MB.
PACKAGES = (
    f"org.apache.hadoop:hadoop-aws:{_HADOOP}",
    f"software.amazon.awssdk:s3:{_SDK}",
    f"software.amazon.awssdk:s3-transfer-manager:{_SDK}",
    f"software.amazon.awssdk:sts:{_SDK}",
    "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1",
)
# The rest is Spark's, or for what Delta does not do.
_EXCLUDED = (
    *("software.amazon.awssdk:bundle", "software.amazon.awssdk:netty-nio-client", "software.amazon.awssdk.crt:*"),
    *("io.netty:*", "org.wildfly.openssl:*", "org.apache.httpcomponents:*", "org.slf4j:*", "commons-codec:*"),
    *("commons-logging:*", "org.apache.parquet:*", "org.apache.hadoop:hadoop-common"),
)
_CLIENT = re.compile(r"hadoop-client-api-(.+)\.jar")


def place_of(table: TableLocation | None) -> S3Place | None:
    """Where S3 is for a table there; None for another one.

    Raises
    ------
    EnvironmentSetupError
        This Spark has another Hadoop.
    """
    if not isinstance(table, S3Location):
        return None
    found = [match[1] for path in (spark_home() / "jars").glob("*.jar") if (match := _CLIENT.fullmatch(path.name))]
    if found != [_HADOOP]:
        raise EnvironmentSetupError(
            f"{table}: a table on S3 needs a Spark with Hadoop {_HADOOP}, and {spark_home()} has {', '.join(found)}",
            advice="use the Spark that reput is installed with",
        )
    return S3Place.of(table.bucket)


def settings(place: S3Place, scratch: Path, *, with_packages: bool) -> Mapping[str, str]:
    """Spark's settings for tables there; `with_packages` has it get the jars."""
    hadoop = {f"spark.hadoop.{name}": value for name, value in place.hadoop_settings(scratch / "s3a").items()}
    return {**hadoop, "spark.jars.excludes": ",".join(_EXCLUDED)} if with_packages else hadoop
