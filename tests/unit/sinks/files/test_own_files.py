"""The files that a swap and a removal leave: those below the folders of queues and index that reput cannot name."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from support.sink_runner import files_below

from reput.sinks.files import own_files
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.own_files import foreign_paths, remove_own
from reput.sinks.files.swap import finish_swap, swap
from reput.source.errors import OutputError, SinkError

FIRST = f"{0:020d}"
INDEX_FILE = "20260101000000000"
OWN = (
    f"consumequeue/A/0/{FIRST}",
    f"consumequeue/A/0/{20:020d}",
    f"consumequeue/%LMQ%light queue/0/{FIRST}",
    f"consumequeue_ext/A/0/{FIRST}",
    f"batchconsumequeue/B/12/{FIRST}",
    f"index/{INDEX_FILE}",
)
OTHERS = (
    "consumequeue/CURRENT",
    "consumequeue/LOCK",
    "consumequeue/MANIFEST-000005",
    "consumequeue/000004.log",
    "consumequeue/000010.sst",
    f"consumequeue/{FIRST}",
    f"consumequeue/lost+found/0/{FIRST}",
    f"consumequeue/T.old/0/{FIRST}",
    "consumequeue/A/0.bak",
    f"consumequeue/A/00/{FIRST}",
    f"consumequeue/A/{2**31}/{FIRST}",
    f"consumequeue/A/0/{FIRST}.bak",
    f"consumequeue/A/0/kept/{FIRST}",
    f"consumequeue/Old/A/0/{FIRST}",
    "index/notes.txt",
    f"index/old/{INDEX_FILE}",
)
#: A swap moves each of these folders as a whole.
WHOLE = [((name,), (name,)) for name in own_files.DERIVED]


def put(root: Path, *names: str, data: bytes = b"old") -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


@pytest.fixture
def files(tmp_path: Path) -> DurableFiles:
    put(tmp_path, *OWN)
    return DurableFiles(tmp_path)


def made(files: DurableFiles) -> Path:
    return files.root / "reput" / "rebuild"


def test_what_reput_can_name(files: DurableFiles) -> None:
    assert [path for name in own_files.DERIVED for path in foreign_paths(files.root, (name,))] == []


@pytest.mark.parametrize("other", OTHERS)
def test_each_is_left_by_a_swap_and_by_a_removal(other: str, files: DurableFiles) -> None:
    put(files.root, other)
    put(made(files), f"consumequeue/A/0/{FIRST}", f"consumequeue/C/0/{FIRST}", "index/20270101000000000", data=b"new")
    swap(files, WHOLE)
    expected = {f"consumequeue/A/0/{FIRST}", f"consumequeue/C/0/{FIRST}", "index/20270101000000000"}
    assert files_below(files.root) == {other: b"old", **dict.fromkeys(expected, b"new")}
    for name in own_files.DERIVED:
        remove_own(files, name)
    assert files_below(files.root) == {other: b"old"}


def test_nothing_is_moved_that_is_not_reputs(files: DurableFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even for a moment: a broker that starts in between would make a new database."""
    put(files.root, *OTHERS)
    put(made(files), *OWN, data=b"new")
    move = DurableFiles.move

    def moved(self: DurableFiles, source: tuple[str, ...], target: tuple[str, ...]) -> None:
        move(self, source, target)
        assert files_below(files.root).keys() >= set(OTHERS)

    monkeypatch.setattr(DurableFiles, "move", moved)
    swap(files, WHOLE)
    assert files_below(files.root) == {**dict.fromkeys(OTHERS, b"old"), **dict.fromkeys(OWN, b"new")}


def test_a_queue_with_an_odd_name_is_replaced_by_one_of_its_name(files: DurableFiles) -> None:
    """A message may name any further queue; where the rebuild makes none, such a directory is left."""
    put(files.root, f"consumequeue/ %LMQ%b/0/{FIRST}", f"consumequeue/lost+found/0/{FIRST}")
    put(made(files), f"consumequeue/A/0/{FIRST}", f"consumequeue/ %LMQ%b/0/{FIRST}", data=b"new")
    swap(files, WHOLE)
    assert files_below(files.root) == {
        f"consumequeue/A/0/{FIRST}": b"new",
        f"consumequeue/ %LMQ%b/0/{FIRST}": b"new",
        f"consumequeue/lost+found/0/{FIRST}": b"old",
    }


def test_links_stay_and_are_not_followed(files: DurableFiles, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    put(elsewhere, f"0/{FIRST}")
    links = [files.root / "consumequeue" / "Linked", files.root / "index" / "20250101000000000"]
    links[0].symlink_to(elsewhere)
    links[1].symlink_to(elsewhere / "0" / FIRST)
    put(made(files), *OWN, data=b"new")
    swap(files, WHOLE)
    for name in own_files.DERIVED:
        remove_own(files, name)
    assert all(link.is_symlink() for link in links)
    assert files_below(elsewhere) == {f"0/{FIRST}": b"old"}
    with pytest.raises(OutputError, match=r"cannot remove .*index/20250101000000000: it is a symbolic link"):
        files.remove("index", "20250101000000000")


@pytest.mark.parametrize("name", ["consumequeue", "consumequeue/A", "consumequeue/A/0", f"index/{INDEX_FILE}"])
def test_a_link_in_the_way_is_refused(name: str, files: DurableFiles) -> None:
    """Before the note of the swap: nothing is changed."""
    (files.root / name).rename(files.root / "elsewhere")
    (files.root / name).symlink_to(files.root / "elsewhere")
    put(made(files), *OWN, data=b"new")
    before = files_below(files.root)
    with pytest.raises(OutputError, match=rf"{name} is a symbolic link, which is not reput's .*nothing was changed"):
        swap(files, WHOLE)
    assert files_below(files.root) == before


def test_a_file_in_the_way_is_refused(files: DurableFiles) -> None:
    put(files.root, "consumequeue/C")
    put(made(files), f"consumequeue/C/0/{FIRST}", data=b"new")
    with pytest.raises(OutputError, match=r"consumequeue/C is a file, which is not reput's to replace"):
        swap(files, WHOLE)


@pytest.mark.parametrize(("name", "refused"), [("consumequeue", True), ("consumequeue/A", True), ("index", False)])
def test_a_mount_point(name: str, refused: bool, files: DurableFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot be renamed, and what is below it may be another disk; it stays where nothing takes its place."""
    table = files.root / "mountinfo"
    path = str(files.root / name).replace(" ", r"\040")
    table.write_text(f"22 1 8:1 / / rw - ext4 /dev/sda rw\n40 22 8:2 / {path} rw - xfs /dev/sdb rw\n")
    monkeypatch.setattr(own_files, "_MOUNTS", table)
    put(made(files), f"consumequeue/A/0/{FIRST}", data=b"new")
    if refused:
        with pytest.raises(OutputError, match=f"{name} is a mount point, which is not reput's to replace"):
            swap(files, WHOLE)
    else:
        swap(files, WHOLE)
    assert (files.root / "index" / INDEX_FILE).read_bytes() == b"old"


def test_what_an_earlier_release_put_away_is_put_back(files: DurableFiles) -> None:
    """It swapped whole folders, and died before it removed the old ones."""
    old = made(files) / "old"
    for name in ("consumequeue", "index"):
        old.mkdir(parents=True, exist_ok=True)
        os.replace(files.root / name, old / name)
    put(files.root, f"consumequeue/A/0/{FIRST}", f"index/{INDEX_FILE}", data=b"new")
    put(old, *OTHERS)
    note = {"may_empty": False, "moves": [[[name], [name], True] for name in ("consumequeue", "index")]}
    files.replace("reput", "rebuild", "swap.json", data=json.dumps(note).encode())
    put(files.root, "consumequeue/CURRENT", data=b"made since")
    with pytest.raises(SinkError, match=r"old/consumequeue/CURRENT was put away by a rebuild, is not reput's, and its"):
        finish_swap(files)
    (files.root / "consumequeue" / "CURRENT").unlink()
    assert finish_swap(files)
    assert {name for name, data in files_below(files.root).items() if data == b"old"} >= set(OTHERS)
    assert not made(files).exists()
