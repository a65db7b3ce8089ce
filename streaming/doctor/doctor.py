"""`reput doctor`: predicts what each release does with a store, and says what to do; nothing is written.

The output has a verdict for each release, the facts, and what to do.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from enum import Enum
from functools import partial
from pathlib import Path

from reput.sinks.files.store_lock import lock_holder
from reput.sinks.files.store_path import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, INDEX
from reput.source import releases
from reput.source.errors import OptionError
from reput.source.log.store_layout import has_queue_files, no_commit_log
from reput.source.options import shown
from reput.source.printable import counted, printable, printable_json
from reput.source.releases import V5, Version, version_text
from reput.streaming.config.broker import broker_version, read_topics, unseen_queues
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.config.stored_sizes import (
    ForgottenConf,
    Kind,
    Misfit,
    fitting_conf,
    forgotten,
    going_by_files,
    misfits_at_start,
    way_out,
)
from reput.streaming.doctor.advice import Advice, SettingsInDoubt, advise, move_queues
from reput.streaming.doctor.kept_records import moving
from reput.streaming.doctor.predict import no_start, predict
from reput.streaming.doctor.prediction import LogCut, Prediction, Recovery
from reput.streaming.doctor.start_settings import KNOWN_CHANGES, RELEASES, start_settings

_OF_A_STORE = (CONSUME_QUEUE, BATCH_CONSUME_QUEUE, INDEX)


@dataclass(frozen=True)
class Diagnosis:
    """The prediction for a release, and the advice about it."""

    prediction: Prediction
    advice: tuple[Advice, ...]


@dataclass(frozen=True)
class Examination:
    """The findings about a store.

    Attributes
    ----------
    diagnoses
        One for each release.
    misfits
        Settings that all files of a kind contradict.
    taken
        The misfits whose settings are not stated; the files' sizes were taken instead.
    way_out
        What to do about them, in words.
    forgotten
        A ``broker.conf`` of the store that was not given, though it has other settings.
    unknown
        Releases that were left out, because reput does not know how they start with the store.
    is_tried
        Whether settings are tried that the broker does not have now.
    holder
        The process that runs on the store now; the predictions are for the next start. None if nothing runs.
    """

    diagnoses: tuple[Diagnosis, ...]
    misfits: tuple[Misfit, ...] = ()
    taken: tuple[Misfit, ...] = ()
    way_out: str = ""
    forgotten: ForgottenConf | None = None
    holder: str | None = None
    is_tried: bool = False
    unknown: tuple[str, ...] = ()

    @property
    def is_harmless(self) -> bool:
        """Whether every release starts and loses nothing."""
        return all(each.prediction.is_harmless for each in self.diagnoses)


def releases_of(config: PipelineConfig) -> tuple[Version, ...]:
    """Return the releases to ask about if none is named: both, or only 5.5.0 for queues in files and in RocksDB.

    Brokers before 5.4.0 do not keep queues in both.
    """
    shown = broker_version(config.broker.version, config.store)
    return (V5,) if unseen_queues(config, config.store) and releases.KEEPS_QUEUES_IN_BOTH.holds(shown) else RELEASES


def changes_of(texts: Sequence[str]) -> dict[str, str]:
    """Return the settings to try, from ``name=value`` texts.

    Raises
    ------
    OptionError
        A text has another form, or names a setting whose effect on a start is not known.
    """
    changes = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator:
            raise OptionError(f"--set {shown(text)}: name=value wanted")
        if name not in KNOWN_CHANGES:
            raise OptionError(
                f"--set {shown(text)}: reput doctor does not know what this setting changes at a start",
                advice=f"it knows {', '.join(KNOWN_CHANGES)}",
            )
        changes[name] = value
    return changes


def examine(
    config: PipelineConfig, broker_conf: Path | None, versions: Sequence[Version], *, passes_over: bool = False
) -> Examination:
    """Look at the store of `config` as brokers of these `RELEASES` would at their start.

    With `passes_over`, releases whose start is not known are left out, except for the last one.

    Raises
    ------
    ReputError
        A file cannot be read, the directory is not a store, or reput does not know how the broker would start.
    """
    # A store that has lost its log is still a store; a directory without any part of a store was given by mistake.
    if not any(path.is_dir() for path in (*config.commit_log, *(config.store / name for name in _OF_A_STORE))):
        raise no_commit_log(config.store)
    misfits = misfits_at_start(config)
    # The broker has the stated settings. Without any, assume the settings that made the files.
    taken = tuple(each for each in misfits if each.stated_in is None and broker_conf is None)
    wrong = [each for each in misfits if each not in taken and not _has_more_room(each)]
    left_out, in_doubt, advice = forgotten(config), None, ""
    if misfits:
        in_doubt, advice = SettingsInDoubt(misfits, fitting_conf(config, misfits)), way_out(config, misfits)
    elif left_out is not None:
        in_doubt = SettingsInDoubt(misfits, left_out.path)
    config = going_by_files(config, misfits)
    found: list[Diagnosis] = []
    unknown: list[str] = []
    for version in _that_know_the_queues(config, versions):
        try:
            settings = start_settings(config, broker_conf, version)
        except OptionError:
            if not passes_over or version == versions[-1]:
                raise
            unknown.append(version_text(version))
            continue
        if any(each.kind is not Kind.INDEX for each in wrong):
            prediction = no_start(config.store, settings, "; ".join(map(str, wrong)))
        else:
            prediction = predict(config.store, config.commit_log, settings)
            prediction = replace(prediction, misread_index="; ".join(map(str, wrong)))
        if config.changes:
            # A change that is only tried needs no advice.
            found.append(Diagnosis(prediction, ()))
            continue
        if settings.in_rocksdb and settings.database is None and has_queue_files(config.store):
            found.append(Diagnosis(prediction, () if prediction.is_harmless else move_queues(config, broker_conf)))
            continue
        trusting = None
        if prediction.recovery is Recovery.ABNORMAL and prediction.starts and not prediction.is_harmless:
            # Report this start even if the other one is not known.
            with suppress(OptionError):
                trusting = predict(config.store, config.commit_log, settings, is_abnormal=False)
        moves = partial(moving, config, settings)
        found.append(Diagnosis(prediction, advise(prediction, config, broker_conf, trusting, moves, in_doubt)))
    holder, is_tried = lock_holder(config.store), bool(config.changes)
    return Examination(tuple(found), tuple(misfits), taken, advice, left_out, holder, is_tried, tuple(unknown))


def _has_more_room(found: Misfit) -> bool:
    """Whether index files only have room for fewer keys than is set: a broker finds all (``IndexFile#<init>``)."""
    fits = found.fits
    return (
        found.kind is Kind.INDEX
        and fits is not None
        and fits["maxHashSlotNum"] == found.set_to["maxHashSlotNum"]
        and fits["maxIndexNum"] < found.set_to["maxIndexNum"]
    )


def _that_know_the_queues(config: PipelineConfig, versions: Sequence[Version]) -> Sequence[Version]:
    """Return the `versions`, without 4.9.3 if a topic has a BatchConsumeQueue and no release was named."""
    if tuple(versions) != RELEASES or not read_topics(config, config.store).batch:
        return versions
    return [version for version in versions if version >= V5]


_SHOWN = 5
_WAY_BACK = (
    "  way back  no file of log, queues and index is cut or deleted: as long as no message comes, a start with the "
    "settings of before takes it as it is now"
)
_COLUMNS = ("release", "starts", "lost", "no entry", "no key", "deleted", "dispatched", "way back", "recovery reads")


def as_table(examined: Examination) -> str:
    """Return a line for each release: what it would lose, delete, dispatch and read."""
    rows: list[tuple[str, ...]] = [_COLUMNS]
    for each in examined.diagnoses:
        found = each.prediction
        if found.starts:
            no_entry = sum(queue.missing for queue in found.short_queues) + found.missing_entries
            no_key = "misread" if found.misread_index else str(found.index_missing)
            numbers = found.lost.count, no_entry, no_key, len(found.removed), found.dispatched
            way_back = "yes" if found.leaves_a_way_back else "-"
            rows.append((found.release, "yes", *map(str, numbers), way_back, _recovery_reads(found)))
        else:
            rows.append((found.release, "no", *["-"] * (len(_COLUMNS) - 2)))
    widths = [max(len(row[number]) for row in rows) for number in range(len(_COLUMNS))]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    stops = [each.prediction for each in examined.diagnoses if each.prediction.obstacle is not None]
    if examined.unknown:
        lines.append(f"not known with these settings and queues: {', '.join(examined.unknown)}")
    return "\n".join(map(printable, [*lines, *map(verdict, stops)]))


def as_json(store: Path, examined: Examination) -> str:
    """Return all fields of all predictions as one JSON object."""
    found = examined.diagnoses
    settings = [{"cause": str(each), **asdict(each)} for each in examined.misfits]
    forgotten = None if examined.forgotten is None else asdict(examined.forgotten)
    by_release = {
        each.prediction.release: {
            "verdict": verdict(each.prediction),
            "harmless": each.prediction.is_harmless,
            "starts": each.prediction.starts,
            **asdict(each.prediction),
            "advice": [asdict(step) for step in each.advice],
        }
        for each in found
    }
    document = {
        "store": str(store),
        "running": examined.holder,
        "settings": settings,
        "forgotten": forgotten,
        "releases": by_release,
    }
    return printable_json(document, default=_value)


def as_text(store: Path, examined: Examination) -> str:
    """Return the report for people, with paths relative to the store."""
    lines = []
    if examined.holder is not None:
        lines.append(
            f"running   {examined.holder} runs on this store now: what follows is for the next start, if it were "
            "killed at this moment"
        )
    lines += [
        f"settings  {misfit}; the files are taken at the size they have; {examined.way_out}"
        for misfit in examined.taken
    ]
    if examined.forgotten is not None and not examined.misfits:
        lines.append(f"settings  {examined.forgotten}; give --broker-conf {shlex.quote(str(examined.forgotten.path))}")
    for each in examined.diagnoses:
        facts = [line.replace(f"{store}/", "") for line in _fact_lines(each.prediction)]
        lines += [*facts, *_advice_lines(each)]
        if examined.is_tried and each.prediction.leaves_a_way_back:
            lines.append(_WAY_BACK)
    return "\n".join(map(printable, lines))


def verdict(found: Prediction) -> str:
    """Say in one line what the release does with the store."""
    if found.obstacle is not None:
        return f"{found.release} does not start: {found.obstacle.why}"
    losses = []
    if found.lost.count and found.cut is not None:
        losses.append(
            f"loses {counted(found.lost.count, 'good message')} after damage at offset {found.cut.offset} of "
            f"{found.cut.file} ({found.cut.why or 'the log ends there'})"
        )
    if found.missing_entries:
        losses.append(
            f"serves no message of the segments that are missing ({counted(found.missing_entries, 'queue entry')})"
        )
    if found.short_queues:
        missing = sum(queue.missing for queue in found.short_queues)
        losses.append(f"leaves {counted(missing, 'message')} out of {counted(len(found.short_queues), 'queue')}")
    if found.beyond_end:
        losses.append(f"keeps {counted(found.beyond_end, 'queue entry', 'queue entries')} of messages that it cuts off")
    if found.renumbered:
        topics = counted(len(found.renumbered), "topic")
        losses.append(f"gives the messages of {topics} other queue offsets (it does not know a BatchConsumeQueue)")
    if found.index_missing:
        losses.append(f"leaves {counted(found.index_missing, 'message')} out of the index")
    if found.misread_index:
        losses.append(f"misreads the index: {found.misread_index}")
    if found.index_is_ahead:
        losses.append(f"puts no key of a new message before offset {found.index_end}")
    if found.timers is not None and found.timers.lost:
        losses.append(f"never sends {counted(found.timers.lost, 'timer message')} that waited")
    nothing = "nothing more is lost" if found.unserved else "nothing is lost"
    return f"{found.release} starts, and {', '.join(losses) or nothing}"


def _recovery_reads(found: Prediction) -> str:
    """Return the bytes that recovery reads, and about how long it takes, in words."""
    seconds = found.recovery_seconds
    return f"{found.recovered_bytes} bytes, {'under 1 s' if seconds < 1 else f'about {seconds:.0f} s'}"


def _value(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    assert isinstance(value, Enum)
    return value.value


def _fact_lines(prediction: Prediction) -> Iterator[str]:
    yield verdict(prediction)
    why = "there is an abort file" if prediction.recovery is Recovery.ABNORMAL else "there is no abort file"
    begins = f", from {prediction.recovers_from}" if prediction.recovers_from else ""
    yield f"  recovery  {prediction.recovery.value} ({why}){begins}"
    if prediction.recovered_bytes:
        yield f"  recovery  reads {_recovery_reads(prediction)} (an estimate)"
    for start, end in prediction.holes:
        yield f"  log       no segment holds offsets {start} to {end}, excluded"
    if prediction.last_is_missing:
        yield "  log       queues or index have records after the last segment: segments at the end are missing"
    if prediction.missing_entries:
        lead = counted(prediction.missing_entries, "entry leads", "entries lead")
        yield f"  queues    {lead} to records of segments that are missing"
    if prediction.cut is not None:
        yield from _cut_lines(prediction.cut)
    yield from _files("log", prediction.removed_segments, " without a message")
    if prediction.damaged_ranges:
        ranges = counted(prediction.damaged_ranges, "damaged range")
        yield f"  log       {ranges} before its end: the broker does not look there, or passes over it"
    if prediction.unserved:
        lead = counted(prediction.unserved, "entry leads", "entries lead")
        yield f"  queues    {lead} there: these messages are served only once their segments are restored"
    if prediction.starts:
        yield f"  dispatch  {_dispatch(prediction)}"
    yield from _files("queues", prediction.removed_queue_files)
    for queue in prediction.short_queues[:_SHOWN]:
        yield (
            f"  queue     {queue.topic}-{queue.queue_id}: {queue.missing} of {queue.records} messages have no entry, "
            f"the next queue offset is {queue.max_offset}"
        )
    if (more := len(prediction.short_queues) - _SHOWN) > 0:
        yield f"  queue     and {more} more (--json tells all)"
    if prediction.beyond_end:
        lead = counted(prediction.beyond_end, "entry leads", "entries lead")
        yield f"  queues    {lead} behind the log's end and stay: new messages get queue offsets after them"
    if prediction.not_seen:
        yield f"  queues    {prediction.not_seen}"
    yield from _files("index", prediction.removed_index_files)
    if prediction.index_missing:
        stay = counted(prediction.index_missing, "message with keys stays", "messages with keys stay")
        yield f"  index     {stay} out of it"
    yield from _waiting_lines(prediction)
    if prediction.index_is_ahead:
        yield f"  index     ends at offset {prediction.index_end}, behind the log: new messages before have no keys"


def _waiting_lines(prediction: Prediction) -> Iterator[str]:
    timers, transactions = prediction.timers, prediction.transactions
    if timers is not None and not timers.are_sent and timers.waiting:
        yield f"  timers    {counted(timers.waiting, 'message waits', 'messages wait')}, and none is sent"
    elif timers is not None and (timers.waiting or timers.due):
        lost = f", {timers.lost} of them for ever: they are in no slot that is read, nor read again" * bool(timers.lost)
        yield f"  timers    {counted(timers.waiting, 'message waits', 'messages wait')}{lost}"
        if timers.due:
            again = f", {timers.sent_again} of them again: they were delivered or recalled" * bool(timers.sent_again)
            yield f"  timers    {counted(timers.due, 'message is', 'messages are')} sent at once{again}"
    if transactions is not None and (transactions.open or transactions.checked_again):
        unchecked = f", {transactions.unchecked} of them not checked: the broker keeps none in RocksDB"
        yield (
            f"  halves    {counted(transactions.open, 'transaction is', 'transactions are')} open"
            f"{unchecked * bool(transactions.unchecked)}"
        )
        if transactions.checked_again:
            checked = counted(
                transactions.checked_again, "transaction that has ended is", "transactions that have ended are"
            )
            yield f"  halves    {checked} checked again: the release does not read what ended them"


def _advice_lines(found: Diagnosis) -> Iterator[str]:
    if found.advice:
        yield "  what to do"
    for number, step in enumerate(found.advice, 1):
        yield f"    {number}. {step.why}{':' if step.command else ''}"
        if step.command:
            yield f"       {step.command}"


def _cut_lines(cut: LogCut) -> Iterator[str]:
    yield f"  log       ends at offset {cut.offset}, byte {cut.position} of {cut.file}" + (
        f": {cut.why}" if cut.why else ""
    )
    lost = cut.lost
    if lost.count:
        messages = counted(lost.count, "good message")
        yield f"  lost      {messages}, {lost.bytes} bytes, offsets {lost.first} to {lost.last}"
        for topic, count in list(lost.topics.items())[:_SHOWN]:
            yield f"  lost      {count} of {topic}"
        if (more := len(lost.topics) - _SHOWN) > 0:
            yield f"  lost      and those of {more} more topics (--json tells all)"
    yield from _files("log", cut.removed, "" if lost.count else " without a message")


def _dispatch(found: Prediction) -> str:
    if not found.dispatched:
        return f"nothing; it continues at offset {found.log_end}"
    return f"{counted(found.dispatched, 'message')}, from offset {found.dispatches_from} on"


def _files(part: str, paths: Sequence[str], what: str = "") -> Iterator[str]:
    if paths:
        files = "1 file is" if len(paths) == 1 else f"{len(paths)} files are"
        more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
        yield f"  {part:9} {files} deleted{what}: {', '.join(paths[:_SHOWN])}{more}"
