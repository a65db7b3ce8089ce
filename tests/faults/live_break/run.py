"""One run of the live break test: broker, load, tail, event after event, and the comparison at the end."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING

from broker.rocketmq import RocketMQ
from faults.live_break.disk import Disk, run
from faults.live_break.events import DONE, EVENTS, PERSON, SIGNALS, TRY_AGAIN, Expect
from faults.live_break.judge import Judge, Stretch, Verdict
from faults.live_break.live_broker import LiveBroker
from faults.live_break.processes import end_all, survivors
from faults.live_break.report import Outcome, Report
from faults.live_break.tail import Done, Paths, Tail, run_reput, ugly_lines, way_out

if TYPE_CHECKING:
    from typing_extensions import Self

END_SECONDS = 60.0
GOING_SECONDS = 240.0
ALL_GONE_SECONDS = 20.0
STARTS_MAX = 10
REPAIRS_MAX = 3
RESTS = ("hsperfdata_",)  # Java's own folder, empty when no JVM runs
# The judge looks for every record that there ever was, so nothing may expire from the outputs.
OPTIONS = ("failOnDataLoss=false", "tableTriggerMs=1000", "sparkDriverMemory=600m", "cleanResourceInterval=0")


class LiveBreak:
    """Everything that runs; leaving `with` ends it.

    Parameters
    ----------
    work
        A new directory for all files; what is on the test's disks is kept there at the end.
    release
        Of RocketMQ: 4.9.3 or 5.5.0.
    rate
        Messages a second.
    """

    def __init__(self, work: Path, release: str, seed: int, rate: int, say: Callable[[str], None] = print) -> None:
        self.work = work.resolve()
        self._release = release
        self._seed = seed
        self._say = say
        self._log = self.work / "tail.log"
        self._cleanup = ExitStack()
        self._lost: dict[str, list[Stretch]] = defaultdict(list)
        self._floor = 0
        self._begun_again = 0
        self.report = Report(release, seed)
        self.broker = LiveBroker(RocketMQ(release), self.work, rate)
        self.disks = {name: Disk(self.work / "disks" / name, str(self.work)) for name in ("output", "table")}
        self.paths = Paths(
            self.work,
            self.broker.store,
            self.work / "broker.conf",
            self.disks["output"].root / "out",
            self.disks["table"].root / "messages",
            has_own_tmp=self._can_have_own_tmp(),
        )
        self._tail: Tail | None = None

    def _can_have_own_tmp(self) -> bool:
        needed = (self.work, Path(sys.executable), Path(sys.executable).resolve(), Path(__file__).resolve())
        is_hidden = any(Path("/tmp") in path.absolute().parents for path in needed)
        return os.geteuid() == 0 and not is_hidden and run("unshare", "--mount", "true")

    def __enter__(self) -> Self:
        """Start broker, load and tail, and wait until the tail follows."""
        for number in SIGNALS:
            # A shell ignores some of them for what it runs in the background, and children inherit that.
            if signal.getsignal(number) is signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        with self._cleanup:
            self._cleanup.callback(self._keep_disks)
            self._cleanup.callback(self._close_tail)
            self._cleanup.callback(end_all, self.paths.mark)
            self._cleanup.callback(self.broker.end)
            for directory in (self.paths.cwd, self.paths.tmp):
                directory.mkdir()
            self.broker.start()
            self.broker.copy_conf(self.paths.broker_conf)
            self.start_tail()
            self.report.outcomes.append(Outcome("first start"))
            self._settle(self.report.outcomes[-1], Expect(frozenset(), ends=False))
            self._cleanup = self._cleanup.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave nothing running and nothing mounted."""
        self._cleanup.close()

    def _keep_disks(self) -> None:
        for name, disk in self.disks.items():
            if disk.is_mounted:
                run("cp", "--archive", "--sparse=always", str(disk.root), str(self.work / f"kept-{name}"))
            disk.end()

    def start_tail(self) -> None:
        """Start another run of `reput tail`."""
        self._close_tail()
        self._tail = Tail(self.paths, self._log, OPTIONS)

    def _close_tail(self) -> None:
        if self._tail is not None:
            self._tail.close()

    @property
    def tail(self) -> Tail:
        """The newest run of the tail."""
        assert self._tail is not None, "no tail was started"
        return self._tail

    # --- events ------------------------------------------------------------------------------------------

    def run(self, kinds: Sequence[str]) -> Report:
        """One event after the other, then the end and the comparison."""
        for number, kind in enumerate(kinds, 1):
            rng = Random(f"{self._seed} {number}")
            outcome = Outcome(kind)
            self.report.outcomes.append(outcome)
            self._happen(outcome, rng)
            self._say(f"{number:3} {outcome.line()}")
            time.sleep(rng.uniform(0, 2))
        self._finish()
        return self.report

    def _happen(self, outcome: Outcome, rng: Random) -> None:
        """One event, up to the moment when the tail has all that was in the log when the fault was over."""
        if not self.tail.running:
            outcome.complain("the tail had ended before anything happened")
            self._settle(outcome, Expect(frozenset(), ends=False))
        expected = EVENTS[outcome.kind](self, rng)
        for sink, stretch in expected.lost.items():
            self._lost[sink].append(stretch)
        began = time.monotonic()
        told = len(self.tail.said)
        if expected.ends is True or expected.lift is not None:
            done = self.tail.wait(END_SECONDS)
            if done is None and expected.ends is True:
                before = self.paths.progress()
                outcome.complain(f"{END_SECONDS:g} s later it had not ended, and stood at {before}")
            if expected.lift is not None:
                expected.lift()
        self._settle(outcome, expected)
        outcome.seconds = time.monotonic() - began
        if expected.ghosts and PERSON not in outcome.codes and "WARNING" not in self.tail.said[told:]:
            outcome.complain(f"not a word about lost records that {', '.join(expected.ghosts)} had: {expected.tear}")
        if left := sorted(path.name for path in self.paths.cwd.iterdir()):
            outcome.complain(f"left in the current directory: {', '.join(left)}")
            for path in self.paths.cwd.iterdir():
                run("rm", "-r", str(path))

    def _settle(self, outcome: Outcome, expected: Expect) -> None:
        """Start the tail again until it follows the log, doing what it says."""
        target = self.broker.log_end()
        codes = expected.codes
        for _ in range(STARTS_MAX):
            if self.tail.wait_beyond(target, GOING_SECONDS) and self.tail.running:
                outcome.look_at(self.tail.said)
                return
            if self.tail.running:
                outcome.complain(f"after {GOING_SECONDS:g} s at {self.paths.progress()}, the log at {target}")
                self.tail.kill_group()
                codes = frozenset({-signal.SIGKILL})
            done = self.tail.wait(END_SECONDS)
            assert done is not None
            self._after(done, codes, outcome)
            self._do_what_it_says(done, outcome)
            codes = frozenset({PERSON})  # with a way out, or `_do_what_it_says` complains
            self.start_tail()
        outcome.complain(f"{STARTS_MAX} starts did not make it go on")
        raise AssertionError(outcome.line())

    def _after(self, done: Done, codes: frozenset[int], outcome: Outcome) -> None:
        """Judge how a run ended."""
        outcome.codes.append(done.code)
        outcome.look_at(done.said)
        if done.last_line:
            outcome.said.append(done.last_line)
        if done.code not in codes | {TRY_AGAIN}:
            outcome.complain(f"ended with {done.code}, promised {sorted(codes) or 'to go on'}: {done.last_line[:300]}")
        elif done.code == TRY_AGAIN and TRY_AGAIN not in codes and not outcome.is_over:
            outcome.complain(f"ended with {done.code} for no reason: {done.last_line[:300]}")
        if done.code > 0 and not done.is_one_line:
            outcome.complain(f"exit code {done.code} without one line that says why")
        if left := survivors(self.paths.mark, ALL_GONE_SECONDS):
            outcome.complain(f"{len(left)} processes outlived it: {left[0].command[:150]}")
            end_all(self.paths.mark)
        outcome.is_over = True

    def _do_what_it_says(self, done: Done, outcome: Outcome) -> None:
        """Where a person must look, do what the line says; without a way out, begin again beside all that was made."""
        if done.code != PERSON:
            return
        if outcome.kind.startswith("read-only"):
            return  # what the person had to do was to make it writable
        words = way_out(done.last_line, self.paths)
        if words is None:
            outcome.complain(f"exit code {done.code}, and no command to run in: {done.last_line[:500]}")
            if outcome.codes.count(PERSON) == 1:
                return  # a start may help all the same
        elif self._repair(words, outcome):
            return
        self._begin_again()

    def _repair(self, words: list[str], outcome: Outcome) -> bool:
        """Run the command that a line named, and what that command asks for in turn; whether it ended well."""
        for _ in range(REPAIRS_MAX):
            outcome.ways.append(words[0])
            done = run_reput(self.paths, self._log, *words)
            outcome.look_at(done.said)
            if done.code == DONE:
                if outcome.ways.count(words[0]) <= REPAIRS_MAX:
                    return True
                outcome.complain(f"reput {words[0]} did not help, again and again")
                return False
            following = words if done.code == TRY_AGAIN else way_out(done.last_line, self.paths)
            if following is None:
                break
            words = following
        outcome.complain(f"reput {' '.join(words)} ended with {done.code}: {done.last_line[:300]}")
        return False

    def _begin_again(self) -> None:
        """The last resort: what was made is put aside, and everything is made from the log as it is."""
        self._begun_again += 1
        for path in (self.paths.output, self.paths.table):
            with suppress(FileNotFoundError):
                path.rename(path.with_name(f"{path.name}-aside-{self._begun_again}"))
        self._floor = self.broker.min_offset

    # --- the end -----------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Stop the load, let the tail catch up, stop all, compare."""
        outcome = Outcome("end of the run")
        self.report.outcomes.append(outcome)
        self.broker.stop_load()
        time.sleep(2)
        self._settle(outcome, Expect(frozenset(), ends=False))
        if (left := self.broker.stop()) is not None:
            self._say(f"the broker's stop was not clean: {left}")
        self.tail.signal(signal.SIGTERM)
        done = self.tail.wait(END_SECONDS)
        if done is None:
            outcome.complain(f"{END_SECONDS:g} s after SIGTERM it still ran")
        else:
            self._after(done, frozenset({DONE}), outcome)
        end_all(self.paths.mark)
        temporary = sorted(path.name for path in self.paths.tmp.iterdir() if not path.name.startswith(RESTS))
        if temporary:
            outcome.complain(f"{len(temporary)} left in the temporary directory: {', '.join(temporary[:5])}")
        self.broker.settle_archive()
        self.report.verdict = self._judge()
        self._verify(outcome)
        self._say(f"    {outcome.line()}")

    def _judge(self) -> Verdict:
        judge = Judge(self.broker.archive, self.paths, self._release, self._lost, self._floor)
        return judge.judge(self._log.read_text(errors="replace"))

    def _verify(self, outcome: Outcome) -> None:
        """`reput verify` has to agree with the judge."""
        words = ["verify", "--store", str(self.paths.store), "--output", str(self.paths.output)]
        words += ["--broker-conf", str(self.paths.broker_conf), "--table", str(self.paths.table)]
        done = run_reput(self.paths, self._log, *words)
        outcome.complaints += [f"reput verify printed: {line}" for line in ugly_lines(done.said)]
        if done.code != DONE:
            outcome.complain(f"reput verify ended with {done.code}: {' | '.join(done.said.splitlines()[-12:])}")
