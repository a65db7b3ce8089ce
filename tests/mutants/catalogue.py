"""Mistakes that somebody could make in the sources, each with tests that must notice it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One mistake: in `file`, each old text (which occurs once) becomes the new one; then `tests` must fail.

    `tests` are pytest's words: node ids below ``tests/``, and options such as ``-k``. Tests marked slow run if
    `marks` says so, and then no others.
    """

    name: str
    file: str
    changes: tuple[tuple[str, str], ...]
    tests: tuple[str, ...]
    marks: str = "not slow"


def _mutant(name: str, file: str, old: str, new: str, *tests: str, marks: str = "not slow") -> Mutant:
    return Mutant(name, file, ((old, new),), tests, marks)


CRASHES = "faults/test_crash_points.py"
#: Power fails before each call of a plain batch, in one of two ways.
POWER_LOST = tuple(f"{CRASHES}::test_power_failure_at_every_call[middle-{seed}]" for seed in range(2))
DURABLE = "unit/sinks/files/test_durable_file.py"
QUEUES = "unit/sinks/queue/test_consume_queue.py"
ENDS = "unit/source/log/test_reput_end_offset.py"
REBUILD_DAMAGE = "unit/streaming/rebuild/test_rebuild_damage.py"
ROWS = "unit/source/rows/test_message_rows.py"
COLUMNS = "unit/source/rows/test_message_columns.py"

MUTANTS = (
    # --- what is durable when (G6, G7)
    _mutant(
        "a file is not synced",
        "sinks/files/durable_file.py",
        "            os.fsync(self._descriptors[path])\n",
        "            pass\n",
        *POWER_LOST,
    ),
    _mutant(
        "a directory is not synced",
        "sinks/files/durable_file.py",
        "                _sync_directory(directory)\n",
        "                pass\n",
        f"{CRASHES}::test_power_failure_at_every_call[queue-file roll-0]",
        f"{CRASHES}::test_power_failure_at_every_call[queue-file roll-1]",
    ),
    _mutant(
        "a renaming is not made durable",
        "sinks/files/durable_file.py",
        '                self._sync_directories()\n        except OSError as error:\n            raise _refused("rep',
        '                pass\n        except OSError as error:\n            raise _refused("rep',
        f"{DURABLE}::test_replace_is_durable_on_return_with_the_directories_above",
    ),
    _mutant(
        "a record's new content is renamed before it is durable",
        "sinks/files/durable_file.py",
        "                os.fsync(descriptor)\n            finally:\n                os.close(descriptor)\n",
        "                pass\n            finally:\n                os.close(descriptor)\n",
        *POWER_LOST,
    ),
    _mutant(
        "a failed sync is tried again",
        "sinks/files/durable_file.py",
        '            self._failure = _refused("sync", Path(path), error)\n            raise\n',
        "            raise\n",
        f"{DURABLE}::test_a_failed_sync_is_never_taken_back",
    ),
    _mutant(
        "a short write is taken for a whole one",
        "sinks/files/durable_file.py",
        "                done += os.pwrite(descriptor, view[done:], offset + done)\n",
        "                os.pwrite(descriptor, view[done:], offset + done)\n                done = len(view)\n",
        "faults/test_output_errors.py::test_short_writes_are_finished",
    ),
    Mutant(
        "progress is told before the index is durable",
        "sinks/index/index_sink.py",
        (
            ("        self._files.sync()\n        self._record.advance(", "        self._record.advance("),
            (
                "self._state())\n        return NO_ANOMALIES",
                "self._state())\n        self._files.sync()\n        return NO_ANOMALIES",
            ),
        ),
        POWER_LOST,
    ),
    _mutant(
        "entries of an unfinished batch are kept",
        "sinks/queue/queue_sink.py",
        '        good &= units["physical_offset"] < end_offset\n',
        '        good &= units["physical_offset"] <= end_offset\n',
        f"{CRASHES}::test_stop_at_every_call[middle]",
    ),
    _mutant(
        "slots that hide their chains are left",
        "sinks/index/index_file.py",
        "        if (on_disk != self._slots).any():\n",
        "        if False:\n",
        "unit/sinks/index/test_index_recovery.py",
    ),
    _mutant(
        "a crash's entries behind the last one are left",
        "sinks/index/index_file.py",
        "        self._clear_entries(count)\n",
        "",
        f"{CRASHES}::test_stop_at_every_call[middle]",
    ),
    _mutant(
        "recovery leaves the header as a crash left it",
        "sinks/index/index_file.py",
        "        self._clear_entries(count)\n        self._write_header()\n",
        "        self._clear_entries(count)\n",
        f"{CRASHES}::test_stop_at_every_call[middle]",
    ),
    # --- each effect once (G1, G13)
    _mutant(
        "a replayed batch is written whole",
        "sinks/sink.py",
        "    return batch.after(end_offset)\n",
        "    return batch\n",
        f"{CRASHES}::test_stop_at_every_call[middle]",
    ),
    _mutant(
        "a batch that skips records is written",
        "sinks/sink.py",
        "    if batch.start > end_offset:\n",
        "    if False:\n",
        f"{QUEUES}::test_a_batch_that_would_skip_records_is_refused",
    ),
    _mutant(
        "a record that was built already is one short of it",
        "sinks/dispatch/runs.py",
        "            if after <= self._reached:  # (A)\n",
        "            if after < self._reached:  # (A)\n",
        f"{QUEUES}::test_rule_a_not_beyond_the_last_record",
        "unit/sinks/test_anomalies.py::test_already_built",
    ),
    _mutant(
        "a queue that begins in the middle has no blanks",
        "sinks/queue/consume_queue.py",
        "        return QueueExtent(end - end % file_size, end % file_size // CQ_STORE_UNIT_SIZE, anomalies)\n",
        "        return QueueExtent(end - end % file_size, 0, anomalies)\n",
        f"{QUEUES}::test_rule",
    ),
    _mutant(
        "prepared and rolled-back messages are queued",
        "sinks/dispatch/piece_kernels.py",  # its own file, or numba takes the kernel that it has compiled before
        "            if with_queues and is_queued(sys_flag):\n",
        "            if with_queues:\n",
        "unit/sinks/test_anomalies.py::test_case",
    ),
    _mutant(
        "a queue file rolls an entry late",
        "sinks/queue/queue_files.py",
        "            size = min(len(data), file + self.file_size - at)\n",
        "            size = min(len(data), file + self.file_size + 20 - at)\n",
        f"{QUEUES}::test_rule",
    ),
    _mutant(
        "an index file takes a key more",
        "sinks/index/index_file.py",
        "        return self._max_index_num - self.header.next_entry\n",
        "        return self._max_index_num + 1 - self.header.next_entry\n",
        "unit/sinks/index/test_index.py::test_a_file_takes_one_key_less_than_max_index_num",
    ),
    _mutant(
        "the table's transactions are not the physical offset",
        "sinks/table/message_table.py",
        "version=end, check=self._check, note=note)\n",
        "version=rows, check=self._check, note=note)\n",
        "spark/test_tail.py::test_a_replayed_batch_changes_nothing",
    ),
    _mutant(
        "a merge loses a row",
        "sinks/table/compaction.py",
        "    return rows.take(pa.array(order))\n",
        "    return rows.take(pa.array(order[1:]))\n",
        "unit/sinks/table/test_compaction.py",
    ),
    _mutant(
        "a merge is taken for a change of rows",
        "sinks/table/kernel_transaction.py",
        "row = add.convertDataFileStatus(schema, base, each, no_values, False,",
        "row = add.convertDataFileStatus(schema, base, each, no_values, True,",
        "spark/test_table_upkeep.py::test_small_files_become_one",
    ),
    _mutant(
        "a merge brings rows back that a deletion vector took away",
        "sinks/table/delta_table.py",
        " for file in files_now if not file.getDeletionVector().isPresent()}",
        " for file in files_now}",
        "spark/test_table_upkeep.py::test_another_writer_in_the_moment_of_a_merge",
    ),
    _mutant(
        "a file that a kept version has goes with the old ones",
        "sinks/table/log_cleanup.py",
        'log.paths(number, "remove") if path not in needed and',
        'log.paths(number, "remove") if',
        "spark/test_table_upkeep.py::test_a_file_that_came_back_is_kept",
        marks="slow",
    ),
    _mutant(
        "a file that a writer may still commit goes with the orphans",
        "sinks/table/own_files.py",
        "        if newer - file.modified_s >= WRITTEN_WITHIN_S:\n",
        "        if newer >= file.modified_s:\n",
        "unit/sinks/table/test_own_files.py::test_what_a_writer_may_still_commit_stays",
    ),
    _mutant(
        "the last topic that fits a rule counts",
        "sinks/table/row_retention.py",
        "next((rule.days for rule in self.rules if rule.matches(topic)), None)",
        "next((rule.days for rule in self.rules[::-1] if rule.matches(topic)), None)",
        "unit/sinks/table/test_row_retention.py::test_the_first_rule_that_matches",
    ),
    _mutant(
        "a row expires on its last day",
        "sinks/table/row_retention.py",
        "mask: Bools = (store_times_ms < least[codes])",
        "mask: Bools = (store_times_ms <= least[codes])",
        "unit/sinks/table/test_row_retention.py::test_a_row_stays_for_whole_days",
    ),
    _mutant(
        "expired rows are taken for lost ones",
        "sinks/table/watch.py",
        "            elif each.expired is not None:\n                ledger = ledger.without(each.expired)\n",
        "            elif each.expired is not None:\n                pass\n",
        "spark/test_table_retention.py::test_expired_rows_go_and_nobody_misses_them",
    ),
    _mutant(
        "rows of another broker expire, too",
        "sinks/table/expired_rows.py",
        "        return self._is_ours(rows) & self.limits.mask(",
        "        return self.limits.mask(",
        "unit/sinks/table/test_row_retention.py::test_which_rows_of_a_file",
    ),
    _mutant(
        "older versions keep rows that are to be forgotten",
        "sinks/table/forget.py",
        "            self._clean(self._done.version)\n",
        "            pass\n",
        "spark/test_table_forget.py::test_nothing_is_left",
    ),
    _mutant(
        "a commit that forgets rows tells their topic",
        "sinks/table/kernel_transaction.py",
        "hides_removed=change.deleted is not None)",
        "hides_removed=False)",
        "spark/test_table_forget.py::test_nothing_is_left[topic]",
        marks="slow",
    ),
    _mutant(
        "lost rows are taken for rows that were forgotten",
        "sinks/table/watch.py",
        " or (before.rows < ledger.rows and not before.on_purpose)",
        "",
        "spark/test_table_forget.py::test_rows_that_were_lost_before_are_still_missed",
        marks="slow",
    ),
    _mutant(
        "the table's first start is not kept",
        "sinks/table/message_table.py",
        "        if committed is None and not self._is_first_start(record):\n",
        "        if committed is None:\n",
        "spark/test_first_start.py",
    ),
    # --- what may be read (G3, G4, G11)
    _mutant(
        "a record of another offset counts",
        "source/kernels/record_kernels.py",
        "    if load_i64(data, at + _PHYSICAL_OFFSET_AT) != physical_offset:\n        return _BAD_PHYSICAL_OFFSET\n",
        "",
        f"{ENDS}::test_an_old_record_of_another_offset_ends_the_log",
    ),
    _mutant(
        "bodies at the tail are not checked",
        "source/log/log_reader.py",
        '            check_crc=options.check_crc != "none",\n',
        "            check_crc=False,\n",
        "unit/source/log/test_log_reader.py::test_bodies_at_the_tail",
    ),
    _mutant(
        "the last record is trusted at once",
        "source/log/reput_end_offset.py",
        "        return (now - known.seen_at) * 1000 >= self._tail_guard_ms\n",
        "        return True\n",
        "faults/test_torn_tail.py",
    ),
    _mutant(
        "another record at the last one's offset is taken for it",
        "streaming/output/startup.py",
        "    if found != known:\n",
        "    if False:\n",
        "faults/test_rewound_log.py",
    ),
    _mutant(
        "a record left behind the log's new end is taken for the log's",
        "source/log/last_record.py",
        "    return any(_leads(file, begin, offset, on_damage) for begin in sorted(allowed))\n",
        "    return True\n",
        "faults/test_rewound_log.py",
    ),
    _mutant(
        "a stream that waits does not follow the records to its last one",
        "source/data_source.py",
        "        self._check_last_record(start, is_idle=end <= begin)\n",
        "        self._check_last_record(start, is_idle=False)\n",
        "faults/test_rewound_tail.py::test_a_log_that_is_written_over",
    ),
    _mutant(
        "a log that is gone is taken for one that expired",
        "source/segments/segment_listing.py",
        "        self._check_not_gone(found, stamps)\n",
        "        pass\n",
        "unit/source/segments/test_segment_listing.py",
    ),
    _mutant(
        "records that the log has are passed over",
        "streaming/tail/log_continuity.py",
        "        return end_offset < start <= self.next_available(end_offset)\n",
        "        return end_offset < start\n",
        "unit/streaming/tail/test_log_continuity.py",
    ),
    _mutant(
        "expired records are passed over in silence",
        "streaming/output/startup.py",
        "    if fail_on_data_loss:\n",
        "    if False:\n",
        "faults/test_expiry.py::test_segments_that_go",
    ),
    _mutant(
        "a record at the begin of the log counts as expired",
        "sinks/recover/retention.py",
        '    return len(last) == 1 and int(last["physical_offset"][0]) < min_physic_offset\n',
        '    return len(last) == 1 and int(last["physical_offset"][0]) <= min_physic_offset\n',
        "unit/sinks/queue/test_expire.py::test_which_batch_queue_files_go",
    ),
    _mutant(
        "the file that tells where a queue ends expires",
        "sinks/recover/retention.py",
        "    while expired and not any(",
        "    while False and not any(",
        "unit/sinks/queue/test_expire.py::test_which_queue_files_go",
    ),
    _mutant(
        "entries of an unfinished batch tell where a queue ends",
        "sinks/recover/retention.py",
        "    if end_offset is not None:\n",
        "    if False:\n",
        "unit/sinks/queue/test_expire.py::test_entries_of_an_unfinished_batch_tell_no_end",
    ),
    _mutant(
        "an expired file is removed before the one in front of it is durably gone",
        "sinks/recover/retention.py",
        "        files.sync_names(*parts[:-1])\n",
        "        pass\n",
        "faults/test_expiry_in_tail.py::test_stopped_at_any_call",
    ),
    _mutant(
        "files expire by the begin of another log",
        "streaming/tail/clean_consume_queue.py",
        "            if begin <= self._last_physical_min_offset or not self._is_log_of_sinks(queue):\n",
        "            if begin <= self._last_physical_min_offset:\n",
        "unit/streaming/tail/test_clean_consume_queue.py",
    ),
    _mutant(
        "what could not be removed is never tried again",
        "streaming/tail/clean_consume_queue.py",
        "        if not run.errors:\n",
        "        if True:\n",
        "faults/test_expiry_in_tail.py::test_an_error_at_any_call",
    ),
    _mutant(
        "a sink keeps files in mind that have expired",
        "sinks/queue/queue_sink.py",
        "        queue.files = [file for file in queue.files if file != int(name)]\n",
        "        pass\n",
        "unit/streaming/tail/test_clean_consume_queue.py::test_what_the_sinks_hold_is_what_is_on_disk",
    ),
    _mutant(
        "a hole in the log is jumped",
        "source/log/log_reader.py",
        "            queue.check_no_hole(start)\n",
        "            pass\n",
        "unit/source/log/test_log_reader.py::test_a_hole",
    ),
    _mutant(
        "what is no Exception ends py4j's thread",
        "streaming/tail/batch_gate.py",
        "                raise RuntimeError(msg) from error\n",
        "                raise\n",
        "spark/test_never_idle.py",
    ),
    # --- whose output it is, and where (G9, G10)
    _mutant(
        "there is no lock",
        "sinks/files/store_lock.py",
        "            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)\n",
        "            pass\n",
        "faults/test_two_tailers.py",
    ),
    _mutant(
        "links are followed",
        "sinks/files/durable_file.py",
        "            self._keep(key, os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC))\n",
        "            self._keep(key, os.open(path, os.O_RDWR | os.O_CLOEXEC))\n",
        f"{DURABLE}::test_links_inside_the_output_are_not_followed",
    ),
    _mutant(
        "the parent directory is a name",
        "sinks/files/durable_file.py",
        '            if part in (".", "..") or not _COMPONENT.fullmatch(part):\n',
        "            if not _COMPONENT.fullmatch(part):\n",
        f"{DURABLE}::test_paths_outside_the_root_are_refused",
    ),
    _mutant(
        "any topic makes a directory",
        "sinks/files/store_path.py",
        "    if not (is_topic or is_light) or name.encode() != topic:\n",
        "    if name.encode() != topic:\n",
        "unit/sinks/files/test_store_path.py::test_hostile_topic_is_refused",
    ),
    # --- a rebuild behind damage (G5)
    _mutant(
        "a blank of a wrong size ends a segment",
        "source/segments/range_reader.py",
        "        if on_damage == BROKER or segment.is_blank(start):\n",
        "        if True:\n",
        "unit/source/segments/test_resync.py",
    ),
    _mutant(
        "damage is passed over in a range whose ends are not proven",
        "streaming/effects/range_task.py",
        "passes_over=False)\n        except CorruptRecordError:\n            return RangeEffects(",
        "passes_over=True)\n        except CorruptRecordError:\n            return RangeEffects(",
        f"{REBUILD_DAMAGE}::test_files_and_ranges_are_those_of_tail",
    ),
    _mutant(
        "a blank of a wrong size ends a segment of a rebuild",
        "source/segments/range_reader.py",
        "if passes_over or verdict is Verdict.BLANK:\n",
        "if passes_over:\n",
        f"{REBUILD_DAMAGE}::test_files_and_ranges_are_those_of_tail",
    ),
    _mutant(
        "a sink that is ahead takes what it has again",
        "sinks/dispatch/piece_entries.py",
        '                    _physical_offsets(piece["entries"]) >= offset,\n',
        '                    _physical_offsets(piece["entries"]) >= 0,\n',
        "unit/sinks/dispatch/test_piece_entries.py::test_what_is_left_behind_an_offset",
    ),
    _mutant(
        "entries of further queues stand behind all others of their window",
        "sinks/dispatch/piece.py",
        "            values[mixed] = values[mixed][order]\n",
        "            pass\n",
        "unit/sinks/dispatch/test_multi_dispatch.py::test_entries_stand_in_log_order",
    ),
    _mutant(
        "what was left out is written down again when it comes again",
        "sinks/quarantine.py",
        "if each.start >= self.end_offset and each.start not in self._known)",
        "if each.start not in self._known)",
        "unit/sinks/test_quarantine.py::test_a_replay_with_other_cuts_adds_nothing",
    ),
    _mutant(
        "what a rebuild of one kind of files has written down is written down again",
        "sinks/quarantine.py",
        "if each.start >= self.end_offset and each.start not in self._known)",
        "if each.start >= self.end_offset)",
        f"{REBUILD_DAMAGE}::test_a_part_of_an_output_keeps_what_was_left_out",
    ),
    # --- rows of the table (G1, G6, G10)
    _mutant(
        "a server that ignores the condition of a put is believed",
        "sinks/table/s3_storage.py",
        'is_heeded = self._put(name, b"1") and not self._put(name, b"2")',
        'is_heeded = self._put(name, b"1")',
        "unit/sinks/table/test_table_storage.py::test_bad_servers[ignores]",
    ),
    _mutant(
        "a put whose answer was lost is taken for another writer's",
        "sinks/table/s3_storage.py",
        "return self.read(name) == data",
        "return False",
        "unit/sinks/table/test_table_storage.py::test_bad_servers[lossy]",
    ),
    _mutant(
        "files of the table are committed before they are durable",
        "sinks/table/delta_table.py",
        "            self.storage.make_durable(file.path for file in change.files)\n",
        "",
        "spark/test_delta_table.py::test_files_are_durable_before_they_are_committed",
    ),
    _mutant(
        "texts whose hashes meet are one text",
        "source/rows/column_kernels.py",
        " == size and spans_equal(data, at, out, begin, size)\n",
        " == size\n",
        f"{ROWS}::test_windows_make_the_rows_of_the_log",
    ),
    _mutant(
        "rows of the group before are numbered on",
        "source/rows/column_builders.py",
        "        self.table.fill(-1)\n        self.count = 0\n",
        "        self.count = 0\n",
        f"{ROWS}::test_windows_make_the_rows_of_the_log",
    ),
    _mutant(
        "a name that begins with that of the record before is taken for it",
        "source/rows/column_kernels.py",
        "                    and data[name_end] == _NAME_END\n",
        "",
        f"{ROWS}::test_windows_make_the_rows_of_the_log",
    ),
    _mutant(
        "a name that comes twice keeps its first value",
        "source/rows/column_kernels.py",
        "                count += 1\n            kept[slot] = item\n",
        "                count += 1\n                kept[slot] = item\n",
        f"{ROWS}::test_windows_make_the_rows_of_the_log",
    ),
    _mutant(
        "a part leaves its rows to the next one",
        "source/rows/message_rows.py",
        "        self._message_ids.clear()\n",
        "",
        "unit/sinks/table/test_message_file.py::test_parts_one_after_the_other_share_memory_and_no_row",
    ),
    _mutant(
        "of records decoded before, all have the properties of the first",
        "sinks/dispatch/piece_kernels.py",
        "own = row if is_located else 0\n",
        "own = 0\n",
        "unit/sinks/dispatch/test_range_entries.py::test_records_that_are_decoded_for_the_table_make_the_same_pieces",
    ),
    _mutant(
        "large texts fill a row group without end",
        "sinks/table/message_file.py",
        " or self._text_bytes >= _TEXT_A_GROUP:\n",
        ":\n",
        "unit/sinks/table/test_message_file.py::test_row_groups_are_bounded_by_their_texts_too",
    ),
    _mutant(
        "small bodies that hold much fill memory",
        "sinks/table/body_columns.py",
        "            if count and self.size_bytes >= until:\n",
        "            if False:\n",
        "unit/sinks/table/test_body_columns.py::test_small_bodies_that_hold_much",
    ),
    _mutant(
        "a body that was stored as it is has no limit",
        "sinks/table/body_columns.py",
        "        if plain is not None and len(plain) <= self._bytes_max:\n",
        "        if plain is not None:\n",
        "unit/sinks/table/test_body_columns.py::test_a_body",
    ),
    _mutant(
        "a message that waits has its own topic's group",
        "source/rows/origin_columns.py",
        "            meant = np.where(waits, self._numbered(real_topic), meant)\n",
        "            self._numbered(real_topic)\n",
        f"{COLUMNS}::test_rows_of_brokers_own_topics",
    ),
    _mutant(
        "a property stands in the row behind its own",
        "source/rows/origin_columns.py",
        '        rows = np.searchsorted(row_ends, items, "right") - 1\n',
        '        rows = np.searchsorted(row_ends, items, "left") - 1\n',
        f"{COLUMNS}::test_rows_of_brokers_own_topics",
    ),
    _mutant(
        "a pop retry topic is no topic of a group",
        "source/record/message_origin.py",
        "    return (parts[0], parts[1]) if len(parts) == 2 else None\n",
        "    return None\n",
        "unit/source/record/test_message_origin.py::test_groups_and_topics_of_retry_topics",
    ),
    _mutant(
        "verify wants columns that came later",
        "sinks/table/refusal.py",
        "if field.name not in later and column(field) not in columns]\n",
        "if column(field) not in columns]\n",
        "spark/test_new_columns.py::test_readers_add_nothing",
    ),
    _mutant(
        "columns are added twice",
        "sinks/table/new_columns.py",
        "        lacking = new_columns(wanted, schema_of(snapshot), later)\n",
        "        lacking = [field for field in wanted if field.name in later]\n",
        "spark/test_new_columns.py::test_a_second_start_adds_nothing",
    ),
    # --- look-ups in the table
    _mutant(
        "a filter knows the unique keys only",
        "sinks/table/key_filter.py",
        "        chunks += pc.list_flatten(",
        "        pc.list_flatten(",
        "unit/sinks/table/test_key_filter.py::test_every_key_is_found",
    ),
    _mutant(
        "a filter that is cut short is believed",
        "sinks/table/key_filter.py",
        "or start + bitset_bytes != file.size():",
        "or start + bitset_bytes < 0:",
        "unit/sinks/table/test_key_filter.py::test_damage_is_no_answer",
    ),
    _mutant(
        "a look-up ends at the first file that fills the answer",
        "sinks/table/lookup.py",
        "if len(answer.rows) == max_num and rank(answer.rows[-1])[0] < file.first_rank(order):",
        "if len(answer.rows) == max_num:",
        "unit/sinks/table/test_table_lookup.py::test_like_a_walk_over_all_rows",
    ),
    _mutant(
        "a look-up finds what a deletion vector took away",
        "sinks/table/lookup.py",
        "    if kept is not None:\n",
        "    if False:\n",
        "spark/test_table_upkeep.py::test_deleted_rows_are_not_found",
    ),
    _mutant(
        "files that others merged get no key filter",
        "sinks/table/upkeep.py",
        "            if least == self._broker:  # of a file",
        "            if False:  # of a file",
        "spark/test_table_upkeep.py::test_each_file_gets_its_key_filter",
    ),
    # --- writers beside each other, one query for both, what is known of the next batch
    _mutant(
        "a writer's error does not wait for the others",
        "streaming/effects/writers.py",
        '    with ThreadPoolExecutor(max(1, len(others)), "reput-writer") as pool:\n',
        '    pool = ThreadPoolExecutor(max(1, len(others)), "reput-writer")\n    if True:\n',
        "unit/streaming/effects/test_writers.py::test_an_error_is_raised_when_all_have_ended",
    ),
    _mutant(
        "records that were followed ahead are followed again",
        "source/log/last_record.py",
        "            known.note(window.end)\n",
        "",
        "unit/source/test_data_source.py::test_the_next_batch_is_followed_while_one_is_read",
    ),
    _mutant(
        "a record that another process has read is not followed",
        "source/log/last_record.py",
        "watched is None and known != self._found:",
        "watched is None and self._found is None:",
        "unit/source/log/test_last_record.py::test_only_the_record_that_was_found_is_trusted_unfollowed",
    ),
    _mutant(
        "Spark's checkpoint of a table stays where one query kept both",
        "streaming/tail/opening.py",
        "            forget(self._paths.checkpoint_of(TABLE))",
        "            pass",
        "spark/test_tail.py::test_one_query_for_both_where_they_stand_at_the_same_offset",
    ),
    # --- what passes is waited for, and nothing else (G7, G15)
    _mutant(
        "a query is opened again for ever",
        "streaming/tail/retry.py",
        "        if left <= 0:\n",
        "        if self._retry_for_s <= 0:\n",
        "unit/streaming/tail/test_retry.py::test_no_time_means_no_attempt",
        "unit/streaming/tail/test_supervisor.py::test_giving_up",
    ),
    _mutant(
        "progress between two failures is forgotten",
        "streaming/tail/supervisor.py",
        "        if self._retry.is_in_row and query.has_advanced:\n",
        "        if False:\n",
        "unit/streaming/tail/test_supervisor.py::test_progress_between_two_failures_gives_all_the_time_again",
    ),
    _mutant(
        "a query is opened beside the one that failed",
        "streaming/tail/supervisor.py",
        "            query.close()\n        except",
        "            pass\n        except",
        "unit/streaming/tail/test_supervisor.py::test_it_waits_is_opened_again_and_goes_on",
    ),
    _mutant(
        "a lost row is waited for",
        "streaming/process/failures.py",
        "        return isinstance(error, MayPassError) or type(error) is StoreError\n",
        "        return isinstance(error, OutputError | StoreError)\n",
        "unit/streaming/process/test_failures.py::test_what_a_run_waits_for",
    ),
    _mutant(
        "an output that was removed is waited for",
        "sinks/files/store_lock.py",
        "if ours.st_nlink else",
        "if True else",
        "unit/sinks/files/test_store_lock.py::test_an_output_that_is_away_may_come_back",
    ),
    _mutant(
        "an empty mount point is written to",
        "sinks/files/durable_file.py",
        "        if self._identity not in (None, identity):\n",
        "        if False:\n",
        "unit/sinks/files/test_durable_file.py::test_nothing_is_made_in_a_mount_point_whose_disk_has_gone",
    ),
    _mutant(
        "a table is made where one was",
        "sinks/table/delta_table.py",
        "            if must_exist:\n",
        "            if False:\n",
        "spark/test_delta_table.py::test_a_table_that_is_away_is_not_made_anew",
    ),
    # --- formats of later releases
    _mutant(
        "a file of a later release is read as one of this release",
        "source/format_version.py",
        "    if found > known:\n",
        "    if False:\n",
        "unit/streaming/output/test_format_versions.py",
    ),
    # --- waves of a micro-batch
    _mutant(
        "a wave is written past a gap",
        "streaming/tail/waves.py",
        "    while (each := waiting.get(start)) is not None and each.end > start:\n",
        "    for start, each in sorted(waiting.items()):\n",
        "unit/streaming/tail/test_waves.py::test_written_while_others_read",
    ),
    _mutant(
        "what a wave has written is written again",
        "streaming/tail/waves.py",
        "        return [each for each in results if each.end > end]\n",
        "        return results\n",
        "unit/streaming/tail/test_waves.py::test_in_log_order_and_once",
    ),
    _mutant(
        "a wave is written beside the last one of the micro-batch before",
        "streaming/tail/waves.py",
        "            behind.result()\n        waiting",
        "            pass\n        waiting",
        "unit/streaming/tail/test_waves.py::test_what_is_left_behind_is_written_before_the_next_waves",
    ),
    _mutant(
        "nobody hears of a last wave that cannot be written",
        "streaming/tail/supervisor.py",
        "                self._query.gate.settle()\n",
        "                pass\n",
        "unit/streaming/tail/test_supervisor.py::test_a_last_wave_that_cannot_be_written_when_spark_has_ended",
    ),
    _mutant(
        "a wave of a log that was cut is written",
        "streaming/tail/micro_batch.py",
        "        self._continuity.check(self._records())\n        self._write(read)\n",
        "        self._write(read)\n",
        "spark/test_waves_of_a_batch.py::test_written_while_the_job_runs",
    ),
    _mutant(
        "a small micro-batch begins where the one before began",
        "streaming/tail/small_batch.py",
        "        if self._last is None or self._last[0] != batch_id:\n",
        "        if self._last is None:\n",
        "unit/streaming/tail/test_small_batch.py::test_ranges_are_those_of_the_batch",
    ),
    _mutant(
        "the driver reads a large micro-batch",
        "streaming/tail/small_batch.py",
        "if 0 < end - start <= SMALL_BYTES else None",
        "if 0 < end - start else None",
        "spark/test_small_batches.py::test_files_and_rows[False]",
    ),
    # --- the table's files
    _mutant(
        "a text that no row has is a bound",
        "sinks/parquet/values.py",
        "        used[self._codes] = True\n",
        "        used[:] = True\n",
        "unit/sinks/parquet/test_parquet_file.py::test_dictionaries_of_any_size",
    ),
    _mutant(
        "differences of 32 bits do not wrap around",
        "sinks/parquet/page_kernels.py",
        "    return np.int64(np.int32(delta)) if values.itemsize == 4 else delta\n",
        "    return delta\n",
        "unit/sinks/parquet/test_parquet_file.py::test_differences_of_any_width",
    ),
    _mutant(
        "nulls of an earlier page are counted as values",
        "sinks/parquet/parquet_file.py",
        "            first_value += page.values\n",
        "            first_value += page.count\n",
        "unit/sinks/parquet/test_parquet_file.py::test_a_column_may_have_many_pages",
    ),
    # --- whatever the clock says (G14)
    _mutant(
        "an index file's name is the clock's alone",
        "sinks/index/index_sink.py",
        "    if last is not None:\n        try:\n",
        "    if False:\n        try:\n",
        "unit/sinks/index/test_index_names.py::test_names_rise_and_contents_know_no_clock",
    ),
)
