"""`reput verify --against` on two replicas of a controller's group: where their logs part, and what that costs."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.command_line import invoke
from support.record_writer import CommitLogWriter, Message

SIZE = 4096


def message(number: int, key: str, queue_id: int = 0) -> Message:
    return Message("T", queue_id=queue_id, body=b"b" * 100, properties={"UNIQ_KEY": f"{key}{number}"})


@dataclass
class Pair:
    """Two stores: a common beginning of 40 messages, then more of each."""

    root: Path
    parting: int = 0

    @classmethod
    def of(cls, root: Path, here: list[Message], there: list[Message]) -> Pair:
        pair = cls(root)
        for side, more in (("here", here), ("there", there)):
            with CommitLogWriter(root / side / "commitlog", SIZE) as writer:
                for number in range(40):
                    writer.append(message(number, "common", number % 2))
                pair.parting = writer.max_offset
                for each in more:
                    writer.append(each)
            (root / side / "config").mkdir()
        return pair

    def epochs(self, side: str, *entries: tuple[int, int]) -> None:
        lines = "".join(f"{epoch}-{start}\n" for epoch, start in entries)
        (self.root / side / "epochFileCheckpoint").write_text(f"{len(entries)}\n0\n{lines}")

    def consumers(self, side: str, offset: int) -> None:
        table = {"offsetTable": {"T@group": {0: offset, 1: 3}, "Other@group": {0: 1000}}}
        (self.root / side / "config/consumerOffset.json").write_text(json.dumps(table))

    def verify(self, *more: str) -> tuple[int, dict[str, Any]]:
        words = ["verify", "--store", str(self.root / "here"), "--against", str(self.root / "there"), "--json"]
        done = invoke([*words, *more])
        assert done.exit_code in (0, 1), done.output
        found: dict[str, Any] = json.loads(done.stdout)["parts"]
        return done.exit_code, found


def test_both_went_on(tmp_path: Path) -> None:
    """Each has messages of its own, some at the same place of a queue; a group has read what one of them lacks."""
    here = [message(number, "mine") for number in range(5)]
    there = [*(message(number, "other") for number in range(2)), message(9, "other", 1)]
    pair = Pair.of(tmp_path, here, there)
    pair.epochs("here", (1, 0))
    pair.epochs("there", (1, 0), (2, pair.parting))
    pair.consumers("here", 25)
    pair.consumers("there", 20)
    found = pair.verify()[1]["replicas"]
    assert found["by_kind"] == {
        "logs_part": 1,
        "message_only_here": 5,
        "message_only_there": 3,
        "queue_offset_shared": 2,
        "consumer_offset_beyond": 1,
    }
    first = {each["kind"]: each for each in reversed(found["first"])}
    assert first["logs_part"]["physical_offset"] == pair.parting
    assert first["message_only_here"]["text"] == (
        "only here: T-0, queue offset 20 with unique key mine0, lost if the other one leads"
    )
    assert first["queue_offset_shared"]["text"] == (
        "T-0, queue offset 20 with unique key mine0 here, is another message there"
    )
    assert (first["queue_offset_shared"]["expected"], first["queue_offset_shared"]["found"]) == ("mine0", "other0")
    assert "group group is at 25 of T-0 (here), and the queue ends at 22" in first["consumer_offset_beyond"]["text"]
    remarks = "\n".join(found["remarks"])
    assert f"cuts its log at {pair.parting}, in epoch 1" in remarks
    assert f"part at {pair.parting} in its epoch 2" in remarks


def test_one_is_behind(tmp_path: Path) -> None:
    """It would copy the messages that it lacks; a group of the other one is ahead of it."""
    pair = Pair.of(tmp_path, [message(number, "more") for number in range(30)], [])
    pair.epochs("here", (1, 0))
    pair.epochs("there", (1, 0))
    pair.consumers("there", 33)
    found = pair.verify()[1]["replicas"]
    assert found["by_kind"] == {"logs_part": 1, "message_only_here": 30, "consumer_offset_beyond": 1}
    assert "is at 33 of T-0 (there), and the queue ends at 20 if the one there leads" in found["first"][1]["text"]


def test_the_same(tmp_path: Path) -> None:
    pair = Pair.of(tmp_path, [message(1, "both")], [])
    shutil.rmtree(tmp_path / "there")
    pair.epochs("here", (3, 0))
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    found = pair.verify()[1]["replicas"]
    assert (found["differences"], found["compared"]) == (0, {"messages": 0})


def test_epochs_that_hide_a_difference(tmp_path: Path) -> None:
    """Both logs grew in what both call epoch 1: a replica would keep its own messages and follow the other one."""
    pair = Pair.of(tmp_path, [message(1, "mine")], [message(2, "other")])
    for side in ("here", "there"):
        pair.epochs(side, (1, 0))
    found = pair.verify()[1]["replicas"]["by_kind"]
    assert found == {
        "logs_part": 1,
        "epochs_hide_difference": 1,
        "message_only_here": 1,
        "message_only_there": 1,
        "queue_offset_shared": 1,
    }


def test_no_common_epoch(tmp_path: Path) -> None:
    pair = Pair.of(tmp_path, [], [])
    pair.epochs("here", (1, 0))
    pair.epochs("there", (2, 0))
    assert pair.verify()[1]["replicas"]["by_kind"] == {"no_common_epoch": 1}


@pytest.mark.parametrize("more", [0, 1])
def test_an_expired_beginning(more: int, tmp_path: Path) -> None:
    """Replicas remove their segments at times of their own."""
    pair = Pair.of(tmp_path, [message(number, "mine") for number in range(more)], [])
    for side in ("here", "there"):
        pair.epochs(side, (1, 0))
    min((tmp_path / "there/commitlog").iterdir()).unlink()
    assert pair.verify()[1]["replicas"]["differences"] == 2 * more


def test_without_a_controller(tmp_path: Path) -> None:
    pair = Pair.of(tmp_path, [message(1, "mine")], [])
    assert "replicas" not in pair.verify()[1]
