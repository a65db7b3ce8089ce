"""The unit file as systemd itself reads it; `make deploy-check` installs what this needs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.paths import ROOT

pytestmark = pytest.mark.deploy

UNIT = ROOT / "conf" / "deploy" / "systemd" / "reput@.service"
# Exposure times 10: "OK" begins below 5.0, and a service that says nothing has 9.6.
EXPOSURE_MAX = 16


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit, of a program that there is on this machine."""
    path = tmp_path / UNIT.name
    path.write_text(UNIT.read_text().replace("/opt/reput/bin/reput", "/bin/true"))
    return path


def test_systemd_understands_every_line(unit: Path) -> None:
    """It warns about names and values that it does not know, and ends with 0 all the same."""
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_line_that_systemd_does_not_know_is_noticed(unit: Path) -> None:
    """So the test before this one can fail."""
    unit.write_text(unit.read_text().replace("PrivateTmp=yes", "PrivateTemp=yes"))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    assert "PrivateTemp" in done.stderr


def test_it_is_not_exposed(unit: Path) -> None:
    """The open permissions are those that the JVM, numba and Spark's ports need."""
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE_MAX}", "--no-pager", unit],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout
