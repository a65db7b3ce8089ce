"""How old files are does not depend on how the time of day is set under a process."""

from __future__ import annotations

from reput.sinks.files.file_system import now_for_ages

DAY_S = 86_400.0


def test_set_forwards_makes_no_file_older() -> None:
    """Nor does a machine that was suspended; what goes by does."""
    assert now_for_ages(lambda: 1_100.0, lambda: 100.0, 1_000.0) == 1_100.0
    assert now_for_ages(lambda: 1_107.0, lambda: 107.0, 1_000.0) == 1_107.0
    assert now_for_ages(lambda: 1_107.0 + 3 * DAY_S, lambda: 107.0, 1_000.0) == 1_107.0


def test_set_back_files_are_younger() -> None:
    """Files written after that also have the earlier time."""
    assert now_for_ages(lambda: 1_107.0 - 3 * DAY_S, lambda: 107.0, 1_000.0) == 1_107.0 - 3 * DAY_S
