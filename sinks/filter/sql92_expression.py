"""The operands of SQL92 filter expressions, their checks, and their evaluation with a message's properties.

They follow RocketMQ's ``filter/expression/*``: logic is three-valued (None is Java's null), constants carry a Java
class, and text is converted to the class that it is compared with. Each ``create_*`` function builds a node as the Java
method of that name does, with the same checks; a node's `evaluate` is a closure over its operands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from reput.sinks.filter.java_double import compare_doubles, parse_double
from reput.source.errors import ReputError
from reput.source.record.java_string import parse_int, parse_long

_INTEGER_MAX = 2**31 - 1


class ExpressionSyntaxError(ReputError):
    """The expression cannot be compiled: RocketMQ's ``MQFilterException``."""

    code = "expression-syntax"


class ExpressionEvaluationError(ReputError):
    """The expression cannot be evaluated with these properties: RocketMQ throws, which counts as no match."""

    code = "expression-evaluation"


class Long(int):
    """Java's Long; a plain `int` is an Integer. The class decides what a text beside it may hold."""


Value: TypeAlias = "str | bool | int | Long | float | None"
Evaluate: TypeAlias = Callable[[Mapping[str, str]], Value]

_NUMBERS = (int, Long, float)


@dataclass(frozen=True)
class Operand:
    """A node of an expression; `evaluate` gives its value for a message's properties."""

    evaluate: Evaluate


@dataclass(frozen=True)
class Boolean(Operand):
    """A node whose value is true, false or None."""


@dataclass(frozen=True)
class Constant(Operand):
    """A literal."""

    value: Value


@dataclass(frozen=True)
class Property(Operand):
    """A message's property; None where the message has none."""

    name: str


@dataclass(frozen=True)
class Negation(Operand):
    """A minus and its operand: a number, or None."""


def create_constant(value: Value) -> Constant:
    """A literal of the class that `value` has."""
    return Constant(lambda _: value, value)


def create_from_decimal(text: str) -> Constant:
    """An integer literal, maybe with a final ``L``: an Integer where it fits, otherwise a Long."""
    value = parse_long(text.rstrip("lL"))
    if value is None:
        raise ExpressionSyntaxError(f"{text} does not fit a long")
    return create_constant(value if value <= _INTEGER_MAX else Long(value))


def create_float(text: str) -> Constant:
    """A literal with a point or an exponent; Java refuses zero, and what rounds to zero or infinity."""
    value = parse_double(text)
    if value is None or value == 0 or math.isinf(value):
        raise ExpressionSyntaxError(f"{text} is no double: it must lie between 4.9E-324 and 1.7976931348623157E308")
    return create_constant(value)


def create_property(name: str) -> Property:
    """A property; its name is case-sensitive."""
    return Property(lambda properties: properties.get(name), name)


def create_negate(operand: Operand) -> Negation:
    """``-x``: None unless x is a number (``UnaryExpression#createNegate``)."""
    evaluate = operand.evaluate

    def negate(properties: Mapping[str, str]) -> Value:
        value = evaluate(properties)
        return type(value)(-value) if isinstance(value, _NUMBERS) and not isinstance(value, bool) else None

    return Negation(negate)


def as_boolean(operand: Operand) -> Operand:
    """`operand` as AND, OR, NOT and the whole expression require it (``SelectorParser#asBooleanExpression``).

    A property is cast; its text is never true.
    """
    if isinstance(operand, Property):
        evaluate = operand.evaluate
        return Boolean(lambda properties: None if evaluate(properties) is None else False)
    if _is_boolean(operand):
        return operand
    raise ExpressionSyntaxError("a comparison, TRUE, FALSE, NULL or a property is wanted where a number or text stands")


def create_not(operand: Operand) -> Boolean:
    """``NOT x``; None stays None."""
    evaluate = as_boolean(operand).evaluate

    def invert(properties: Mapping[str, str]) -> Value:
        value = evaluate(properties)
        return None if value is None else not value

    return Boolean(invert)


def create_and(operands: Sequence[Operand]) -> Boolean:
    """``x AND y AND ...``: the first false operand decides; otherwise None if one is None."""
    return _create_logic(operands, decisive=False)


def create_or(operands: Sequence[Operand]) -> Boolean:
    """``x OR y OR ...``: the first true operand decides; otherwise None if one is None."""
    return _create_logic(operands, decisive=True)


def _create_logic(operands: Sequence[Operand], *, decisive: bool) -> Boolean:
    evaluates = [as_boolean(operand).evaluate for operand in operands]

    def combine(properties: Mapping[str, str]) -> Value:
        result: bool | None = not decisive
        for evaluate in evaluates:
            value = evaluate(properties)
            if value is decisive:
                return decisive
            if value is None:
                result = None
        return result

    return Boolean(combine)


def create_equal(left: Operand, right: Operand) -> Boolean:
    """``x = y`` (``ComparisonExpression#createEqual``)."""
    for operand in (left, right):
        if isinstance(operand, Constant) and operand.value is None:
            raise ExpressionSyntaxError("NULL cannot be compared: write IS NULL")
    if (
        isinstance(left, Constant)
        and isinstance(left.value, bool)
        and isinstance(right, Constant)
        and not isinstance(right.value, bool)
    ):
        raise ExpressionSyntaxError(f"{left.value!r} cannot be compared with {right.value!r}")
    return _do_create_equal(left, right)


def create_not_equal(left: Operand, right: Operand) -> Boolean:
    """``x <> y``."""
    return create_not(create_equal(left, right))


def create_is_null(operand: Operand) -> Boolean:
    """``x IS NULL``: never None."""
    return _do_create_equal(operand, create_constant(None))


def _do_create_equal(left: Operand, right: Operand) -> Boolean:
    evaluate_left, evaluate_right = left.evaluate, right.evaluate

    def equal(properties: Mapping[str, str]) -> Value:
        one, other = evaluate_left(properties), evaluate_right(properties)
        if one is None:
            return True if other is None else None
        return other is not None and _compare(one, other) == 0

    return Boolean(equal)


# Whether each operator holds for the result of a comparison: -1, 0 or 1.
ORDERS: dict[str, Callable[[int], bool]] = {
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
}


def create_order(operator: str, left: Operand, right: Operand) -> Boolean:
    """``x > y`` and the others of `ORDERS` (``ComparisonExpression#createGreaterThan`` ...).

    Neither side may be a boolean or a constant other than a number; None on one side makes None.
    """
    for operand in (left, right):
        if _is_boolean(operand) or (isinstance(operand, Constant) and not isinstance(operand.value, _NUMBERS)):
            raise ExpressionSyntaxError(f"only a number or a property may stand beside {operator}")
    evaluate_left, evaluate_right, holds = left.evaluate, right.evaluate, ORDERS[operator]

    def order(properties: Mapping[str, str]) -> Value:
        one = evaluate_left(properties)
        if one is None:
            return None
        other = evaluate_right(properties)
        if other is None:
            return None
        if isinstance(one, str) and isinstance(other, str):
            return holds(compare_doubles(_double(one), _double(other)))
        return holds(_compare(one, other))

    return Boolean(order)


def create_between(value: Operand, low: Operand, high: Operand) -> Boolean:
    """``x BETWEEN y AND z``; constants in the wrong order are refused, but a number with a minus is no constant."""
    if isinstance(low, Constant) and isinstance(high, Constant):
        lowest, highest = low.value, high.value
        if lowest is None or highest is None:
            raise ExpressionSyntaxError("NULL cannot be a bound of BETWEEN")
        if isinstance(lowest, _NUMBERS) and isinstance(highest, _NUMBERS) and _compare(highest, lowest) < 0:
            raise ExpressionSyntaxError(f"BETWEEN {lowest} AND {highest} holds nothing: the bounds are reversed")
    return create_and([create_order(">=", value, low), create_order("<=", value, high)])


def create_not_between(value: Operand, low: Operand, high: Operand) -> Boolean:
    """``x NOT BETWEEN y AND z``; the bounds may stand in any order."""
    return create_or([create_order("<", value, low), create_order(">", value, high)])


def create_in(operand: Operand, elements: Sequence[str], *, inverted: bool) -> Boolean:
    """``x [NOT] IN ('y', 'z')``; x must be a property."""
    if not isinstance(operand, Property):
        raise ExpressionSyntaxError("only a property may stand before IN")
    evaluate, known = operand.evaluate, frozenset(elements)

    def is_in(properties: Mapping[str, str]) -> Value:
        value = evaluate(properties)
        return None if value is None else (value in known) != inverted

    return Boolean(is_in)


# CONTAINS, STARTSWITH and ENDSWITH: whether `value` holds `search`.
SEARCHES: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": str.__contains__,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


def create_search(word: str, operand: Operand, search: str, *, inverted: bool) -> Boolean:
    """``x [NOT] CONTAINS 'y'`` and the others of `SEARCHES` (5.1.3).

    False, even with NOT, where x is not text or the text searched for is empty.
    """
    evaluate, holds = operand.evaluate, SEARCHES[word]

    def found(properties: Mapping[str, str]) -> Value:
        if not search:
            return False
        value = evaluate(properties)
        return isinstance(value, str) and holds(value, search) != inverted

    return Boolean(found)


def _is_boolean(operand: Operand) -> bool:
    """Whether Java's node would be a ``BooleanExpression``: the constants TRUE, FALSE and NULL are."""
    if isinstance(operand, Constant):
        return operand.value is None or isinstance(operand.value, bool)
    return isinstance(operand, Boolean)


def _double(text: str) -> float:
    value = parse_double(text)
    if value is None:
        raise ExpressionEvaluationError(f"{text!r} is no number, and only numbers have an order")
    return value


# How text is read when it is compared with a value of each class.
_CONVERT: dict[type, Callable[[str], Value]] = {
    bool: lambda text: text.lower() == "true",
    int: parse_int,
    Long: parse_long,
    float: parse_double,
}


def _convert(text: str, kind: type) -> Value:
    value = _CONVERT[kind](text)
    if value is None:
        raise ExpressionEvaluationError(f"{text!r} cannot be read as {kind.__name__}")
    return value


def _compare(left: Any, right: Any) -> int:
    """``ComparisonExpression#__compare`` of two values other than None: below, at or above 0.

    It is below 0 as well where no rule joins the two classes.
    """
    kind, other = type(left), type(right)
    if kind is not other:
        if kind is str:
            left = _convert(left, other)
        elif other is str:
            if kind is bool:
                raise ExpressionEvaluationError("a boolean on the left is never compared with text")
            right = _convert(right, kind)
        elif bool in (kind, other):
            return -1
        elif float in (kind, other):
            left, right = float(left), float(right)
    if isinstance(left, float):
        return compare_doubles(left, right)
    return int(left > right) - int(left < right)
