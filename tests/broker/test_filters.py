"""SQL92 expressions and bloom positions: equal to RocketMQ's own classes for random questions, none left out."""

# ruff: noqa: SIM905 (as lists these tables would be one word a line)
from __future__ import annotations

import os
import random
import subprocess
from base64 import b64encode
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from broker.artifacts import missing_tools
from broker.release import SHORT_LIVED, Release
from reput.sinks.filter.consumer_filter import BloomFilter, bits
from reput.sinks.filter.sql92 import ExpressionEvaluationError, ExpressionSyntaxError, compile_expression

pytestmark = pytest.mark.broker

EXPRESSIONS = 12_000
PROPERTY_SETS = 6
TIMEOUT_S = 300

NAMES = ["a", "b", "c", "A", "$x", "contains", "中"]
LITERALS = [
    *"0|1|5|05|0L|7l|2147483647|2147483648|9223372036854775807|9223372036854775808|9007199254740993".split("|"),
    *"1.5|5.|.5|5E2|5.5e-3|0.0|1e400|1e-400|4.9E-324|1.7976931348623157E308|9007199254740992.0".split("|"),
    *"'x'|'5'|'it''s'|''|'true'|'中'|'a b'|'\U0001f600'|TRUE|false|NULL".split("|"),
]
VALUES = [
    *"0|-0|1|5|+5| 5|5 |5\t|05|5L|5d|5.0|5.0f|1.5|-1.5|1e3|0x10|0x1p4|0x.8p1D|00000000000000000000005".split("|"),
    *"2147483647|2147483648|-2147483648|-2147483649|9223372036854775807|9223372036854775808".split("|"),
    *"-9223372036854775808|-9223372036854775809|\uff19|\u0663|\U0001d7d7|5\u0663|1_0|--5|+|-|".split("|"),
    *"NaN|-NaN|nan|Infinity|-Infinity|inf|1e400|1e-400|-0.0|0.0|.5|5.|.|1e|1e+5|1e5e|9007199254740993".split("|"),
    *"true|TRUE|True|false|x|axb|it's|中|\u00a05|\u30005|5\u0000|\x1f5\x01|\U0001f600|\u017f|a b".split("|"),
    *"0x1p99999999999|-0x1.8p-99999999999|0x1.p1|0xp1|0x1|1e99999999999|0.1e-99999999999".split("|"),
]
TOKENS = [
    *"NOT|and|OR|BETWEEN|in|is|NULL|=|<>|>|>=|<|<=|(|)|,|+|-|CONTAINS|startswith|EndsWith".split("|"),
    *"&|!|\"|%|.|/|--|-- c\n|/* c */|/***/|/*|'|;|#|1.2.3".split("|"),
]
BLANKS = ["", " ", " ", " ", "\t", "\n", "\r\n", "\f", "/* 'x */", "--\n", "\u00a0"]


class Maker:
    """Makes expressions: most follow the grammar, many are then damaged, some are tokens in a row."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def expression(self) -> str:
        kind = self.random.random()
        if kind < 0.1:
            tokens = self.random.choices([*TOKENS, *LITERALS, *NAMES], k=self.random.randint(0, 8))
        else:
            tokens = list(self.either(self.random.randint(0, 3)))
        if 0.1 < kind < 0.45 and tokens:
            self.damage(tokens)
        blank = self.random.choice([" ", " ", " ", "mixed"])
        return "".join(token + (self.random.choice(BLANKS) if blank == "mixed" else blank) for token in tokens)

    def damage(self, tokens: list[str]) -> None:
        for _ in range(self.random.randint(1, 2)):
            at = self.random.randrange(len(tokens) + 1)
            other = self.random.choice([*TOKENS, *LITERALS, *NAMES])
            tokens[at : at + self.random.choice([0, 1, 1])] = self.random.choice([[], [other]])

    def either(self, depth: int) -> Iterator[str]:
        for number in range(self.random.choice([1, 1, 2, 3])):
            if number:
                yield self.random.choice(["OR", "and", "AND"])
            yield from self.comparison(depth)

    def comparison(self, depth: int) -> Iterator[str]:
        yield from self.operand(depth)
        for _ in range(self.random.choice([0, 1, 1, 1, 1, 2])):
            yield from self.comparator(depth)

    def comparator(self, depth: int) -> Iterator[str]:
        kind = self.random.choice(["=", "<>", ">", ">=", "<", "<=", "IS", "BETWEEN", "IN", "IN", "SEARCH"])
        inverted = ["NOT"] if self.random.random() < 0.4 else []
        if kind == "IS":
            yield from ["IS", *inverted, "null"]
        elif kind == "BETWEEN":
            yield from [*inverted, "between", *self.operand(depth - 1), "AND", *self.operand(depth - 1)]
        elif kind == "IN":
            strings = [text for text in LITERALS if text[0] == "'"]
            chosen = self.random.choices(strings, k=self.random.choice([1, 2, 4, 5, 7]))
            yield from [*inverted, "IN", "(", *[token for text in chosen for token in (text, ",")][:-1], ")"]
        elif kind == "SEARCH":
            word = self.random.choice(["contains", "STARTSWITH", "endswith"])
            yield from [*inverted, word, self.random.choice(["'x'", "'a'", "''", "'5'", "b"])]
        else:
            yield from [kind, *self.operand(depth)]

    def operand(self, depth: int) -> Iterator[str]:
        kind = self.random.random()
        if kind < 0.12:
            yield self.random.choice(["-", "-", "+", "NOT"])
            yield from self.operand(depth)
        elif kind < 0.3 and depth > 0:
            yield from ["(", *self.either(depth - 1), ")"]
        elif kind < 0.65:
            yield self.random.choice(NAMES[:4] if self.random.random() < 0.95 else NAMES)
        else:
            yield self.random.choice(LITERALS)

    def properties(self) -> dict[str, str]:
        return {name: self.random.choice(VALUES) for name in ("a", "b", "c", "A") if self.random.random() < 0.8}

    def text(self) -> str:
        alphabet = "".join(map(chr, [*range(32, 127), 0xE9, 0x4E2D, 0x7FF, 0x800, 0xFFFF, 0x1F600, 0x10FFFF]))
        return "".join(self.random.choices(alphabet, k=self.random.randint(0, 40)))


def question(kind: str, *fields: str) -> str:
    return " ".join([kind, *(b64encode(field.encode()).decode() for field in fields)])


def ask(release: Release, questions: Sequence[str], directory: Path) -> list[str]:
    asked, answered = directory / "questions", directory / "answers"
    asked.write_text("".join(f"{line}\n" for line in questions), encoding="ascii")
    command = ["java", *SHORT_LIVED, "-Xss8m", "-cp", release.class_path, "Filters", str(asked), str(answered)]
    subprocess.run(command, check=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL)
    answers = answered.read_text(encoding="ascii").splitlines()
    assert len(answers) == len(questions)
    return answers


def our_answers(expression: str, asked: Sequence[dict[str, str]], *, contains: bool) -> Iterator[str]:
    """Yield reput's results of one expression for each of some properties."""
    try:
        compiled = compile_expression(expression, contains=contains)
    except ExpressionSyntaxError:
        yield from ["refused"] * len(asked)
        return
    for properties in asked:
        try:
            value = compiled.evaluate(properties)
        except ExpressionEvaluationError:
            yield "throws"
        else:
            yield "null" if value is None else str(value).lower()


@cache
def expressions_asked(seed: int) -> list[tuple[str, list[dict[str, str]]]]:
    """Expressions, each with properties: the same for every release."""
    maker = Maker(seed)
    return [(maker.expression(), [maker.properties() for _ in range(PROPERTY_SETS)]) for _ in range(EXPRESSIONS)]


@cache
def sql_questions(seed: int) -> list[str]:
    return [
        question("sql", text, *[part for item in each.items() for part in item])
        for text, properties in expressions_asked(seed)
        for each in properties
    ]


@pytest.fixture(scope="module", params=["4.9.3", "5.5.0"])
def release(request: pytest.FixtureRequest) -> Release:
    reason = missing_tools()
    if reason is not None:
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return Release(request.param)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_expressions_agree(release: Release, seed: int, tmp_path: Path) -> None:
    """Compiled or refused, true, false, null or throwing: the same for every expression and every properties."""
    asked = [(text, each) for text, properties in expressions_asked(seed) for each in properties]
    theirs = ask(release, sql_questions(seed), tmp_path)
    contains = release.version != "4.9.3"
    ours = [
        answer
        for text, properties in expressions_asked(seed)
        for answer in our_answers(text, properties, contains=contains)
    ]
    assert [
        (text, properties, f"theirs {their}", f"ours {our}")
        for (text, properties), their, our in zip(asked, theirs, ours, strict=True)
        if their != our
    ][:20] == []
    # The questions are worth asking only if every answer is common.
    assert min(theirs.count(answer) for answer in ("true", "false", "null", "throws", "refused")) > 1500


def test_bloom_filters_agree(release: Release, tmp_path: Path) -> None:
    """Positions and bits of random text, and k and m of every error rate."""
    maker = Maker(3)
    expected = [*range(1, 65), 100, 128, 255, 256, 1000, 4096, 100_000]
    asked = [(rate, number, "CID#T") for rate in range(1, 100) for number in expected]
    asked += [(maker.random.choice([1, 5, 20]), maker.random.choice([32, 300]), maker.text()) for _ in range(5000)]
    ours = []
    for rate, number, text in asked:
        bloom = BloomFilter(rate, number)
        positions = bloom.positions(text)
        ours.append(f"{bloom.k} {bloom.m} {list(positions)} {bits(positions, bloom.m).hex()}")
    theirs = ask(release, [question("bloom", str(rate), str(number), text) for rate, number, text in asked], tmp_path)
    assert [pair for pair in zip(asked, theirs, ours, strict=True) if pair[1] != pair[2]] == []
