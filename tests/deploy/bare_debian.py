"""A Debian 12 with only its base system, in a container of systemd-nspawn whose first process is a systemd.

It shares the network with this machine. Its base system comes from a Debian mirror; it gets the authorities that this
machine trusts in addition to Debian's, such as a proxy's, in Debian's own way.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final

from support.paths import ROOT

if TYPE_CHECKING:
    from typing_extensions import Self

MIRROR: Final = "http://deb.debian.org/debian"
TOOLS: Final = ("debootstrap", "systemd-nspawn", "nsenter")
_AUTHORITIES: Final = Path("usr/local/share/ca-certificates")
_ENVIRONMENT: Final = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "DEBIAN_FRONTEND": "noninteractive",
}
_BOOTS_WITHIN_S, _HALTS_WITHIN_S = 60.0, 60.0


class BareDebian:
    """A container whose files are below `root`; it runs within a ``with`` block."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._container: subprocess.Popen[bytes] | None = None
        self._first = ""

    def install(self) -> None:
        """Make the base system.

        Raises
        ------
        NotHereError
            This machine cannot; it takes root, and a mirror that answers.
        """
        base = ["debootstrap", "--include=ca-certificates", "bookworm", str(self.root), MIRROR]
        done = subprocess.run(base, check=False, capture_output=True, text=True)
        if done.returncode != 0:
            raise NotHereError(f"debootstrap: {done.stdout.strip().splitlines()[-1:]}")
        own = Path("/") / _AUTHORITIES
        if own.is_dir():
            shutil.copytree(own, self.root / _AUTHORITIES, dirs_exist_ok=True)
        known = ["chroot", str(self.root), "update-ca-certificates"]
        subprocess.run(known, check=True, env=dict(_ENVIRONMENT), stdout=subprocess.DEVNULL)

    def check_out(self, place: str) -> None:
        """Put the project's files into a directory of the container, as a checkout has them."""
        files = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(files, check=True, capture_output=True).stdout
        directory = self.root / place.lstrip("/")
        directory.mkdir(parents=True)
        packed = subprocess.run(
            ["tar", "-C", str(ROOT), "--null", "--files-from=-", "--ignore-failed-read", "-c"],
            input=listed,
            check=True,
            capture_output=True,
        )
        subprocess.run(["tar", "-C", str(directory), "--no-same-owner", "-x"], input=packed.stdout, check=True)

    def __enter__(self) -> Self:
        self._container = subprocess.Popen(
            [
                *("systemd-nspawn", "--quiet", f"--directory={self.root}", "--boot", "--console=pipe"),
                *("--register=no", "--keep-unit", "--resolv-conf=copy-host", "--link-journal=no"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        deadline = time.monotonic() + _BOOTS_WITHIN_S
        while not self._is_up():
            if self._container.poll() is not None or time.monotonic() > deadline:
                self._halt()
                raise NotHereError(f"systemd-nspawn cannot boot a container: {self._said()}")
            time.sleep(0.5)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._halt()
        assert self._container is not None
        assert self._container.stderr is not None
        self._container.stderr.close()

    def run(
        self,
        command: str,
        *,
        directory: str = "/",
        seconds: float = 60.0,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command line in a shell of root's; nothing is at its standard input."""
        variables = [f"{name}={value}" for name, value in {**_ENVIRONMENT, **(environment or {})}.items()]
        return subprocess.run(
            [
                *("nsenter", "--target", self._first, "--all", "env", "--ignore-environment", f"--chdir={directory}"),
                *(*variables, "sh", "-c", command),
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def _is_up(self) -> bool:
        assert self._container is not None
        children = Path(f"/proc/{self._container.pid}/task/{self._container.pid}/children")
        self._first = children.read_text().strip() if children.exists() else ""
        return self._first.isdigit() and self.run("systemctl is-system-running").stdout.strip() == "running"

    def _said(self) -> str:
        """Return the output of the container that has ended; it can be asked once."""
        assert self._container is not None
        assert self._container.stderr is not None
        with self._container.stderr as said:
            return said.read().decode(errors="replace").strip()

    def _halt(self) -> None:
        assert self._container is not None
        self._container.terminate()
        try:
            self._container.wait(_HALTS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._container.kill()
            self._container.wait()


class NotHereError(Exception):
    """Why there is no such container on this machine."""
