"""A real browser, without a window."""

from __future__ import annotations

import shutil
import subprocess

# The browser's time, which passes at once: a page may ask a server once more within it.
_BUDGET_MS = 3_000


def chromium() -> str:
    """The path of the browser."""
    found = shutil.which("chromium")
    assert found is not None, "no chromium: make deploy-check installs it"
    return found


def ask(*options: str) -> subprocess.CompletedProcess[str]:
    """Run the browser: its standard output, such as a page with ``--dump-dom``, and its standard error."""
    command = [
        *(chromium(), "--headless", "--no-sandbox", "--disable-gpu", f"--virtual-time-budget={_BUDGET_MS}"),
        *options,
    ]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
