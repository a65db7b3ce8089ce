"""`reput tail` of several brokers from a command line: the calls it refuses, and its reports of brokers that end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.command_line import invoke
from support.record_writer import Message, write_log
from typer.testing import Result


def tail(*words: object) -> Result:
    return invoke(["tail", "--available-now", *map(str, words)])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Sections of the brokers `a` and `b`, each with a small store."""
    sections = []
    for name in "ab":
        write_log(tmp_path / name / "store" / "commitlog", [Message()], 1024)
        sections.append(
            f'[[broker]]\nbroker = "{name}"\nstore = "{tmp_path}/{name}/store"\noutput = "{tmp_path}/{name}/out"\n'
        )
    path = tmp_path / "brokers.toml"
    path.write_text("\n".join(sections))
    return path


def test_store_and_output_are_missing_as_ever_without_sections(tmp_path: Path, file: Path) -> None:
    """One alone is not enough, whatever the file has."""
    (tmp_path / "reput.toml").write_text("tailGuardMs = 20\n")
    for words, name in (
        ((), "--store"),
        (("--config", tmp_path / "reput.toml"), "--store"),
        (("--config", file, "--output", tmp_path / "out"), "--store"),
        (("--config", file, "--store", tmp_path / "a" / "store"), "--output"),
    ):
        done = tail(*words)
        assert done.exit_code == 2
        assert done.stderr.splitlines()[-1] == f"Error: Missing option '{name}'."
        assert "Usage: reput tail [OPTIONS]" in done.stderr or "Usage: " in done.stderr


@pytest.mark.parametrize("name", ["--broker-conf", "--checkpoint"])
def test_what_belongs_to_one_broker_is_refused(name: str, tmp_path: Path, file: Path) -> None:
    """On the command line it would be every broker's."""
    done = tail("--config", file, name, tmp_path / "x")
    assert done.exit_code == 2
    assert done.stderr == (
        f"reput: {name} is one broker's, and {file} has sections of several; give it in the broker's section\n"
    )


def test_two_brokers_of_one_name_are_refused(tmp_path: Path, file: Path) -> None:
    """Here by what the command line says for all; nothing is written."""
    done = tail("--config", file, "--option", "broker=same")
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert "[[broker]] 2: its broker is called same, as that of section 1" in line
    assert not (tmp_path / "a" / "out").exists()


def test_an_output_in_another_brokers_log_is_refused(tmp_path: Path, file: Path) -> None:
    """Wherever its broker.conf has it."""
    (tmp_path / "broker.conf").write_text(f"storePathCommitLog={tmp_path}/b/out/log\n")
    log = tmp_path / "b" / "out" / "log"
    (tmp_path / "a" / "store" / "commitlog").rename(tmp_path / "log")
    log.parent.mkdir(parents=True)
    (tmp_path / "log").rename(log)
    text = file.read_text().replace(f'{tmp_path}/b/out"', f'{log}/out"')
    file.write_text(text.replace("[[broker]]", f'[[broker]]\nbrokerConf = "{tmp_path}/broker.conf"', 1))
    done = tail("--config", file)
    assert done.exit_code == 1
    assert f"--output {log}/out is inside the commitlog {log}" in done.stderr


def test_each_that_ends_has_its_line(
    tmp_path: Path, file: Path, hold_lock: Callable[[Path], int], caplog: pytest.LogCaptureFixture
) -> None:
    """One whose store is missing, one whose output another process keeps; Spark is not needed for that."""
    (tmp_path / "a" / "store").rename(tmp_path / "a" / "elsewhere")
    output = tmp_path / "b" / "out"
    output.mkdir()
    process = hold_lock(output / "lock")
    done = tail("--config", file)
    assert done.exit_code == 1
    assert done.stdout == "a: nothing was kept\nb: nothing was kept\n"
    first, second = done.stderr.splitlines()[-2:]
    assert first.startswith("reput: a: ")
    assert f"{tmp_path}/a/store" in first
    assert second.startswith(f"reput: b: {output}/lock is locked by process {process}: ")
    as_json = tail("--config", file, "--json")
    assert json.loads(as_json.stdout) == {"brokers": {"a": {"summary": []}, "b": {"summary": []}}}
    found = [json.loads(line) for line in as_json.stderr.splitlines() if line.startswith('{"broker"')]
    assert [(each["broker"], each["error"]["code"]) for each in found] == [("a", "store"), ("b", "output-locked")]
