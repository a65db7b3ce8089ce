"""Outputs that earlier releases left continue, to the bytes of a rebuild, without a migration."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.command_line import invoke
from support.earlier_outputs import COMMITS, unpack_earlier_outputs
from support.outputs import config_of
from support.rebuild_runner import rebuild
from support.sink_runner import dispatch_store
from support.store_compare import differing_bytes
from support.tail_runs import tail_of

from reput.streaming.tasks.tasks import SerialTasks
from reput.streaming.verify.store_verification import StoreVerification


@pytest.mark.parametrize("commit", COMMITS)
def test_it_goes_on(commit: str, tmp_path: Path) -> None:
    """It is sound, `recover` finds nothing to do, a tail opens it, and its sinks continue with the longer log."""
    kept = unpack_earlier_outputs(tmp_path)
    output, half, whole = kept / commit, kept / "log" / "half", kept / "log" / "whole"
    sections = StoreVerification(config_of(half), output).run(SerialTasks())
    assert [section.findings.differences for section in sections] == [0] * 4
    before = {path: path.read_bytes() for path in output.rglob("*") if path.is_file()}
    sizes = [f"{name}={value}" for name, value in (("maxHashSlotNum", 7), ("maxIndexNum", 10))]
    options = [word for each in ("mappedFileSizeConsumeQueue=100", *sizes, "tailGuardMs=0") for word in ("-o", each)]
    recovered = ["recover", "--store", str(half), "--output", str(output), "--dry-run", *options]
    assert invoke(recovered).exit_code == 0
    assert {path: path.read_bytes() for path in before} == before
    with tail_of(config_of(half), output):
        pass
    dispatch_store(config_of(whole), output)
    rebuild(config_of(whole), kept / "fresh")
    assert differing_bytes(kept / "fresh", output) == {}
