"""The machine on which the figures were measured."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import datetime, timezone
from pathlib import Path

import reput

GIB = 1 << 30


def available_memory() -> int:
    """Bytes that processes can still get (MemAvailable)."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    facts = dict(line.split(":", 1) for line in lines)
    return int(facts["MemAvailable"].split()[0]) * 1024


def facts(work: Path) -> dict[str, str]:
    """Machine, versions and the moment, as texts."""
    cpu = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr.splitlines()[0]
    file_system = subprocess.run(["stat", "-f", "-c", "%T", work], capture_output=True, text=True, check=True).stdout
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    return {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": f"{os.cpu_count()} x {cpu.partition(':')[2].strip()}",
        "memory": f"{memory:.0f} GiB",
        "file system": file_system.strip(),
        "kernel": platform.release(),
        "java": java,
        "python": platform.python_version(),
        "reput": reput.__version__,
        "load before": " ".join(f"{load:.1f}" for load in os.getloadavg()),
    }


def sentence(found: dict[str, str]) -> str:
    """The facts as one line of a page."""
    return ", ".join(f"{name} {value}" for name, value in found.items())
