"""Questions to a broker about a store, and whether its answers are those that the log demands."""

from __future__ import annotations

import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from broker.log_contents import ROLLBACK_TYPE, SCHEDULE_TOPIC, LogContents, QueueKey, Record

# Behind a key with more messages than the broker returns, those found are only checked for being right.
ANSWER_MAX = 32
SAMPLE_SEED = 1
GROUP = "reput-boot"
# No consumer is let near it; the broker's own reading of its entries is checked.
INTERNAL_TOPICS = {"RMQ_SYS_TRANS_OP_HALF_TOPIC"}
# Nearly every message has these; a filter by another one leaves something out.
COMMON = {"WAIT", "CLUSTER", "UNIQ_KEY"}

Answer = Mapping[str, Any]
Judge = Callable[[Answer], str | None]


@dataclass
class Tally:
    """Answers of one kind: how many were asked for and how many came back right."""

    expected: int = 0
    found: int = 0

    def count(self, expected: Sequence[object], found: Sequence[object]) -> str | None:
        """Add one answer; a sentence when it is not what was expected, in any order and each once."""
        wanted, got = Counter(expected), Counter(found)
        self.expected += len(expected)
        self.found += (wanted & got).total()
        if wanted == got:
            return None
        missing, extra = sorted((wanted - got).elements(), key=str), sorted((got - wanted).elements(), key=str)
        return f"{len(missing)} missing {missing[:3]}, {len(extra)} too many {extra[:3]}"


@dataclass
class Question:
    """One line of the audit's plan and the judge of its answer."""

    words: tuple[str, ...]
    judge: Judge

    def complaint(self, answer: Answer) -> str | None:
        """The mistake in the answer, None if there is none."""
        wrong = str(answer["error"]) if "error" in answer else self.judge(answer)
        return None if wrong is None else f"{' '.join(map(repr, self.words))}: {wrong}"


@dataclass
class Audit:
    """Questions about everything in a log; after :meth:`run`, what the answers were worth."""

    contents: LogContents
    #: Keys and unique keys asked for, at most, each; None asks for all.
    queries_max: int | None = None
    #: Of several messages with one unique key, 4.x's client gives the one that was stored first, 5.x's gives all.
    first_of_uniq_key: bool = True
    consumed: Tally = field(default_factory=Tally)
    filtered: Tally = field(default_factory=Tally)
    keys: Tally = field(default_factory=Tally)

    def run(
        self, ask: Callable[[Path, Path], object], directory: Path, sql: Mapping[str, Mapping[str, str]]
    ) -> list[str]:
        """Ask everything by `ask(plan file, answers file)`; return the complaints.

        `sql` holds SQL92 expressions by topic by consumer group; empty: one is made up.
        """
        questions = [*self.queues(), *self.tags(), *self.subscriptions(sql or self._made_up_sql())]
        questions += [*self.queries(), self.status()]
        plan, answers = directory / "plan", directory / "answers"
        lines = ["\t".join(quote(word, safe="") for word in question.words) for question in questions]
        plan.write_text("\n".join(lines) + "\n", encoding="ascii")
        ask(plan, answers)
        given = [json.loads(line) for line in answers.read_text(encoding="ascii").splitlines()]
        assert len(given) == len(questions)
        complaints = (question.complaint(answer) for question, answer in zip(questions, given, strict=True))
        return [complaint for complaint in complaints if complaint]

    def status(self) -> Question:
        """The broker's own figures: nothing was put, nothing waits for dispatch, the log is the whole log."""
        expected = {
            "putMessageSizeTotal": "0",
            "dispatchBehindBytes": "0",
            "commitLogMinOffset": str(self.contents.min_offset),
            "commitLogMaxOffset": str(self.contents.end),
        }
        return Question(("status",), lambda answer: differ(expected, {name: answer.get(name) for name in expected}))

    def queues(self) -> Iterator[Question]:
        """Bounds and entries of every queue as the broker reads them, and every message as a consumer gets it."""
        for (topic, queue_id), units in self.contents.units.items():
            offsets = sorted(units)
            assert offsets == list(range(offsets[0], offsets[-1] + 1)), f"{topic} {queue_id} has gaps in the log"
            queue = topic, str(queue_id)
            bounds = {"min": offsets[0], "max": offsets[-1] + 1}
            yield Question(("bounds", *queue), lambda answer, bounds=bounds: differ(bounds, dict(answer)))
            entries = [units[offset] for offset in offsets]
            yield Question(("units", *queue), lambda answer, entries=entries: differ_at(entries, answer["units"]))
            if topic in INTERNAL_TOPICS:
                continue
            yield self._pull((topic, queue_id), "*", [self.contents.by_offset[offset] for offset, _, _ in entries])
        for (topic, queue_id), batches in self.contents.batches.items():
            inner = [batch.inner_batch for batch in batches.values() if batch.inner_batch]
            bounds = {"min": min(base for base, _ in inner), "max": max(base + number for base, number in inner)}
            queue = topic, str(queue_id)
            yield Question(("bounds", *queue), lambda answer, bounds=bounds: differ(bounds, dict(answer)))
            places = [
                (base + i, batch.offset)
                for batch in batches.values()
                if batch.inner_batch
                for base, number in [batch.inner_batch]
                for i in range(number)
            ]
            yield Question(
                ("pull", *queue, "TAG", "*"),
                lambda answer, places=places: self.consumed.count(places, [tuple(m[:2]) for m in answer["messages"]]),
            )

    def tags(self) -> Iterator[Question]:
        """A consumer of the most frequent, the rarest and two tags at once, for every topic."""
        by_topic: dict[str, dict[QueueKey, list[Record]]] = defaultdict(dict)
        for key, units in self.contents.units.items():
            if key[0] in {SCHEDULE_TOPIC, *INTERNAL_TOPICS}:
                # The tags codes of delayed messages are times.
                continue
            by_topic[key[0]][key] = [self.contents.by_offset[offset] for offset, _, _ in units.values()]
        for queues in by_topic.values():
            tags = Counter(record.tags for records in queues.values() for record in records if is_plain(record.tags))
            frequent = [tag for tag, _ in tags.most_common()]
            if not frequent:
                continue
            choices = [frequent[0], frequent[-1], " || ".join(frequent[:2])]
            for expression in dict.fromkeys(choices):
                wanted = set(expression.split(" || "))
                for key, records in queues.items():
                    chosen = [record for record in records if record.tags in wanted]
                    yield self._pull(key, expression, chosen, self.filtered)

    def _pull(self, key: QueueKey, tags: str, records: list[Record], tally: Tally | None = None) -> Question:
        places = [(record.offset, record.uniq_key) for record in records]
        counts = self.consumed if tally is None else tally

        def judge(answer: Answer) -> str | None:
            return counts.count(places, [(offset, uniq_key) for _, offset, uniq_key in answer["messages"]])

        return Question(("pull", key[0], str(key[1]), "TAG", tags), judge)

    def subscriptions(self, sql: Mapping[str, Mapping[str, str]]) -> Iterator[Question]:
        """A push consumer of every group; RocketMQ's own evaluator says what it has to get."""
        for group, subscriptions in sql.items():
            words = [word for subscription in subscriptions.items() for word in subscription]
            yield Question(
                ("push", group, *words), lambda answer: self.filtered.count(answer["expected"], answer["found"])
            )

    def _made_up_sql(self) -> dict[str, dict[str, str]]:
        """The most frequent property of a topic: its most frequent value, or missing."""
        records = [record for record in self.contents.records if (record.topic, record.queue_id) in self.contents.units]
        # The 4.9.3 client's push consumer dies of a message without a body.
        unfit = {record.topic for record in records if not record.has_body or is_system(record.topic)}
        topics = Counter(record.topic for record in records if record.topic not in unfit)
        if not topics:
            return {}
        topic = topics.most_common(1)[0][0]
        pairs = Counter(
            pair
            for record in records
            if record.topic == topic
            for pair in record.properties.items()
            if re.fullmatch(r"[A-Za-z_]\w*", pair[0], re.ASCII) and is_plain(pair[1]) and pair[0] not in COMMON
        )
        if not pairs:
            return {}
        name, value = pairs.most_common(1)[0][0]
        value = value.replace("'", "''")
        return {GROUP: {topic: f"{name} = '{value}'"}, f"{GROUP}-null": {topic: f"{name} IS NULL"}}

    def queries(self) -> Iterator[Question]:
        """Every key and unique key of the index, or a sample of each."""
        by_key: dict[tuple[str, str], list[Record]] = defaultdict(list)
        by_uniq_key: dict[tuple[str, str], list[Record]] = defaultdict(list)
        for record in self.contents.records:
            if record.sys_flag & 0xC == ROLLBACK_TYPE:
                continue
            for key in record.keys:
                # A key that a message has twice is twice in the index, and found twice.
                by_key[record.topic, key].append(record)
            if record.uniq_key is not None:
                by_uniq_key[record.topic, record.uniq_key].append(record)
        for key, records in self._sample(by_key):
            yield Question(("key", *key), self._key_judge([record.offset for record in records]))
        for key, records in self._sample(by_uniq_key):
            stored = sorted(records, key=lambda record: (record.store_timestamp, record.offset))
            chosen = stored[:1] if self.first_of_uniq_key else stored
            yield Question(("uniq", *key), self._key_judge([record.offset for record in chosen]))

    def _sample(self, records: Mapping[tuple[str, str], list[Record]]) -> list[tuple[tuple[str, str], list[Record]]]:
        items = list(records.items())
        if self.queries_max is None or len(items) <= self.queries_max:
            return items
        return random.Random(SAMPLE_SEED).sample(items, self.queries_max)

    def _key_judge(self, offsets: list[int]) -> Judge:
        def judge(answer: Answer) -> str | None:
            found = answer["found"]
            if len(offsets) <= ANSWER_MAX:
                wrong = Tally().count(offsets, found)
            else:
                strange = set(found) - set(offsets)
                wrong = f"strange {sorted(strange)[:3]}" if strange or not found else None
            self.keys.expected += 1
            self.keys.found += wrong is None
            return wrong

        return judge


def differ(expected: object, found: object) -> str | None:
    """A sentence when they are not equal."""
    return None if expected == found else f"expected {expected}, found {found}"


def differ_at(expected: Sequence[tuple[int, int, int]], found: Sequence[Sequence[Any]]) -> str | None:
    """A sentence on the first queue entry that is not the expected one; a ConsumeQueueExt unit has the tags code."""
    for index, (wanted, (offset, size, code, ext)) in enumerate(zip(expected, found, strict=False)):
        real_code = code if ext is None else json.loads(ext)["tagsCode"]
        if wanted != (offset, size, real_code):
            return f"entry {index}: expected {wanted}, found {(offset, size, real_code)}"
    return differ(len(expected), len(found))


def is_plain(tag: str) -> bool:
    """Whether a subscription can name this tag."""
    return bool(tag) and tag == tag.strip() and tag != "*" and "|" not in tag and tag.isprintable()


def is_system(topic: str) -> bool:
    """Whether consumers have no business with it."""
    return topic.startswith(("%", "SCHEDULE_TOPIC", "RMQ_SYS", "rmq_sys"))
