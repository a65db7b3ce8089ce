"""The unit file for systemd: what it starts, and what it does about each exit code, compared with reput itself."""

from __future__ import annotations

import re
import shlex
from collections import defaultdict

import pytest
from support.paths import ROOT
from typer.main import get_command

from reput.source import errors
from reput.source.errors import TRY_AGAIN, ReputError
from reput.streaming.cli.app import application
from reput.streaming.config.pipeline import PIPELINE_OPTIONS
from reput.streaming.process.failures import DefectError
from reput.streaming.status import publisher

SYSTEMD = ROOT / "conf" / "deploy" / "systemd"
_SECONDS = {"s": 1, "min": 60, "h": 3_600}


def parsed(text: str) -> dict[str, list[str]]:
    """The values of each setting, in their order."""
    found = defaultdict(list)
    for line in text.splitlines():
        if line and line[0] not in "#[":
            name, _, value = line.partition("=")
            found[name].append(value)
    return found


def seconds(text: str) -> int:
    """A span of time of one unit."""
    number, unit = re.fullmatch(r"(\d+)(s|min|h)?", text).groups()  # type: ignore[union-attr]
    return int(number) * _SECONDS[unit or "s"]


@pytest.fixture(scope="module")
def unit() -> dict[str, list[str]]:
    return parsed((SYSTEMD / "reput@.service").read_text())


def all_kinds(kind: type[ReputError]) -> set[type[ReputError]]:
    """The class and those below it."""
    below = [each for each in kind.__subclasses__() if each.__module__.startswith("reput.")]  # tests have some, too
    return {kind}.union(*map(all_kinds, below))


def test_it_starts_a_command_that_there_is(unit: dict[str, list[str]]) -> None:
    """Each option is one of `reput tail`, and each required one is given."""
    (line,) = unit["ExecStart"]
    program, name, *words = shlex.split(line)
    command = get_command(application()).commands[name]  # type: ignore[attr-defined]
    options = {text: each for each in command.params for text in each.opts}
    given = [word for word in words if word.startswith("-")]
    assert program == "/opt/reput/bin/reput"
    assert given
    assert set(given) <= set(options)
    assert {each.opts[0] for each in command.params if each.required} <= set(given)
    assert [word for word in words if word.startswith("$")] == ["${REPUT_STORE}", "$REPUT_ARGUMENTS"]


def test_what_it_does_about_each_exit_code(unit: dict[str, list[str]]) -> None:
    """It starts reput again after what may pass, and after nothing that a person must look at."""
    codes = {kind.exit_code for kind in all_kinds(ReputError)}
    assert DefectError.exit_code in codes
    assert unit["RestartForceExitStatus"] == [str(TRY_AGAIN)]
    (prevented,) = unit["RestartPreventExitStatus"]
    assert {int(code) for code in prevented.split()} == codes - {TRY_AGAIN}
    assert unit["Restart"] == ["on-failure"]  # after a kill, too
    assert unit["StartLimitIntervalSec"] == ["0"]
    assert errors.FAILED in codes - {TRY_AGAIN}


def test_it_waits_as_long_as_reput_takes(unit: dict[str, list[str]]) -> None:
    """The watchdog is slower than /healthz, so that a probe of that sees the failure first; a start has no limit."""
    (watchdog,), (stop,) = unit["WatchdogSec"], unit["TimeoutStopSec"]
    assert seconds(watchdog) > publisher._TURNS_WITHIN_S
    assert seconds(stop) >= 60
    assert unit["TimeoutStartSec"] == ["infinity"]
    assert unit["Type"] == ["notify"]
    assert unit["NotifyAccess"] == ["main"]


def test_it_may_write_nothing_but_what_it_keeps(unit: dict[str, list[str]]) -> None:
    """The output lies in the directory of state, which systemd makes; everything else is read-only."""
    (line,) = unit["ExecStart"]
    (state,) = unit["StateDirectory"]
    words = shlex.split(line)
    assert words[words.index("--output") + 1].startswith(f"/var/lib/{state}/")
    assert unit["ProtectSystem"] == ["strict"]
    assert unit["ReadWritePaths"] == []
    for name in ("NoNewPrivileges", "PrivateTmp", "PrivateDevices", "RestrictSUIDSGID", "LockPersonality"):
        assert unit[name] == ["yes"], name
    assert unit["MemoryDenyWriteExecute"] == []  # the JVM and numba compile what they run


def test_what_the_installation_writes() -> None:
    """The files that the unit reads, with options that there are."""
    script = (SYSTEMD / "install.sh").read_text()
    unit = (SYSTEMD / "reput@.service").read_text()
    written = re.findall(r"cat >\"(/etc/reput/\$instance\.\w+)\" <<END\n(.*?)^END$", script, re.DOTALL | re.MULTILINE)
    files = {path.replace("$instance", "%i"): text for path, text in written}
    assert set(files) == set(re.findall(r"/etc/reput/%i\.\w+", unit))
    in_env = re.findall(r"^(\w+)=", files["/etc/reput/%i.env"], re.MULTILINE)
    assert set(re.findall(r"\$\{?(REPUT_\w+)", unit)) == set(in_env)
    names = {option.name for option in PIPELINE_OPTIONS}
    stated = re.findall(r"^(\w+) = ", files["/etc/reput/%i.toml"], re.MULTILINE)
    assert stated == ["metricsPort"]
    assert set(stated) <= names
    user = re.search(r"^u (\w+) - \"[^\"]*\" (\S+)$", (SYSTEMD / "reput.sysusers").read_text(), re.MULTILINE)
    assert user is not None
    assert user.groups() == tuple(re.search(r"runuser -u (\w+) -- env HOME=(\S+) ", script).groups())  # type: ignore[union-attr]
    assert f"User={user[1]}\n" in unit
