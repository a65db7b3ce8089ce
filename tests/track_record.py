"""Bugs of this kind that happened to others, and the tests of ours that would notice each.

A line has the report of the bug, the bug, and the tests here that fail if it happened to reput (below ``tests/``).
"""

from __future__ import annotations

from typing import NamedTuple


class Bug(NamedTuple):
    """One bug of another project, and our tests for it."""

    upstream: str
    went_wrong: str
    tests: tuple[str, ...]


CRASHES = "faults/test_crash_points.py"
TAIL = "spark/test_tail.py"

TRACK_RECORD = (
    Bug(
        "rocketmq#405, #467, #501",
        "a message that was not dispatched before a crash never reached its queue",
        (f"{CRASHES}::test_stop_at_every_call", "faults/test_kill_9.py::test_killed_under_load"),
    ),
    Bug(
        "rocketmq#1434",
        "a crash at a segment's roll: what was not dispatched in the earlier segment was lost",
        (f"{CRASHES}::test_power_failure_at_every_call",),
    ),
    Bug(
        "rocketmq#678",
        "the checkpoint was ahead of the queues that were flushed",
        (f"{CRASHES}::test_what_recovery_finds_is_durable", "faults/test_output_errors.py::test_an_error_moves_no_end"),
    ),
    Bug(
        "rocketmq#3868, #4463, #8007",
        "index files deleted or not flushed after an unclean end: keys not found",
        (
            f"{CRASHES}::test_crash_while_recovering",
            "unit/sinks/index/test_index_recovery.py::test_any_part_of_a_batch_on_disk_is_mended",
        ),
    ),
    Bug(
        "rocketmq#7539",
        "index files made without end until the disk was full",
        ("faults/test_output_errors.py::test_no_restart_on_a_failing_disk_leaves_more_files",),
    ),
    Bug(
        "rocketmq#289, #6767",
        "an illegal magic code: the queue stood still for ever, and only a log line said so",
        (
            "unit/sinks/test_anomalies.py::test_in_the_middle_it_stops_the_run_at_its_place",
            "faults/test_hostile_records.py::test_each_hostile_record_costs_itself",
        ),
    ),
    Bug(
        "DefaultMessageStore#doReput",
        "behind one bad record the rest of the segment is passed over",
        ("test_anomalies_broker.py::test_what_the_broker_does_with_damage",),
    ),
    Bug(
        "rocketmq#7902",
        "an Error ended the reput thread, and the broker ran on without it",
        ("spark/test_never_idle.py::test_an_error_ends_the_run", "spark/test_tail_survives.py::test_what_passes"),
    ),
    Bug(
        "rocketmq#8405, #10288",
        "files deleted or expired under a memory mapping: the JVM died",
        (
            "faults/test_expiry.py::test_segments_that_go",
            "unit/source/log/test_range_reader.py::test_a_segment_that_was_cut_is_a_loss",
        ),
    ),
    Bug(
        "rocketmq#8403, #9693",
        "a read-only or full device: the JVM died of a signal",
        (
            "unit/sinks/files/test_durable_file.py::test_a_read_only_directory",
            "unit/sinks/files/test_durable_file.py::test_a_full_disk",
            "spark/test_tail_survives.py::test_what_passes",
        ),
    ),
    Bug(
        "rocketmq#1637, CVE-2019-17572",
        "the topic ../../../x made directories outside the store",
        (
            "unit/sinks/files/test_store_path.py::test_any_name_is_accepted_or_refused_and_stays_inside",
            "faults/test_hostile_records.py::test_any_name_is_one_directory_or_none",
        ),
    ),
    Bug(
        "rocketmq#6747",
        "a light queue's name with a slash made a path with which the broker did not start again",
        (
            "faults/test_hostile_records.py::test_each_hostile_record_costs_itself",
            "unit/sinks/files/test_store_path.py::test_hostile_topic_is_refused",
        ),
    ),
    Bug(
        "rocketmq#467, #2593",
        "queue offsets out of order were only a line in the log",
        (
            "unit/sinks/test_anomalies.py::test_any_order_in_any_batches_equals_the_model",
            "unit/sinks/test_anomalies.py::test_batch_line_and_summary_show_anomalies_only_when_there_are_some",
        ),
    ),
    Bug(
        "rocketmq#6609, #6703",
        "dispatched beyond what survived the broker's recovery",
        ("faults/test_rewound_log.py::test_a_log_that_was_cut_and_written_on",),
    ),
    Bug(
        "spark SPARK-28650",
        "the same partition and epoch are not the same data",
        (
            "unit/sinks/queue/test_consume_queue.py::test_replays_and_other_cuts_change_no_byte",
            "unit/sinks/index/test_index.py::test_replays_and_other_cuts_change_no_byte",
        ),
    ),
    Bug(
        "spark SPARK-47329",
        "two actions in foreachBatch read the source twice",
        ("spark/test_any_restart.py::test_a_batch_is_read_once",),
    ),
    Bug(
        "spark SPARK-26425, SPARK-43542",
        "two queries on one checkpoint",
        ("faults/test_two_tailers.py::test_exactly_one_of_two_wins", f"{TAIL}::test_a_broker_on_the_output_is_refused"),
    ),
    Bug(
        "spark SPARK-48330, SPARK-55416",
        "workers timed out or grew while the offset did not move",
        ("unit/source/test_data_source.py::test_latest_offset_at_the_end_is_the_start_itself",),
    ),
    Bug(
        "spark, initial offset of a Python source (delta-io/delta#7547)",
        "where the first batch began is not in the checkpoint: the next start asked anew",
        ("spark/test_first_start.py::test_expiry_between_a_failed_first_batch_and_the_next_start",),
    ),
    Bug(
        "paimon#9666",
        "a micro-batch that was replayed was committed twice",
        (f"{TAIL}::test_a_replayed_batch_changes_nothing",),
    ),
    Bug(
        "Delta docs, delta-streaming",
        "a lost checkpoint begins batch ids at 0 again, and writes under known ids are ignored in silence",
        (f"{TAIL}::test_whatever_is_lost_is_made_again", "spark/test_any_restart.py::test_old_and_new_parts_together"),
    ),
    Bug(
        "Delta docs, delta-batch",
        "other data under a known transaction is ignored",
        ("spark/test_delta_table.py::test_a_repeated_or_lower_version_is_refused",),
    ),
    Bug(
        "delta-rs#2580, #3821",
        "a transaction is written twice: nobody looks whether it is there",
        ("spark/test_delta_table.py::test_the_data_frame_writer_sees_the_same_transactions",),
    ),
    Bug(
        "hudi#5400",
        "no way to stop when data were lost",
        (
            "unit/source/log/test_log_reader.py::test_an_offset_that_has_expired",
            f"{TAIL}::test_expired_records_are_a_loss_unless_allowed",
        ),
    ),
    Bug(
        "neo4j-spark-connector#579, azure-event-hubs-spark#431, #532",
        "a restart lost or repeated the last range",
        (f"{TAIL}::test_a_second_run_adds_only_what_is_new", f"{TAIL}::test_a_replayed_batch_changes_nothing"),
    ),
)
