"""G4: a broker that was killed cut its log and wrote on; the bytes that it did not overwrite are still there, whole.

``MappedFileQueue#truncateDirtyFiles`` sets positions back, removes the segments after it and clears no byte: after the
new end, in its segment, old records remain at their right places. An output that has some of the lost records must be
refused, and must not continue in silence.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from support.outputs import SEGMENT_BYTES, Output, messages_of
from support.proof_counts import Proof
from support.sink_runner import MEMORY, LogBatches, SinkRun, no_fsync, record_bounds

from reput.source.errors import CommitLogRewoundError
from reput.source.log.log_reader import LogReader
from reput.source.options import SourceOptions
from reput.streaming.output.logic_sinks import recover_sinks
from reput.streaming.recover.recover import recover_output

CASES_SHORT, CASES_FULL = 60, 5000


class Rewound:
    """A log of which the output has the first part, cut at `cut` and written on over the old bytes."""

    def __init__(self, root: Path, rng: Random) -> None:
        self.output = Output(root, [])
        self.output.write_log(messages_of(rng, 40))
        old = self.output.records
        self.old_bounds = set(record_bounds(old))
        self.end = old[rng.randrange(1, len(old))].physical_offset
        with SinkRun(self.output.out, self.output.settings) as run:
            run.write(LogBatches(self.output.log)(0, self.end))
        before = {path.name: path.read_bytes() for path in self.output.log.iterdir()}
        kept = rng.randrange(len(old))
        self.cut = old[kept].physical_offset
        messages = [record.message for record in old[:kept]] + messages_of(rng, rng.randrange(1, 12), 100)
        self.output.write_log(messages)
        self.new_end = record_bounds(self.output.records)[-1]
        self._leave_old_bytes(before)

    def _leave_old_bytes(self, before: dict[str, bytes]) -> None:
        """After the new end, put back the bytes that the cut's segment had there."""
        name = f"{self.cut - self.cut % SEGMENT_BYTES:020d}"
        path, at = self.output.log / name, self.new_end - int(name)
        if at < SEGMENT_BYTES:
            path.write_bytes(path.read_bytes()[:at] + before[name][at:])

    @property
    def is_harmed(self) -> bool:
        """The output has a record that the broker lost: from the cut on the log says other things."""
        return self.cut < self.end

    @property
    def is_seamless(self) -> bool:
        """The new records end where an old one of the segment begins: nothing tells the log's end any more."""
        same_segment = self.new_end // SEGMENT_BYTES == self.cut // SEGMENT_BYTES
        return same_segment and self.new_end in self.old_bounds

    def start(self) -> None:
        """Do the work of `reput tail` before Spark starts."""
        log = LogReader(SourceOptions.parse(self.output.config.source_options()))
        run = SinkRun(self.output.out, self.output.settings)
        try:
            recover_sinks(run.sinks, log, fail_on_data_loss=True)
        finally:
            run.close()

    def write_on(self) -> None:
        """Let the broker write on: the bytes after its end are overwritten."""
        for path in self.output.log.iterdir():
            at = max(0, min(SEGMENT_BYTES, self.new_end - int(path.name)))
            path.write_bytes(path.read_bytes()[:at].ljust(SEGMENT_BYTES, b"\0"))


def rewind_once(seed: int) -> str:
    with TemporaryDirectory(dir=MEMORY) as directory, no_fsync():
        rewound = Rewound(Path(directory), Random(seed))
        output = rewound.output
        said = None
        try:
            rewound.start()
        except CommitLogRewoundError as error:
            said = str(error)
        if said is not None:
            assert rewound.is_harmed, f"seed {seed}: {said}"
            assert "'reput recover'" in said
            outcome = "G4 rewound logs refused"
        else:
            outcome = "G4 logs cut behind what was dispatched"
            if rewound.is_harmed:
                assert rewound.is_seamless, f"seed {seed}: dispatched to {rewound.end}, cut at {rewound.cut}"
                outcome = "G4 rewound logs without a seam, found by reput recover"
        rewound.write_on()
        if rewound.is_harmed:
            # A log that was cut at its beginning is another log, and the command asks for a word.
            report = recover_output(output.config, output.store, output.out, yes=True)
            assert report.is_changed, f"seed {seed}: reput recover has not seen it"
        output.go_on()
        output.check()
        return outcome


def test_a_log_that_was_cut_and_written_on(proof: Proof) -> None:
    """Refused, or nothing that was dispatched is lost; and `reput recover` brings the output to the new log."""
    for seed in range(CASES_SHORT):
        proof(rewind_once(seed))


@pytest.mark.slow
def test_a_log_that_was_cut_and_written_on_in_full(proof: Proof) -> None:
    """As above, at many more places."""
    for seed in range(CASES_SHORT, CASES_FULL):
        proof(rewind_once(seed))


def test_an_output_begun_behind_damage_is_no_rewound_log(tmp_path: Path) -> None:
    """A damaged record before its beginning says nothing of the records that the output has."""
    output = Output(tmp_path, [])
    output.write_log(messages_of(Random(1), 12))
    damaged, first, second = (output.records[number].physical_offset for number in (2, 3, 6))
    segment = output.log / f"{0:020d}"
    segment.write_bytes(segment.read_bytes()[: damaged + 4] + b"\0\0" + segment.read_bytes()[damaged + 6 :])
    with SinkRun(output.out, output.settings, first) as run:
        run.write(LogBatches(output.log)(first, second))
    with closing(SinkRun(output.out, output.settings)) as run:
        log = LogReader(SourceOptions.parse(output.config.source_options(startingOffset=str(first))))
        recover_sinks(run.sinks, log, fail_on_data_loss=True)
        assert run.end == second
