"""G8: the commitlog is only read, and nothing is written outside output and table: what the system itself saw."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from faults.log_writer import SEGMENT_BYTES, message
from faults.tail_process import Oracle, TailProcess, environment
from support.paths import ROOT
from support.proof_counts import Proof
from support.record_writer import write_log

CALLS = "open,openat,creat,rename,renameat,renameat2,unlink,unlinkat,truncate,ftruncate,mkdir,mkdirat,link,linkat,"
CALLS += "symlink,symlinkat,rmdir,chmod,fchmodat,utimensat,mknod,mknodat"
WRITING = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_APPEND")
QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
FAILED = re.compile(r"= -1 E")
#: Without Spark: the same modules over the log, in one process.
DISPATCH = "import sys; from pathlib import Path; from support.sink_runner import dispatch_store; "
DISPATCH += "from reput.streaming.config.pipeline import load_config; "
DISPATCH += "dispatch_store(load_config(Path(sys.argv[1])), Path(sys.argv[2]))"

needs_strace = pytest.mark.skipif(
    shutil.which("strace") is None, reason="STRACE IS MISSING: nothing shows that the commitlog is only read"
)


def make_store(root: Path, count: int) -> Path:
    log = root / "store" / "commitlog"
    write_log(log, (message(number) for number in range(count)), SEGMENT_BYTES, preallocate=True)
    return log


def state(log: Path) -> list[tuple[str, int, int, int, str]]:
    """Each file's name, size, times, mode and digest."""
    found = []
    for path in sorted([log, *log.iterdir()]):
        known = path.stat()
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found.append((path.name, known.st_size, known.st_mtime_ns, known.st_ctime_ns, digest))
    return found


def changed_paths(trace: str) -> set[str]:
    """Every absolute path that a call opened to write, made, renamed, cut or removed."""
    changed = set()
    for line in trace.splitlines():
        call = re.sub(r"^\d+\s+", "", line)
        if FAILED.search(call) or not (paths := QUOTED.findall(call)):
            continue
        if call.startswith("open") and not WRITING.search(call):
            continue
        changed.update(path for path in paths if path.startswith("/"))
    return changed


def outside(paths: Iterable[str], *allowed: Path) -> set[str]:
    """Those that are not below one of `allowed`, nor the system's own."""
    prefixes = tuple(f"{path}" for path in (*allowed, "/dev/", "/proc/", "/sys/"))
    return {path for path in paths if not path.startswith(prefixes)}


def trace_command(trace: Path) -> list[str]:
    return ["strace", "-f", "--seccomp-bpf", "-qq", "-s", "4096", "-e", f"trace={CALLS}", "-o", str(trace)]


@needs_strace
def test_nothing_but_the_output_is_written(tmp_path: Path, proof: Proof) -> None:
    """Every opening to write, renaming, removing and cutting of the way from the log to queues and index."""
    log = make_store(tmp_path, 3000)
    before = state(log)
    trace, out = tmp_path / "trace", tmp_path / "out"
    given = environment() | {"PYTHONDONTWRITEBYTECODE": "1"}
    command = [*trace_command(trace), sys.executable, "-c", DISPATCH, str(tmp_path / "store"), str(out)]
    subprocess.run(command, check=True, env=given, stderr=subprocess.DEVNULL)
    changed = changed_paths(trace.read_text())
    assert any(path.startswith(f"{out}/consumequeue/A/") for path in changed)
    assert outside(changed, out, *caches()) == set()
    assert state(log) == before
    proof("G8 changing calls seen, none below the commitlog", len(changed))


def caches() -> list[Path]:
    """Where numba keeps what it compiled: beside the modules, or where the environment says."""
    packages = [path.parent for path in (ROOT / "reput" / "reput").glob("*/**/__init__.py")]
    return [package / "__pycache__" for package in packages]


@needs_strace
@pytest.mark.slow
@pytest.mark.spark
def test_a_whole_run_writes_only_output_and_table(tmp_path: Path, proof: Proof) -> None:
    """`reput tail` with its JVM and workers; Java's and Spark's own files are in the temporary directory."""
    log = make_store(tmp_path, 5000)
    before = state(log)
    trace = tmp_path / "trace"
    tail = TailProcess(tmp_path, "--available-now", wrapper=trace_command(trace))
    try:
        assert tail.process.wait(600) == 0, tail.last_words()
    finally:
        tail.end()
    changed = changed_paths(trace.read_text())
    assert not [path for path in changed if path.startswith(str(log))]
    own = {path for path in changed if path.startswith(f"{tmp_path}/")}
    assert outside(own, tmp_path / "out", tmp_path / "table") == set()
    java_temporary = Path("/tmp")  # whatever TMPDIR says
    elsewhere = [Path(tempfile.gettempdir()), java_temporary, Path.home() / ".ivy2", *caches()]
    assert outside(changed - own, *elsewhere) == set()
    assert state(log) == before
    Oracle(tmp_path).check_all(5000)
    proof("G8 changing calls seen, none below the commitlog", len(changed))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_log_on_a_read_only_mount_is_enough(tmp_path: Path, proof: Proof) -> None:
    """The system refuses any write below the commitlog, and no command fails."""
    log = make_store(tmp_path, 200)
    script = (
        'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && ! touch "$1/x" 2>/dev/null && shift && exec "$@"'
    )
    command = ["unshare", "--mount", "sh", "-c", script, "sh", str(log)]
    dispatch = [sys.executable, "-c", DISPATCH, str(tmp_path / "store"), str(tmp_path / "out")]
    done = subprocess.run([*command, *dispatch], env=environment(), capture_output=True, text=True, check=False)
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"no mounts here: {done.stderr.strip()}")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(list((tmp_path / "out" / "consumequeue").iterdir())) == 3
    proof("G8 runs over a read-only mount")
