"""`reput convert` stopped at any call that changes the disk: the old store is as it was, the new one none or whole."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest
from faults.fault_files import Stopped, stopped_at
from support.broker_stores import unpack
from support.proof_counts import Proof
from support.sink_runner import files_below, index_contents, no_fsync

from reput.streaming.config.pipeline import load_config
from reput.streaming.convert.convert import Conversion, Converted


def convert(old: Path, new: Path) -> Converted:
    config = load_config(old / "store", broker_conf=old / "broker.conf", knows_rocksdb=True)
    with no_fsync():
        return Conversion(config, new).run()


def contents(new: Path) -> tuple[dict[str, bytes], list[bytes]]:
    """All of a store but reput's own notes; index files have times as names."""
    files = files_below(new)
    kept = {name: data for name, data in files.items() if not name.startswith(("index/", "reput/", "lock"))}
    return kept, index_contents(new)


@pytest.mark.usefixtures("waits_are_skipped")
@pytest.mark.parametrize("step", [40, pytest.param(1, marks=pytest.mark.slow)])
def test_stopped_at_calls(step: int, tmp_path: Path, proof: Proof) -> None:
    old, new = unpack("v4-dledger", tmp_path), tmp_path / "new"
    before = files_below(old)
    result, expected = convert(old, tmp_path / "whole"), contents(tmp_path / "whole")
    assert result.messages == 8216
    assert sum(name.startswith("commitlog/") for name in expected[0]) == 3
    for number in itertools.count(1, step):
        shutil.rmtree(new, ignore_errors=True)
        try:
            with stopped_at(number):
                convert(old, new)
            lived = True
        except Stopped:
            lived = False
        found = {path.name for path in new.iterdir()} if new.exists() else set()
        if not (new / "reput/rebuild/swap.json").exists() and not (new / "reput/convert.json").exists():
            assert found <= {"reput", "lock", "abort", ".abort.tmp"}, "a broker would begin with a part of the messages"
        elif not lived and found & {"config", "commitlog"} and (new / "reput/rebuild/swap.json").exists():
            assert "abort" in found, "a broker would take a part of the queues for all"
        assert convert(old, new) == result
        assert contents(new) == expected
        assert not (new / "reput/rebuild").exists()
        assert not (new / "abort").exists()
        if lived:
            break
    assert number > 30
    assert files_below(old) == before
    assert {path.name for path in tmp_path.iterdir()} == {"v4-dledger", "new", "whole"}
    proof("G6 calls at which a conversion was stopped", number // step)
