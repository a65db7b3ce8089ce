"""Tells systemd, or whoever else listens at ``NOTIFY_SOCKET``, what this process does (``sd_notify(3)``)."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

from reput.source.printable import printable

_SOCKET, _WATCHDOG_USEC, _WATCHDOG_PID = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"
# A status is a line for people, and a datagram has to be sent whole.
_STATUS_LENGTH_MAX = 600
_USEC = 1_000_000


class ServiceManager:
    """Sends messages to the service manager that started this process; without one, every method does nothing.

    A manager that is busy or gone is no reason to stop, or to wait: each method returns whether it has told what there
    was to tell, and the caller may try again.
    """

    def __init__(self) -> None:
        """Take the manager's address out of the environment, so that no process started later speaks for this one."""
        address = os.environ.pop(_SOCKET, "")
        watchdog, of_process = os.environ.pop(_WATCHDOG_USEC, ""), os.environ.pop(_WATCHDOG_PID, "")
        #: How often `alive` has to be called, in seconds: twice within the manager's limit; None without a watchdog.
        self.alive_every_s: float | None = None
        if watchdog.isdecimal() and int(watchdog) and of_process in ("", str(os.getpid())):
            self.alive_every_s = int(watchdog) / _USEC / 2
        self._address = f"\0{address[1:]}" if address[:1] == "@" else address  # @ begins an abstract name

    def ready(self) -> bool:
        """Tell that the service does its work from now on."""
        return self._send("READY=1")

    def status(self, words: str) -> bool:
        """Tell what the service does, in a line that ``systemctl status`` shows."""
        return self._send(f"STATUS={printable(words)[:_STATUS_LENGTH_MAX]}")

    def alive(self) -> bool:
        """Tell the watchdog that the main loop turns."""
        return self._send("WATCHDOG=1")

    def stopping(self) -> bool:
        """Tell that the service has begun to stop."""
        return self._send("STOPPING=1")

    def _send(self, message: str) -> bool:
        if self._address[:1] not in ("/", "\0"):
            return True
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto(message.encode(errors="replace"), self._address)
            return True
        return False
