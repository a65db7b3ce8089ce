"""The grammar of SQL92 filter expressions (``SelectorParser.jj``), from text to an expression that can be evaluated.

RocketMQ's parser reads the longest expression at the beginning of the text and ignores the rest, except that it has
fetched one more token, which must be valid. A parser generator would have to be kept from reading further; the grammar
has eight rules, and each is a method here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from reput.source.errors import ReputError
from reput.source.record.message_properties import parse_int, parse_long

# ----------------------------------------------------------------------------------------------------------------------
# Java's doubles: ``Double#valueOf`` of a text, ``Double#compare``.

_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_HEXADECIMAL = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+")
_NAMED = re.compile(r"[+-]?(?:NaN|Infinity)")
_TYPE_SUFFIXES = "fFdD"
# The characters that ``String#trim`` removes; Python's `strip` removes others.
_TRIMMED = "".join(map(chr, range(0x21)))


def parse_double(text: str) -> float | None:
    """``Double#valueOf``; None if Java throws NumberFormatException.

    The text may be decimal, hexadecimal, ``NaN`` or ``Infinity``, with a type suffix and blanks at both ends. A number
    that is too large becomes infinite, one that is too small becomes zero.
    """
    trimmed = text.strip(_TRIMMED)
    if _NAMED.fullmatch(trimmed):
        return float(trimmed)
    number = trimmed[:-1] if trimmed[-1:] in tuple(_TYPE_SUFFIXES) else trimmed
    if _DECIMAL.fullmatch(number):
        return float(number)
    if _HEXADECIMAL.fullmatch(number):
        try:
            return float.fromhex(number)
        except OverflowError:
            return float("-inf") if number[0] == "-" else float("inf")
    return None


def compare_doubles(left: float, right: float) -> int:
    """``Double#compare``: -1, 0 or 1; NaN is the greatest and equals itself, 0.0 is greater than -0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    left_rank, right_rank = _rank(left), _rank(right)
    return (left_rank > right_rank) - (left_rank < right_rank)


def _rank(value: float) -> int:
    """The order of values that are neither less nor greater than each other: -0.0, then the others, then NaN."""
    if math.isnan(value):
        return 2
    return 0 if value == 0 and math.copysign(1, value) < 0 else 1


# ----------------------------------------------------------------------------------------------------------------------
# The operands of SQL92 filter expressions, their checks, and their evaluation with a message's properties.
#
# They follow RocketMQ's ``filter/expression/*``: logic is three-valued (None is Java's null), constants carry a Java
# class, and text is converted to the class that it is compared with. Each ``create_*`` function builds a node as the
# Java method of that name does, with the same checks; a node's `evaluate` is a closure over its operands.

_INTEGER_MAX = 2**31 - 1


class ExpressionSyntaxError(ReputError):
    """The expression cannot be compiled: RocketMQ's ``MQFilterException``."""

    code = "expression-syntax"


class ExpressionEvaluationError(ReputError):
    """The expression cannot be evaluated with these properties: RocketMQ throws, which counts as no match."""

    code = "expression-evaluation"


class Long(int):
    """Java's Long; a plain `int` is an Integer. The class decides which numbers a text compared with it may hold."""


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
class PropertyExpression(Operand):
    """A message's property; None for a message without it."""

    name: str


@dataclass(frozen=True)
class Negation(Operand):
    """A minus and its operand: a number, or None."""


def create_constant(value: Value) -> Constant:
    """A literal of the class that `value` has."""
    return Constant(lambda _: value, value)


def create_from_decimal(text: str) -> Constant:
    """An integer literal, maybe with a final ``L``: an Integer if it fits, otherwise a Long."""
    value = parse_long(text.rstrip("lL"))
    if value is None:
        raise ExpressionSyntaxError(f"{text} does not fit a long")
    return create_constant(value if value <= _INTEGER_MAX else Long(value))


def create_float(text: str) -> Constant:
    """A literal with a point or an exponent; Java refuses zero, and numbers that round to zero or infinity."""
    value = parse_double(text)
    if value is None or value == 0 or math.isinf(value):
        raise ExpressionSyntaxError(f"{text} is not a double: it must lie between 4.9E-324 and 1.7976931348623157E308")
    return create_constant(value)


def create_property(name: str) -> PropertyExpression:
    """A property; its name is case-sensitive."""
    return PropertyExpression(lambda properties: properties.get(name), name)


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
    if isinstance(operand, PropertyExpression):
        evaluate = operand.evaluate
        return Boolean(lambda properties: None if evaluate(properties) is None else False)
    if _is_boolean(operand):
        return operand
    raise ExpressionSyntaxError("a comparison, TRUE, FALSE, NULL or a property is wanted instead of a number or text")


def create_not(operand: Operand) -> Boolean:
    """``NOT x``; None stays None."""
    evaluate = as_boolean(operand).evaluate

    def invert(properties: Mapping[str, str]) -> Value:
        value = evaluate(properties)
        return None if value is None else not value

    return Boolean(invert)


def create_and(operands: Sequence[Operand]) -> Boolean:
    """``x AND y AND ...``: the first false operand decides; otherwise one that is unknown makes it unknown (None)."""
    return _create_logic(operands, decisive=False)


def create_or(operands: Sequence[Operand]) -> Boolean:
    """``x OR y OR ...``: the first true operand decides; otherwise one that is unknown makes it unknown (None)."""
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

    Neither side may be a boolean or a constant other than a number; None on one side gives None.
    """
    for operand in (left, right):
        if _is_boolean(operand) or (isinstance(operand, Constant) and not isinstance(operand.value, _NUMBERS)):
            raise ExpressionSyntaxError(f"only a number or a property can be an operand of {operator}")
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
    """``x BETWEEN y AND z``; constants in the wrong order are refused, but a number with a minus is not a constant."""
    if isinstance(low, Constant) and isinstance(high, Constant):
        lowest, highest = low.value, high.value
        if lowest is None or highest is None:
            raise ExpressionSyntaxError("NULL cannot be a bound of BETWEEN")
        if isinstance(lowest, _NUMBERS) and isinstance(highest, _NUMBERS) and _compare(highest, lowest) < 0:
            raise ExpressionSyntaxError(f"BETWEEN {lowest} AND {highest} holds nothing: the bounds are reversed")
    return create_and([create_order(">=", value, low), create_order("<=", value, high)])


def create_not_between(value: Operand, low: Operand, high: Operand) -> Boolean:
    """``x NOT BETWEEN y AND z``; the bounds may be in any order."""
    return create_or([create_order("<", value, low), create_order(">", value, high)])


def create_in(operand: Operand, elements: Sequence[str], *, inverted: bool) -> Boolean:
    """``x [NOT] IN ('y', 'z')``; x must be a property."""
    if not isinstance(operand, PropertyExpression):
        raise ExpressionSyntaxError("only a property may come before IN")
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

    False, even with NOT, if x is not text or the text searched for is empty.
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
        raise ExpressionEvaluationError(f"{text!r} is not a number, and only numbers have an order")
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

    It is also below 0 if no rule joins the two classes.
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


_WORDS = frozenset(("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"))
_SEARCH_WORDS = frozenset(SEARCHES)

# A longer alternative comes before its own prefix. A `--` without an end of line is two minuses.
_TOKEN = re.compile(
    r"""
    (?P<skip>     [ \t\n\r\f]+ | --[^\n\r]*(?:\r\n|\n|\r) | /\*[^*]*\*+(?:[^*/][^*]*\*+)*/ )
  | (?P<float>    (?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)? | [0-9]+[eE][+-]?[0-9]+ )
  | (?P<decimal>  0 | [1-9][0-9]*[lL]? )
  | (?P<string>   '(?:''|[^'])*' )
  | (?P<id>       [A-Za-z_$][A-Za-z0-9_$]* )
  | (?P<symbol>   <> | >= | <= | [=><(),+-] )
    """,
    re.VERBOSE,
)
# Deeper than real expressions, and shallow enough for Python's stack at any call depth. Java's stack ends after a few
# thousand levels.
_DEPTH_MAX = 60


class _Token(NamedTuple):
    """A token: `kind` is a reserved word, a symbol, or float, decimal, string, id or end; `image` is its text."""

    kind: str
    image: str
    at: int


class Expression:
    """A compiled filter expression.

    Attributes
    ----------
    text
        As the consumer wrote it.
    contains
        Whether CONTAINS, STARTSWITH and ENDSWITH are reserved words.
    property_names
        Every property that it may ask for.
    """

    def __init__(self, text: str, *, contains: bool) -> None:
        """Compile `text`; `compile_expression` has the arguments and errors."""
        parser = _Parser(text, contains=contains)
        self.text = text
        self.contains = contains
        self._evaluate = parser.parse().evaluate
        self.property_names = frozenset(parser.property_names)

    def evaluate(self, properties: Mapping[str, str]) -> bool | None:
        """Whether a message with `properties` matches; None means unknown, which counts as no match.

        Raises
        ------
        ExpressionEvaluationError
            RocketMQ throws: a text that should be a number is not one. This also counts as no match.
        """
        try:
            value = self._evaluate(properties)
        except RecursionError:
            # A chain of a thousand operators. Java's stack ends later, and its error also counts as no match.
            raise ExpressionEvaluationError(f"{self.text!r} is too long a chain to be evaluated") from None
        assert value is None or isinstance(value, bool)
        return value

    def __reduce__(self) -> tuple[Callable[..., Expression], tuple[str]]:
        return partial(Expression, contains=self.contains), (self.text,)

    def __repr__(self) -> str:
        return f"Expression({self.text!r}, contains={self.contains})"


def compile_expression(text: str, *, contains: bool) -> Expression:
    """Compile an expression as ``SelectorParser#parse`` does.

    Parameters
    ----------
    contains
        True for 5.1.3 and later, whose grammar has CONTAINS, STARTSWITH and ENDSWITH.

    Raises
    ------
    ExpressionSyntaxError
        RocketMQ throws ``MQFilterException``, or the text is nested deeper than 60 levels.
    """
    return Expression(text, contains=contains)


def _tokens(text: str, words: frozenset[str]) -> Iterator[_Token]:
    """The tokens one by one, so that only fetched ones are checked; after the last, the end for ever."""
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ExpressionSyntaxError(f"{text!r}: no token begins with {text[at]!r} at character {at}")
        kind, image = str(match.lastgroup), match.group()
        if kind == "symbol":
            kind = image
        elif kind == "id" and image.upper() in words:
            kind = image.upper()
        if kind != "skip":
            yield _Token(kind, image, at)
        at = match.end()
    while True:
        yield _Token("end", "", at)


class _Parser:
    """Parses with one method per rule; each leaves `_next` at the first token that is not its own."""

    def __init__(self, text: str, *, contains: bool) -> None:
        self._text = text
        self._words = _WORDS | _SEARCH_WORDS if contains else _WORDS
        self._tokens = _tokens(text, self._words)
        self._next = next(self._tokens)
        self._depth = 0
        self.property_names: set[str] = set()

    def parse(self) -> Operand:
        return as_boolean(self._or())

    def _or(self) -> Operand:
        operands = [self._and()]
        while self._accept("OR"):
            operands.append(self._and())
        return operands[0] if len(operands) == 1 else create_or(operands)

    def _and(self) -> Operand:
        operands = [self._equality()]
        while self._accept("AND"):
            operands.append(self._equality())
        return operands[0] if len(operands) == 1 else create_and(operands)

    def _equality(self) -> Operand:
        left = self._comparison()
        while True:
            if self._accept("="):
                left = create_equal(left, self._comparison())
            elif self._accept("<>"):
                left = create_not_equal(left, self._comparison())
            elif self._accept("IS"):
                inverted = self._accept("NOT")
                self._expect("NULL")
                left = create_is_null(left)
                left = create_not(left) if inverted else left
            else:
                return left

    def _comparison(self) -> Operand:
        left = self._unary()
        while True:
            operator = self._next.kind
            if operator in ORDERS:
                self._advance()
                left = create_order(operator, left, self._unary())
                continue
            inverted = self._accept("NOT")
            word = self._next.kind
            if word == "BETWEEN":
                left = self._between(left, inverted=inverted)
            elif word == "IN":
                left = create_in(left, self._strings(), inverted=inverted)
            elif word in self._words & _SEARCH_WORDS:
                self._advance()
                left = create_search(word, left, self._string(), inverted=inverted)
            elif inverted:
                raise self._unexpected("BETWEEN or IN after NOT")
            else:
                return left

    def _between(self, value: Operand, *, inverted: bool) -> Operand:
        self._expect("BETWEEN")
        low = self._unary()
        self._expect("AND")
        high = self._unary()
        return create_not_between(value, low, high) if inverted else create_between(value, low, high)

    def _strings(self) -> list[str]:
        self._expect("IN")
        self._expect("(")
        strings = [self._string()]
        while self._accept(","):
            strings.append(self._string())
        self._expect(")")
        return strings

    def _string(self) -> str:
        return self._expect("string").image[1:-1].replace("''", "'")

    def _unary(self) -> Operand:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise ExpressionSyntaxError(f"{self._text!r} is nested deeper than {_DEPTH_MAX} levels")
        try:
            if self._accept("+"):
                return self._unary()
            if self._accept("-"):
                return create_negate(self._unary())
            if self._accept("NOT"):
                return create_not(self._unary())
            return self._primary()
        finally:
            self._depth -= 1

    def _primary(self) -> Operand:
        kind = self._next.kind
        if kind == "string":
            return create_constant(self._string())
        if kind not in ("decimal", "float", "TRUE", "FALSE", "NULL", "id", "("):
            raise self._unexpected("a literal, a property or a parenthesis")
        image = self._next.image
        self._advance()
        if kind == "decimal":
            return create_from_decimal(image)
        if kind == "float":
            return create_float(image)
        if kind == "id":
            self.property_names.add(image)
            return create_property(image)
        if kind == "(":
            inner = self._or()
            self._expect(")")
            return inner
        return create_constant({"TRUE": True, "FALSE": False, "NULL": None}[kind])

    def _advance(self) -> None:
        self._next = next(self._tokens)

    def _accept(self, kind: str) -> bool:
        if self._next.kind != kind:
            return False
        self._advance()
        return True

    def _expect(self, kind: str) -> _Token:
        token = self._next
        if not self._accept(kind):
            raise self._unexpected(kind)
        return token

    def _unexpected(self, wanted: str) -> ExpressionSyntaxError:
        found = repr(self._next.image) if self._next.image else "the end"
        return ExpressionSyntaxError(f"{self._text!r}: {found} at character {self._next.at}, where {wanted} is wanted")
