"""Words that `reput` cannot read: what may be meant, as text or as JSON; and completion by real shells."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer.testing
from support.command_line import APPLICATION, command_of, invoke, option_names, run_reput

from reput.source.printable import counted
from reput.streaming.cli.app import SECTIONS, Application, verdict
from reput.streaming.cli.options import Json

BIN = Path(sys.executable).parent


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["tail", "--optoin", "a=1"], "No such option: '--optoin'. Did you mean --option?"),
        (["verify", "--storr", "x"], "No such option: '--storr'. Did you mean --store?"),
        (["query", "--Topic", "x"], "No such option: '--Topic'. Did you mean --topic"),
        (["table", "describe", "--tabel", "x"], "No such option: '--tabel'. Did you mean --table?"),
        (["ask", "life", "--zzz"], "No such option: '--zzz'.\n"),
        (["tial"], "No such command 'tial'. Did you mean 'tail'"),
        (["ask", "--table", "x", "life"], "--table comes after the command: 'reput ask COMMAND --table ...'."),
        (["--store", "x", "verify"], "--store comes after the command: 'reput COMMAND --store ...'."),
    ],
)
def test_what_may_be_meant(words: Sequence[str], meant: str) -> None:
    """Only what looks like it, the nearest first; exit code 2."""
    result = run_reput(words, code=2)
    assert meant in result.output
    assert "Possible options" not in result.output
    assert result.output.startswith("Usage: ")


@pytest.mark.parametrize(
    ("words", "cause", "command"),
    [
        (["verify", "--json", "--storr", "x"], "No such option: '--storr'. Did you mean --store?", "verify"),
        (["verify", "--json"], "Missing option '--store'", "verify"),
        (["query", "--json", "--keys", "k"], "No such option: '--keys'. Did you mean --key?", "query"),
        (["sql", "--json"], "Missing option '--table'", "sql"),
        (["ask", "life", "--json", "--kez", "k"], "No such option: '--kez'. Did you mean --key?", "ask life"),
        (["report", "--json"], "Missing option '--table'", "report"),
        (["table", "describe", "--json", "--tabel", "x"], "No such option: '--tabel'. Did you mean", "table describe"),
        (["query", "--format", "json", "--zzz"], "No such option: '--zzz'", "query"),
        (["query", "--format=json", "--zzz"], "No such option: '--zzz'", "query"),
        (["tial", "--json"], "No such command 'tial'", ""),
        (
            ["table", "history", "--table", "x", "--json", "--limit", "a"],
            "Invalid value for '--limit'",
            "table history",
        ),
        (["tail", "--store", "a", "--json", "b"], "Got unexpected extra argument", "tail"),
    ],
)
def test_usage_errors_are_json_where_the_answer_would_be(words: Sequence[str], cause: str, command: str) -> None:
    """One line on standard error, as any other error; nothing on standard output."""
    result = run_reput(words, code=2)
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    found = json.loads(line)["error"]
    assert (found["code"], found["exitCode"]) == ("wrong-option", 2)
    assert found["cause"].startswith(cause)
    assert found["advice"] == f"see '{' '.join(filter(None, ['reput', command]))} --help'"


@pytest.mark.parametrize("group", [(), ("table",), ("ask",), ("quarantine",)], ids=" ".join)
def test_lists_of_commands_have_a_line_each(group: Sequence[str]) -> None:
    """At 80 columns no line is cut off, and each command has one line."""
    command, _ = command_of([*group])
    shown = get_help(command)
    assert "..." not in shown.replace("[ARGS]...", "")
    lines = [line for line in shown.splitlines() if line[:2] == "  " and line.split()[:1] != ["-h,"]]
    for name in command.commands:
        (line,) = [line for line in lines if line.split()[0] == name]
        assert len(line.split(maxsplit=1)[1]) > 10
        assert max(map(len, shown.splitlines())) <= 80


def get_help(command: Any) -> str:
    return str(command.get_help(command.context_class(command, info_name=command.name, terminal_width=80)))


def test_the_help_has_a_section_for_each_purpose() -> None:
    """Every command is in one of them."""
    shown = invoke(["--help"]).output
    assert [line[:-1] for line in shown.splitlines() if re.fullmatch(r"[A-Z]\w+:", line)] == ["Options", *SECTIONS]
    assert {name for names in SECTIONS.values() for name in names} == set(APPLICATION.commands)


@pytest.mark.parametrize("words", [["table", "histroy"], ["ask", "liff"], ["quarantine", "lst"]])
def test_what_may_be_meant_in_a_group(words: Sequence[str]) -> None:
    """The commands of a group are suggested, too."""
    result = run_reput(words, code=2)
    assert "Did you mean" in result.stderr


def leaves(command: Any, *words: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, with the words that name it."""
    below = getattr(command, "commands", {})
    for name, each in below.items():
        yield from leaves(each, *words, name)
    if not below:
        yield words, command


LEAVES = dict(leaves(APPLICATION))


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_one_vocabulary(words: Sequence[str]) -> None:
    """Every command has --json and -h, and no command has another name for what the others have."""
    command = LEAVES[words]
    assert "--json" in option_names(command)
    assert option_names(command).isdisjoint({"--begin", "--max", "--count", "--unique-key", "--uniqkey", "--from-time"})
    assert invoke([*words, "-h"]).output == invoke([*words, "--help"]).output


@pytest.mark.parametrize(
    ("words", "old", "new"),
    [
        (["query", "--store", "S", "--topic", "T"], ["--unique-key", "k"], ["--uniq-key", "k"]),
        (["query", "--store", "S", "--topic", "T", "--key", "k"], ["--begin", "x"], ["--since", "x"]),
        (["query", "--store", "S", "--topic", "T", "--key", "k"], ["--max=3"], ["--limit", "3"]),
        (["query", "--store", "S", "--topic", "T", "--queue-id", "0"], ["--count", "3"], ["--limit", "3"]),
        (["sql", "--table", "T", "SELECT 1"], ["--output", "f"], ["--result", "f"]),
        (["ask", "life", "--table", "T", "--key", "k"], ["--output", "f"], ["--result", "f"]),
    ],
)
def test_old_names_are_read_and_not_shown(words: Sequence[str], old: Sequence[str], new: Sequence[str]) -> None:
    """An option that got another name keeps the old one for scripts; the help has the new one alone."""
    command, rest = command_of([*words])
    context = command.context_class(command, info_name=command.name)
    parse = command.make_parser(context).parse_args
    assert parse([*rest, *old])[0] == parse([*rest, *new])[0]
    shown = command.get_help(context)
    assert new[0] in shown
    assert not re.search(rf"{old[0].partition('=')[0]}\b(?! tail)", shown)


def test_a_usage_error_in_a_log_of_json() -> None:
    """A line of that log."""
    result = invoke(["tail", "--log-format", "json", "--zzz"])
    assert (result.exit_code, json.loads(result.stderr)["message"]) == (2, "No such option: '--zzz'.")


def shell(*command: str) -> list[str]:
    if shutil.which(command[0]) is None:
        pytest.skip(f"no {command[0]} here")
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


BASH = """
eval "$(_REPUT_COMPLETE=bash_source reput)"
complete -p reput >/dev/null || exit 1
COMP_WORDS=(reput ta) COMP_CWORD=1; _reput_completion reput; echo "${COMPREPLY[@]}"
COMP_WORDS=(reput table hist) COMP_CWORD=2; _reput_completion reput; echo "${COMPREPLY[@]}"
COMP_WORDS=(reput tail --bro) COMP_CWORD=2; _reput_completion reput; echo "${COMPREPLY[@]}"
COMP_WORDS=(reput rebuild --only "") COMP_CWORD=3; _reput_completion reput; echo "${COMPREPLY[@]}"
COMP_WORDS=(reput ask lag --format j) COMP_CWORD=4; _reput_completion reput; echo "${COMPREPLY[@]}"
COMP_WORDS=(reput verify -o onDam) COMP_CWORD=3; _reput_completion reput; echo "${COMPREPLY[@]}"
"""
# Print the words for zsh's completion.
ZSH = """
compdef() { [[ $2 == reput ]] || exit 1 }
_arguments() { print -r -- "$@" }
eval "$(_REPUT_COMPLETE=zsh_source reput)"
words=(reput ta) CURRENT=2; _reput_completion
"""


def test_bash_completes() -> None:
    """Commands, those below one, options, words that one takes, and names of settings."""
    found = ["tail", "table", "history", "--broker-conf", "consumequeue", "index", "table", "json", "onDamage="]
    assert shell("bash", "--norc", "-c", BASH) == found


def test_zsh_completes() -> None:
    """With the first line of each command's help, whole."""
    found = " ".join(shell("zsh", "-f", "-c", ZSH))
    assert '"tail":"Keep queues, index and table in step with a commitlog."' in found
    assert '"table":"Describe, maintain and repair a message table."' in found
    assert '"query":"' not in found


def test_fish_completes() -> None:
    """The script is read as any other."""
    script = "_REPUT_COMPLETE=fish_source reput | source; complete -C 'reput tai'"
    assert shell("fish", "--no-config", "-c", script)[0] == "tail"


def test_a_verdict_has_a_colour_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not elsewhere, and not where NO_COLOR is set."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert verdict("5.5.0 starts", is_good=True) == "5.5.0 starts"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    good, bad = (verdict("5.5.0 starts", is_good=is_good) for is_good in (True, False))
    assert len({good, bad, "5.5.0 starts"}) == 3
    monkeypatch.setenv("NO_COLOR", "1")
    assert verdict("5.5.0 starts", is_good=True) == "5.5.0 starts"


def test_numbers_on_a_terminal_have_separators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a person reads them: not in JSON, not in a pipe, and not from a tail, which keeps what it says in files."""
    some = Application()

    @some.command("verify")
    def verify(as_json: Json = False) -> None:
        typer.echo(counted(12345, "message"))

    @some.command("tail")
    def tail(as_json: Json = False) -> None:
        typer.echo(counted(12345, "message"))

    def said(*words: str) -> str:
        return typer.testing.CliRunner().invoke(some, words).output.strip()

    assert said("verify") == "12345 messages"
    monkeypatch.setattr("reput.streaming.cli.app._is_terminal", lambda: True)
    assert said("verify") == "12,345 messages"
    assert said("tail") == said("verify", "--json") == "12345 messages"
    assert counted(12345, "message") == "12345 messages"
