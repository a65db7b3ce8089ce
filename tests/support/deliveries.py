"""The notes of the consumers in the workload "traces", compared with `reput ask consumed`."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from support.command_line import invoke

Row = dict[str, Any]
TRACED = ("traced", "traced-orderly")
POPPED = "popped"


def ask_consumed(table: Path, key: str, *words: str) -> list[Row]:
    """The rows of the answer; a message that no consumer can get has none."""
    result = invoke(["ask", "consumed", "--table", str(table), "--format", "json", "--key", key, *words])
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def moment_ms(text: str) -> int:
    moment = datetime.fromisoformat(text).replace(tzinfo=timezone.utc)
    return round(moment.timestamp() * 1000)


def check_deliveries(clients: dict[str, Any], table: Path, *words: str, consumers_trace: bool = True) -> Counter[str]:
    """Compare each delivery with the answer, which must have it once and with both of its times; count the states."""
    states: Counter[str] = Counter()
    for message in clients["sent"]:
        if message["keys"] == "KEY-5":  # rolled back
            continue
        rows = ask_consumed(table, message["uniq_key"], *words)
        states.update(row["state"] for row in rows if row["evidence"] in ("trace", "pop"))
        deliveries = [each for each in clients["deliveries"] if each["uniq_key"] == message["uniq_key"]]
        for group in {each["group"] for each in deliveries}:
            told = [row for row in rows if row["consumer_group"] == group]
            of_group = sorted(
                (each for each in deliveries if each["group"] == group), key=lambda each: each["began_ms"]
            )
            if group in TRACED and consumers_trace:
                _check_traces(of_group, told)
            elif group == POPPED:
                _check_pops(of_group, told)
            else:
                assert not any(row["evidence"] in ("trace", "pop") for row in told)
    return states


def _check_traces(deliveries: list[Row], told: list[Row]) -> None:
    given = sorted((row for row in told if row["state"] == "given"), key=lambda row: str(row["passed_after"]))
    ended = sorted((row for row in told if row["state"] != "given"), key=lambda row: str(row["passed_after"]))
    assert len(deliveries) == len(given) == len(ended)
    for delivery, begin, end in zip(deliveries, given, ended, strict=True):
        assert begin["precision_ms"] == end["precision_ms"] == 0
        assert moment_ms(begin["passed_after"]) <= delivery["began_ms"]
        assert moment_ms(end["passed_before"]) >= delivery["ended_ms"]
        assert end["state"] == ("consumed" if delivery["success"] else "failed")
        assert end["physical_offset"] == begin["physical_offset"]


def _check_pops(deliveries: list[Row], told: list[Row]) -> None:
    given = sorted((row for row in told if row["state"] == "given"), key=lambda row: str(row["passed_after"]))
    ended = sorted((row for row in told if row["state"] != "given"), key=lambda row: str(row["passed_after"]))
    assert len(deliveries) == len(given) == len(ended)
    for delivery, begin, end in zip(deliveries, given, ended, strict=True):
        assert moment_ms(begin["passed_before"]) <= delivery["began_ms"]
        assert moment_ms(end["passed_before"]) >= delivery["ended_ms"]
        assert end["state"] == ("acknowledged" if delivery["success"] else "postponed")
        assert end["reconsume_times"] == begin["reconsume_times"] == delivery["reconsume_times"]
