"""The log of processes: no line is lost while it is replaced, it stays within its bound, and nothing stops for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.small_disk import mounted

from reput.streaming.process.process_log import OLDER_FILES, ProcessLog, RotatingLog

#: Writes this many numbered lines with a name, in one write each, as a JVM or a Python worker does.
WRITER = """
import os, sys
for number in range(int(sys.argv[2])):
    os.write(2, f"{sys.argv[1]} {number} {'x' * (number % 90)}\\n".encode())
"""
#: A driver whose process prints until the reader ends, and then prints its own state; `line` comes first.
JAVA = """
import java.nio.file.*;
public class Chatter {
    public static void main(String[] args) throws Exception {
        System.err.println("line");
        while (System.in.read() >= 0) { }
        for (int n = 0; n < 40_000; n++) System.err.println("nobody reads this line, number " + n);
        Files.writeString(Path.of(args[0]), "went on");
    }
}
"""
DRIVER = """
import subprocess, sys, time
from pathlib import Path
from reput.streaming.process.process_log import ProcessLog
log = ProcessLog(Path(sys.argv[1]))
subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=log.write_end, stderr=log.write_end)
log.begun()
time.sleep(600)
"""


def files(log: Path) -> list[Path]:
    """The log's files, the oldest first."""
    return [path for n in range(9, 0, -1) if (path := log.with_name(f"{log.name}.{n}")).exists()] + [log]


def text_of(log: Path) -> bytes:
    return b"".join(path.read_bytes() for path in files(log))


def test_whole_lines_within_the_bound(tmp_path: Path) -> None:
    """Every file ends with a line's end, none is larger than it may be, and the oldest lines go."""
    log = RotatingLog(tmp_path / "spark.log", 1_000)
    lines = [f"{number} {'x' * (number % 80)}\n".encode() for number in range(500)]
    for begin in range(0, 500, 7):
        log.write(b"".join(lines[begin : begin + 7]))
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 1_000 * (1 + OLDER_FILES)
    log.close()
    assert len(files(tmp_path / "spark.log")) == len(list(tmp_path.iterdir())) == 1 + OLDER_FILES
    for path in tmp_path.iterdir():
        assert path.read_bytes().endswith(b"\n")
        assert 900 < path.stat().st_size <= 1_000 or path.name == "spark.log"
    kept = text_of(tmp_path / "spark.log")
    assert b"".join(lines).endswith(kept)


def test_a_line_that_no_file_can_hold(tmp_path: Path) -> None:
    """It is cut into the files, none of them larger than it may be."""
    log = RotatingLog(tmp_path / "spark.log", 1_000)
    log.write(b"before\n")
    log.write(b"y" * 2_500 + b"\n")
    log.write(b"after\n")
    log.close()
    assert text_of(tmp_path / "spark.log") == b"before\n" + b"y" * 2_500 + b"\nafter\n"
    assert [path.stat().st_size for path in files(tmp_path / "spark.log")] == [7, 1_000, 1_000, 507]


def test_what_a_file_has_already_counts(tmp_path: Path) -> None:
    """A run continues the last run's file; one that an older release let grow becomes the first of the older files."""
    path = tmp_path / "spark.log"
    path.write_bytes(b"old\n")
    RotatingLog(path, 1_000).write(b"new\n")
    assert path.read_bytes() == b"old\nnew\n"
    path.write_bytes(b"z" * 5_000)
    RotatingLog(path, 1_000).write(b"new\n")
    assert path.read_bytes() == b"new\n"
    assert path.with_name("spark.log.1").stat().st_size == 5_000


def test_others_may_rename_empty_or_remove_it(tmp_path: Path) -> None:
    """A user or logrotate may do any of these, and no later line is lost."""
    path = tmp_path / "spark.log"
    log = RotatingLog(path, 1_000)
    log.write(b"one\n")
    path.rename(tmp_path / "mine")
    log.write(b"two\n")
    assert path.read_bytes() == b"two\n"
    os.truncate(path, 0)
    log.write(b"three\n")
    assert path.read_bytes() == b"three\n"
    path.unlink()
    log.write(b"four\n")
    assert path.read_bytes() == b"four\n"


def test_no_link_is_followed(tmp_path: Path) -> None:
    """Nothing is written outside the output."""
    (tmp_path / "elsewhere").write_bytes(b"")
    (tmp_path / "spark.log").symlink_to(tmp_path / "elsewhere")
    RotatingLog(tmp_path / "spark.log").write(b"line\n")
    assert (tmp_path / "elsewhere").read_bytes() == b""


def test_a_full_disk_loses_lines_and_says_how_many(tmp_path: Path) -> None:
    """Nothing is raised; once there is room again the file says what is missing."""
    with mounted(tmp_path / "small", size="64k") as disk:
        log = RotatingLog(disk / "spark.log", 1_000_000)
        (disk / "ballast").write_bytes(b"b" * 40_000)
        for _ in range(100):
            log.write(b"l" * 999 + b"\n")
        (disk / "ballast").unlink()
        log.write(b"there is room again\n")
        log.close()
        lines = (disk / "spark.log").read_bytes().splitlines()
    whole = sum(line == b"l" * 999 for line in lines)
    assert 10 < whole < 60
    assert lines[-1] == b"there is room again"
    missing = next(line for line in lines if line.startswith(b"reput:"))
    assert missing.endswith(b" bytes are missing here: No space left on device")
    assert (100 - whole - 1) * 1_000 < int(missing.split()[1]) <= (100 - whole) * 1_000


def test_no_line_of_several_processes_is_lost(tmp_path: Path) -> None:
    """Processes that inherit the pipe write on while the files are replaced under them."""
    path = tmp_path / "spark.log"
    log = ProcessLog(path, 100_000)
    command = [sys.executable, "-c", WRITER]
    writers = [subprocess.Popen([*command, name, "2000"], stdout=log.write_end, stderr=log.write_end) for name in "ab"]
    log.begun()
    assert [writer.wait() for writer in writers] == [0, 0]
    log.finish()
    assert len(files(path)) > 1
    told = text_of(path).decode().splitlines()
    for name in "ab":
        assert [int(line.split()[1]) for line in told if line.startswith(name)] == list(range(2_000))


def test_the_last_words_of_a_process_come_without_a_line_end(tmp_path: Path) -> None:
    """A line that a process had begun when it died is kept."""
    log = ProcessLog(tmp_path / "spark.log")
    subprocess.run(
        ["sh", "-c", "echo first; printf last; kill -9 $$"], check=False, stderr=log.write_end, stdout=log.write_end
    )
    log.begun()
    log.finish()
    assert (tmp_path / "spark.log").read_bytes() == b"first\nlast"


def test_a_dead_driver_stops_no_jvm(tmp_path: Path) -> None:
    """Java prints on into the pipe without a reader: it neither waits nor ends for it."""
    (tmp_path / "Chatter.java").write_text(JAVA)
    java = ["java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", str(tmp_path / "Chatter.java"), str(tmp_path / "end")]
    log = tmp_path / "spark.log"
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(log), *java])
    try:
        deadline = time.monotonic() + 60
        while not (log.exists() and log.read_bytes()):  # it exists before its first line
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        os.kill(driver.pid, signal.SIGKILL)
        driver.wait()
    while not (tmp_path / "end").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert log.read_bytes() == b"line\n"


@pytest.mark.parametrize("directory", ["missing", "file/below"])
def test_a_place_that_cannot_be_written(tmp_path: Path, directory: str, caplog: pytest.LogCaptureFixture) -> None:
    """No line is kept, which is reported once, and nothing is raised in the thread that reads."""
    (tmp_path / "file").write_text("")
    log = ProcessLog(tmp_path / directory / "spark.log")
    subprocess.run(["sh", "-c", "yes | head -c 3000000 >&2"], check=True, stderr=log.write_end)
    log.begun()
    log.finish()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]
    (told,) = caplog.messages
    assert told.startswith(f"cannot write {tmp_path / directory / 'spark.log'}: N")


def test_names_in_what_spark_prints_are_harmless(tmp_path: Path) -> None:
    """A line separator begins no line, and no escape sequence reaches the terminal of a reader of the log."""
    said = "topic a\u2028forged\x85line \x1b[2J\u202e of\tT\r\n\tat Java\n"
    log = ProcessLog(tmp_path / "spark.log")
    with subprocess.Popen([sys.executable, "-c", f"print({said!r}, end='')"], stdout=log.write_end):
        log.begun()
    log.finish()
    expected = "topic a\\u2028forged\\x85line \\x1b[2J\\u202e of\tT\n\tat Java\n"
    assert (tmp_path / "spark.log").read_bytes().decode() == expected
    assert log.last_lines == expected.splitlines()
