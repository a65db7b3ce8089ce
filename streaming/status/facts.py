"""What does not change while a run lasts: versions, paths, and the options that differ from their defaults."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from reput.sinks.table.location import TableLocation
from reput.streaming.config.broker import broker_version, version_text
from reput.streaming.config.pipeline import PIPELINE_OPTIONS, PipelineConfig
from reput.streaming.output.paths import OutputPaths

_PACKAGES: Final = {"reput": "rocketmq-reput", "pyspark": "pyspark", "delta-spark": "delta-spark", "pyarrow": "pyarrow"}


def versions() -> dict[str, str]:
    """The releases of what a run is made of, by name."""
    found = {"python": platform.python_version()}
    for name, package in _PACKAGES.items():
        try:
            found[name] = version(package)
        except PackageNotFoundError:  # reput may run from its source tree
            continue
    return found


def facts_of(config: PipelineConfig, paths: OutputPaths) -> dict[str, Any]:
    """Of one broker's run: paths, the broker's release, and the options that differ from their defaults, as text."""
    table: TableLocation | None = paths.table
    defaults = {spec.name: spec.default for spec in PIPELINE_OPTIONS}
    return {
        "store": str(config.store),
        "output": str(paths.output),
        "table": None if table is None else str(table),
        "brokerVersion": version_text(broker_version(config.broker.version, config.store)),
        "options": {name: str(value) for name, value in config.values.items() if value != defaults[name]},
    }
