"""Compare what two stores' queues and indexes hold, byte for byte."""

from __future__ import annotations

from pathlib import Path

QUEUES = ("consumequeue", "consumequeue_ext", "batchconsumequeue")


def files_below(root: Path) -> dict[str, bytes]:
    """Every file below `root` by its relative path."""
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def store_files(store: Path, *, index: bool = True) -> dict[str, bytes]:
    """A store's queue files by path, and its index files by number: an index file's name is a clock."""
    files = {f"{kind}/{name}": data for kind in QUEUES for name, data in files_below(store / kind).items()}
    if index and (store / "index").is_dir():
        for number, path in enumerate(sorted((store / "index").iterdir())):
            files[f"index/{number}"] = path.read_bytes()
    return files


def differing_bytes(left: Path, right: Path, *, index: bool = True) -> dict[str, int]:
    """Bytes that differ, by file; a file that only one store has differs in every byte. Empty when equal."""
    ours, theirs = store_files(left, index=index), store_files(right, index=index)
    differences = {}
    for name in sorted(ours.keys() | theirs.keys()):
        one, other = ours.get(name, b""), theirs.get(name, b"")
        count = sum(a != b for a, b in zip(one, other, strict=False)) if one != other else 0
        count += abs(len(one) - len(other))
        if count or (name in ours) != (name in theirs):
            differences[name] = count
    return differences
