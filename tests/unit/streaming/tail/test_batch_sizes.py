"""How much of the log a micro-batch takes, and a task of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from reput.streaming.config.pipeline import load_config
from reput.streaming.output.paths import LOGIC, TABLE
from reput.streaming.tail.micro_batch import BatchSizes

MIB = 1024 * 1024


@pytest.mark.parametrize("query", [LOGIC, TABLE])
@pytest.mark.parametrize(
    ("master", "options", "bytes_a_range"),
    [
        ("local[2]", {}, 256 * MIB),  # the most, and eight ranges
        ("local[16]", {}, 128 * MIB),  # one for every core
        ("local[128]", {}, 32 * MIB),  # less is not worth a task
        ("spark://host:7077", {}, 256 * MIB),  # how many cores there will be is not known
        ("local[2]", {"MaxBytesPerPartition": "700"}, 700),
        ("local[2]", {"MaxBytesPerTrigger": "100m"}, 50 * MIB),
        ("local[2]", {"MaxBytesPerTrigger": "1000"}, 32 * MIB),
    ],
)
def test_ranges_of_a_batch(
    query: str, master: str, options: dict[str, str], bytes_a_range: int, tmp_path: Path
) -> None:
    """At most the option, and no core of the machine without a range of a full batch."""
    prefix = "table" if query == TABLE else ""
    names = {name if prefix else name[0].lower() + name[1:]: value for name, value in options.items()}
    settings = [f"{prefix}{name}={value}" for name, value in names.items()]
    config = load_config(tmp_path, overrides=[f"sparkMaster={master}", *settings])
    sizes = BatchSizes.of(config, [query])
    assert sizes.bytes_a_range == bytes_a_range
    assert sizes.messages_a_batch is None


def test_a_query_for_both_takes_the_lesser_sizes(tmp_path: Path) -> None:
    """Each of the two has its own maximum."""
    settings = ["maxBytesPerTrigger=900m", "tableMaxBytesPerTrigger=800m", "tableMaxBytesPerPartition=70m"]
    config = load_config(tmp_path, overrides=["sparkMaster=local[2]", "maxMessagesPerTrigger=7", *settings])
    assert BatchSizes(800 * MIB, 7, 70 * MIB, 140 * MIB) == BatchSizes.of(config, [LOGIC, TABLE])
