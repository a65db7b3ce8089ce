"""`Backup.verify` finds each of thirty planted faults, and names the restore points that suffer from it."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from support.backups import GrowingStore
from support.logs import put_bytes
from support.proof_counts import Proof

from reput.sinks.backup.backup_store import Backup
from reput.source.errors import StoreError

POINTS = 5


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> GrowingStore:
    growing = GrowingStore(tmp_path_factory.mktemp("sound"))
    growing.grow(POINTS)
    return growing


def of_kind(root: Path, kind: str, which: int) -> Path:
    files = sorted((root / kind).iterdir())
    return files[which % len(files)]


def gone(kind: str, which: int, root: Path) -> str:
    path = of_kind(root, kind, which)
    path.unlink()
    return path.name


def emptied(kind: str, which: int, root: Path) -> str:
    path = of_kind(root, kind, which)
    path.write_bytes(b"")
    return path.name


def torn(kind: str, which: int, root: Path) -> str:
    path = of_kind(root, kind, which)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return path.name


def longer(kind: str, which: int, root: Path) -> str:
    path = of_kind(root, kind, which)
    path.write_bytes(path.read_bytes() + b"\0")
    return path.name


def flipped(kind: str, which: int, root: Path) -> str:
    path = of_kind(root, kind, which)
    rng = random.Random(which)
    at = rng.randrange(path.stat().st_size)
    put_bytes(path, at, bytes([path.read_bytes()[at] ^ 1 << rng.randrange(8)]))
    return path.name


def exchanged(kind: str, which: int, root: Path) -> str:
    one, other = of_kind(root, kind, which), of_kind(root, kind, which + 1)
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)
    return one.name


def zeros(kind: str, which: int, root: Path) -> str:
    path = of_kind(root, kind, which)
    put_bytes(path, 0, bytes(path.stat().st_size))
    return path.name


def edited(field: str, value: object, root: Path) -> str:
    path = of_kind(root, "points", 2)
    fields = json.loads(path.read_bytes())
    fields[field] = value
    path.write_text(json.dumps(fields))
    return path.name


FAULTS: dict[str, Callable[[Path], str]] = {
    **{f"a part is gone {n}": partial(gone, "log", n) for n in (0, 3)},
    **{f"a configuration is gone {n}": partial(gone, "config", n) for n in (0, 3)},
    **{f"a restore point is gone {n}": partial(gone, "points", n) for n in (1, 2)},
    **{f"{kind} is emptied": partial(emptied, kind, 1) for kind in ("log", "config", "points")},
    **{f"{kind} is torn": partial(torn, kind, 2) for kind in ("log", "config", "points")},
    **{f"{kind} is longer": partial(longer, kind, 1) for kind in ("log", "config")},
    **{f"a bit of {kind} {n}": partial(flipped, kind, n) for kind in ("log", "config") for n in range(3)},
    **{f"a bit of points {n}": partial(flipped, "points", n) for n in range(2)},
    **{f"{kind} are exchanged": partial(exchanged, kind, 0) for kind in ("log", "config", "points")},
    **{f"{kind} is zeros": partial(zeros, kind, 1) for kind in ("log", "config", "points")},
    "another end": partial(edited, "end", 1),
    "another begin": partial(edited, "begin", 4096),
    "without parts": partial(edited, "parts", []),
}


def is_sound(backup: Backup, sound: GrowingStore, number: int) -> bool:
    """Whether all of a restore point can be read, and is what the store had."""
    try:
        point = backup.point(number)
        log = backup.read_log(point, 0, point.end)
        contents = [backup.config_content(file) for file in point.config]
    except StoreError:
        return False
    return len(contents) == 2 and log == sound.bytes_of_log(0, point.end)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str, sound: GrowingStore, tmp_path: Path, proof: Proof) -> None:
    """With the name of the file; the restore points that it says are sound can be read."""
    root = shutil.copytree(sound.root / "backup", tmp_path / "backup")
    name = FAULTS[fault](root)
    backup = Backup(root)
    found = backup.verify()
    assert name in {Path(each.file).name for each in found.faults}
    assert found.broken
    for number in range(1, POINTS + 1):
        assert is_sound(backup, sound, number) == (number not in found.broken)
    proof("G16 faults planted in a backup")


def test_there_are_thirty() -> None:
    """Of every kind of file."""
    assert len(FAULTS) >= 30


def test_a_sound_backup(sound: GrowingStore) -> None:
    """All of its files are counted."""
    found = Backup(sound.root / "backup").verify()
    assert (found.faults, found.broken, found.points) == ([], [], POINTS)
    assert found.log_bytes >= sound.log.max_offset
