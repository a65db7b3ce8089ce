"""What a reader of the report must know, in a sentence each, the gravest first."""

from __future__ import annotations

from dataclasses import dataclass

from reput.streaming.report.figures import Figures
from reput.streaming.report.words import count, milliseconds, name_text, number
from reput.streaming.status.batch_report import size_text
from reput.streaming.status.run_state import State

_SAID_CELLS = 400
_WELL = frozenset({State.RUNNING.value, State.STARTING.value})


@dataclass(frozen=True)
class Finding:
    """What was found, and what it means; `is_grave` if somebody should look into it."""

    is_grave: bool
    text: str
    meaning: str


def findings_of(figures: Figures) -> list[Finding]:
    """All findings."""
    found = [*_of_queues(figures), *_of_damage(figures), *_of_consumers(figures), *_of_tail(figures)]
    found += _of_times(figures)
    return sorted(found, key=lambda each: not each.is_grave)


def _of_queues(figures: Figures) -> list[Finding]:
    order, found = figures.order, []
    if order.missing:
        text = f"{count(order.missing, 'message')} missing between others of the same queue"
        meaning = (
            "A broker numbers the messages of each queue. Some numbers are not in the table: their messages were "
            "damaged in the log, were removed from the table, or were never written."
        )
        found.append(Finding(is_grave=True, text=text, meaning=meaning))
    if order.repeated:
        text = f"{count(order.repeated, 'message')} with a number that another message of the same queue has"
        meaning = "A broker numbers so when a topic was deleted and made again, or when it lost the end of its log."
        found.append(Finding(is_grave=True, text=text, meaning=meaning))
    if figures.contents.in_no_queue:
        text = f"{count(figures.contents.in_no_queue, 'message')} with a negative queue or number"
        found.append(Finding(is_grave=True, text=text, meaning="No queue can hold them: no consumer gets them."))
    return found


def _of_damage(figures: Figures) -> list[Finding]:
    ranges = sum(each.ranges for each in figures.left_out)
    if not ranges:
        return []
    size = size_text(sum(each.size_bytes for each in figures.left_out))
    text = f"{count(ranges, 'part')} of the log left out, {size} together"
    meaning = "There the log was damaged, had expired before it was read, or had a message that no queue can take."
    return [Finding(is_grave=True, text=text, meaning=meaning)]


def _of_consumers(figures: Figures) -> list[Finding]:
    detours, found = figures.detours, []
    if detours.given_up:
        text = f"{count(detours.given_up, 'message')} that consumers gave up"
        meaning = "They failed again and again and are in dead letter topics, where somebody has to decide about them."
        found.append(Finding(is_grave=True, text=text, meaning=meaning))
    if detours.discarded:
        text = f"{count(detours.discarded, 'transaction')} without an end"
        meaning = "The broker asked the producer several times whether they were to be sent, and then discarded them."
        found.append(Finding(is_grave=True, text=text, meaning=meaning))
    if figures.consumption is not None and figures.consumption.resets:
        text = f"{count(figures.consumption.resets, 'time')} that a consumer group went back in a queue"
        meaning = "An operator reset an offset, or a broker lost some: the group gets messages again."
        found.append(Finding(is_grave=False, text=text, meaning=meaning))
    if detours.retries:
        text = f"{count(detours.retries, 'delivery', 'deliveries')} sent back by consumers, to be tried again"
        found.append(
            Finding(is_grave=False, text=text, meaning="Single ones are usual; many are a consumer in trouble.")
        )
    return found


def _of_tail(figures: Figures) -> list[Finding]:
    if figures.status is None:
        return []
    found = []
    for broker in figures.status["brokers"]:
        is_over = broker["state"] == State.STOPPED.value and broker["exitCode"] == 0
        if broker["state"] not in _WELL and not is_over:
            text = f"The table is not kept as it should be: {broker['state']}"
            found.append(
                Finding(
                    is_grave=True, text=text, meaning=name_text(f"{broker['broker']}: {broker['reason']}", _SAID_CELLS)
                )
            )
    return found


def _of_times(figures: Figures) -> list[Finding]:
    found = []
    if early := figures.delays.below(0) if figures.delays.total else 0:
        text = f"{count(early, 'message')} stored before {'it was' if early == 1 else 'they were'} sent"
        worst = milliseconds(-figures.delays.quantile(0))
        meaning = f"The clocks of producers and brokers differ by at least {worst}."
        found.append(Finding(is_grave=False, text=text, meaning=meaning))
    if figures.contents.without_time:
        text = f"{count(figures.contents.without_time, 'message')} without a time that can be shown"
        found.append(Finding(is_grave=False, text=text, meaning="Their time is outside the years 1 to 9999."))
    if figures.throughput is not None and figures.throughput.outside:
        outside = figures.throughput.outside
        text = f"{count(outside, 'message')} stored far before or after all others"
        total = number(figures.contents.total.messages)
        meaning = f"The charts over time leave them out, so that the rest of the {total} can be seen."
        found.append(Finding(is_grave=False, text=text, meaning=meaning))
    return found
