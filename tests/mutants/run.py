"""Make mistakes in a copy of the sources, one at a time, and see that the tests notice each.

``python tests/mutants/run.py`` for all, or with names (or parts of names). Ends with 1 when a mistake went unnoticed,
or its tests did not run.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from mutants.catalogue import MUTANTS, Mutant  # noqa: E402  found by the line before

FAILED = 1  # pytest's code for tests that failed; others say that none ran
# A mistake that lets a run stand still does so in its test, too.
LIMIT_SECONDS = 400
#: Not __pycache__: compiled kernels are taken along.
SKIPPED = shutil.ignore_patterns(".git", ".venv", ".work", ".*_cache", ".hypothesis", "*.egg-info")


def run_tests(
    copy: Path,
    tests: Sequence[str],
    marks: str,
    *,
    numba_cache: Path | None = None,
    limit_seconds: float | None = None,
) -> int:
    """Give pytest's exit code for these tests of the copy; tests that stand still, or die of a signal, have failed."""
    words = [word if word.startswith("-") else f"tests/{word}" for word in tests]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", marks, *words]
    environment = os.environ | {"PYTHONPATH": str(copy / "reput"), "PYTHONDONTWRITEBYTECODE": "1"}
    if numba_cache is not None:
        environment["NUMBA_CACHE_DIR"] = str(numba_cache)
    with subprocess.Popen(
        command,
        cwd=copy,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            code = process.wait(limit_seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return FAILED
        # Who reads where nothing is, dies of it.
        return FAILED if code < 0 else code


def code_with(mutant: Mutant, copy: Path) -> int:
    """Give pytest's exit code with the mistake; the copy is as before afterwards."""
    path = copy / mutant.file
    sound, known = path.read_text(encoding="utf-8"), path.stat()
    text = sound
    for old, new in mutant.changes:
        assert text.count(old) == 1, f"{mutant.name}: {old!r} is not once in {mutant.file}"
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")
    try:
        with tempfile.TemporaryDirectory() as fresh:
            # A compiled kernel holds those of other modules, and numba looks only at its own file's time.
            cache = Path(fresh) if "numba" in sound else None
            return run_tests(copy, mutant.tests, mutant.marks, numba_cache=cache, limit_seconds=LIMIT_SECONDS)
    finally:
        path.write_text(sound, encoding="utf-8")
        os.utime(path, ns=(known.st_atime_ns, known.st_mtime_ns))


def main() -> int:
    """Make the chosen mistakes; return 0 if the tests notice every one of them, and 1 if not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="of mistakes, or parts of names; all without any")
    wanted = parser.parse_args().names
    mutants = [mutant for mutant in MUTANTS if not wanted or any(word in mutant.name for word in wanted)]
    unnoticed = []
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory) / "reput"
        shutil.copytree(ROOT, copy, symlinks=True, ignore=SKIPPED)
        for marks in sorted({mutant.marks for mutant in mutants}):
            words = sorted({word for mutant in mutants if mutant.marks == marks for word in mutant.tests})
            if run_tests(copy, words, marks) != 0:
                print(f"the tests fail without any mistake: {' '.join(words)}")
                return 1
        for mutant in mutants:
            began = time.monotonic()
            code = code_with(mutant, copy)
            found = {FAILED: "noticed  ", 0: "UNNOTICED"}.get(code, f"DID NOT RUN (pytest's code {code})")
            print(f"{found} {time.monotonic() - began:5.1f} s  {mutant.name}", flush=True)
            unnoticed += [] if code == FAILED else [mutant.name]
    print(f"{len(mutants)} mistakes, {len(unnoticed)} unnoticed")
    return 1 if unnoticed or not mutants else 0


if __name__ == "__main__":
    sys.exit(main())
