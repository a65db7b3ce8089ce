"""`reput doctor`: predicts for each release, and says what to do; nothing is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from reput.sinks.files.store_lock import lock_holder
from reput.sinks.files.store_path import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, INDEX
from reput.source.log.store_layout import no_commit_log
from reput.streaming.config.broker import QUEUES_IN_BOTH, Version, broker_version, read_topics, unseen_queues
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
from reput.streaming.doctor.advice import Advice, SettingsInDoubt, advise
from reput.streaming.doctor.kept_records import moving
from reput.streaming.doctor.predict import no_start, predict
from reput.streaming.doctor.prediction import Prediction, Recovery
from reput.streaming.doctor.start_settings import RELEASES, V5, start_settings

_OF_A_STORE = (CONSUME_QUEUE, BATCH_CONSUME_QUEUE, INDEX)


@dataclass(frozen=True)
class Diagnosis:
    """What a release would do, and what to do about it."""

    prediction: Prediction
    advice: tuple[Advice, ...]


@dataclass(frozen=True)
class Examination:
    """What is found in a store.

    Attributes
    ----------
    diagnoses
        One for each release.
    misfits
        Settings that all files of a kind contradict.
    taken
        Those of them that nobody stated: the files' sizes were taken.
    way_out
        What to do about them, in words.
    forgotten
        A ``broker.conf`` of the store that was not given, though it has other settings.
    holder
        Who runs on the store now; the predictions are for the next start. None for nobody.
    """

    diagnoses: tuple[Diagnosis, ...]
    misfits: tuple[Misfit, ...] = ()
    taken: tuple[Misfit, ...] = ()
    way_out: str = ""
    forgotten: ForgottenConf | None = None
    holder: str | None = None

    @property
    def is_harmless(self) -> bool:
        """Whether every release starts and loses nothing."""
        return all(each.prediction.is_harmless for each in self.diagnoses)


def releases_of(config: PipelineConfig) -> tuple[Version, ...]:
    """The releases that are asked about where none is named: both, or 5.5.0 alone for queues in files and in RocksDB.

    No broker before 5.4.0 keeps these.
    """
    shown = broker_version(config.broker.version, config.store)
    return (V5,) if unseen_queues(config, config.store) and shown >= QUEUES_IN_BOTH else RELEASES


def examine(config: PipelineConfig, broker_conf: Path | None, versions: Sequence[Version]) -> Examination:
    """Look at the store of `config` as brokers of these `RELEASES` would at their start.

    Raises
    ------
    ReputError
        A file cannot be read, there is nothing of a store, or the broker would start in a way that is not known.
    """
    # A store that has lost its log is one; a directory without anything of one was not meant.
    if not any(path.is_dir() for path in (*config.commit_log, *(config.store / name for name in _OF_A_STORE))):
        raise no_commit_log(config.store)
    misfits = misfits_at_start(config)
    # A broker has what was stated. If nothing was, its settings are those that made the files.
    taken = tuple(each for each in misfits if each.stated_in is None and broker_conf is None)
    wrong = [each for each in misfits if each not in taken]
    left_out, in_doubt, advice = forgotten(config), None, ""
    if misfits:
        in_doubt, advice = SettingsInDoubt(misfits, fitting_conf(config, misfits)), way_out(config, misfits)
    elif left_out is not None:
        in_doubt = SettingsInDoubt(misfits, left_out.path)
    config = going_by_files(config, misfits)
    found = []
    for version in _that_know_the_queues(config, versions):
        settings = start_settings(config, broker_conf, version)
        if any(each.kind is not Kind.INDEX for each in wrong):
            prediction = no_start(config.store, settings, "; ".join(map(str, wrong)))
        else:
            prediction = predict(config.store, config.commit_log, settings)
            prediction = replace(prediction, misread_index="; ".join(map(str, wrong)))
        trusting = None
        if prediction.recovery is Recovery.ABNORMAL and prediction.starts and not prediction.is_harmless:
            trusting = predict(config.store, config.commit_log, settings, is_abnormal=False)
        moves = partial(moving, config, settings)
        found.append(Diagnosis(prediction, advise(prediction, config, broker_conf, trusting, moves, in_doubt)))
    return Examination(tuple(found), tuple(misfits), taken, advice, left_out, lock_holder(config.store))


def _that_know_the_queues(config: PipelineConfig, versions: Sequence[Version]) -> Sequence[Version]:
    """The `versions` without 4.9.3 if a topic has a BatchConsumeQueue, unless only 4.9.3 is asked about."""
    if V5 not in versions or not read_topics(config, config.store).batch:
        return versions
    return [version for version in versions if version >= V5]
