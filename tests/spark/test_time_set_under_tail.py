"""G14: the time of day is set under a running `reput tail`, and it continues at once.

Neither the machine's clock is set nor root needed: a small library, made here, gives the tail, its JVM and its workers
another time of day, while their monotonic clocks stay right.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest
from faults.tail_process import LogWriter, Oracle, TailProcess

pytestmark = [pytest.mark.spark, pytest.mark.long]

DAY_S = 86_400
LIMIT_SECONDS = 120.0
SOURCE = Path(__file__).parents[1] / "support" / "time_of_day.c"
LINES = {-3 * DAY_S: "was set back by 3.0 d: logic and table are opened again", 4 * DAY_S: None}


@pytest.fixture
def library(tmp_path: Path) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler, so nothing can give a process another time of day")
    made = tmp_path / "time_of_day.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", str(made), str(SOURCE)], check=True)
    return made


@pytest.mark.slow
def test_the_time_of_day_is_set_under_a_tail(library: Path, tmp_path: Path) -> None:
    """Three days back, then four forwards: queues, index and table follow the log, with one line in the log."""
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    off = tmp_path / "off"
    off.write_text("0")
    writer = LogWriter(tmp_path / "store" / "commitlog", 100.0)
    faked = ("env", f"LD_PRELOAD={library}", f"REPUT_TEST_TIME_OFF={off}")
    tail = TailProcess(tmp_path, wrapper=faked)
    try:
        tail.wait_beyond(0)
        for step, words in LINES.items():
            said = len(tail.said.read_text())
            off.write_text(str(int(off.read_text()) + step))
            time.sleep(1.0)  # a micro-batch that was under way ends
            tail.wait_beyond(max(tail.end_offset("consumequeue"), tail.end_offset("messages")), LIMIT_SECONDS)
            warnings = [line for line in tail.said.read_text()[said:].splitlines() if " WARNING " in line]
            assert len(warnings) == (words is not None), warnings
            assert all(words in line for line in warnings if words is not None), warnings
        messages = writer.end()
        tail.process.terminate()
        assert tail.process.wait(60) == 0
        last = TailProcess(tmp_path, "--available-now")
        assert last.process.wait(LIMIT_SECONDS) == 0, last.last_words()
        Oracle(tmp_path).check_all(messages)
    finally:
        tail.end()
        writer.kill()
