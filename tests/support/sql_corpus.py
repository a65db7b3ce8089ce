"""The statements of tests/data that `reput sql` must run, or refuse."""

from __future__ import annotations

from pathlib import Path

from support.paths import DATA


def statements(name: str, **paths: Path | str) -> list[tuple[str, str]]:
    """Kind and text of each statement of a file of tests/data."""
    found, kind = [], ""
    for line in (DATA / name).read_text(encoding="utf-8").splitlines():
        if line.startswith("-- kind: "):
            kind = line.removeprefix("-- kind: ")
        elif line and not line.startswith("-- "):
            for key, path in paths.items():
                line = line.replace(f"{{{key}}}", str(path))  # noqa: PLW2901
            found.append((kind, line))
    return found
