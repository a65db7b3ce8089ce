"""`reput doctor`: predicts for each release, and says what to do; nothing is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from reput.sinks.files.store_path import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, INDEX
from reput.source.segments.commit_log_path import no_commit_log
from reput.streaming.config.broker import Version
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.config.topics import read_topics
from reput.streaming.doctor.advice import Advice, advise
from reput.streaming.doctor.predict import predict
from reput.streaming.doctor.prediction import Prediction, Recovery
from reput.streaming.doctor.start_settings import V5, start_settings

_OF_A_STORE = (CONSUME_QUEUE, BATCH_CONSUME_QUEUE, INDEX)


@dataclass(frozen=True)
class Diagnosis:
    """What a release would do, and what to do about it."""

    prediction: Prediction
    advice: tuple[Advice, ...]


def examine(config: PipelineConfig, broker_conf: Path | None, versions: Sequence[Version]) -> list[Diagnosis]:
    """Look at the store of `config` as brokers of these `RELEASES` would at their start.

    Raises
    ------
    ReputError
        A file cannot be read, there is nothing of a store, or the broker would start in a way that is not known.
    """
    # A store that has lost its log is one; a directory without anything of one was not meant.
    if not any(path.is_dir() for path in (*config.commit_log, *(config.store / name for name in _OF_A_STORE))):
        raise no_commit_log(config.store)
    found = []
    for version in _that_know_the_queues(config, versions):
        settings = start_settings(config, broker_conf, version)
        prediction, trusting = predict(config.store, config.commit_log, settings), None
        if prediction.recovery is Recovery.ABNORMAL and prediction.starts and not prediction.is_harmless:
            trusting = predict(config.store, config.commit_log, settings, is_abnormal=False)
        found.append(Diagnosis(prediction, advise(prediction, config.store, broker_conf, trusting)))
    return found


def _that_know_the_queues(config: PipelineConfig, versions: Sequence[Version]) -> Sequence[Version]:
    """The `versions` without 4.9.3 if a topic has a BatchConsumeQueue, unless only 4.9.3 is asked about."""
    if V5 not in versions or not read_topics(config, config.store).batch:
        return versions
    return [version for version in versions if version >= V5]
