"""The grammar of SQL92 filter expressions (``SelectorParser.jj``), from text to an expression that can be evaluated.

RocketMQ's parser reads the longest expression that the text begins with and ignores what follows, except that it has
fetched one more token, which must be valid. A parser generator would have to be kept from looking further; the grammar
has eight rules, and each is a method here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from reput.sinks.filter import sql92_expression as create
from reput.sinks.filter.sql92_expression import ExpressionEvaluationError, ExpressionSyntaxError, Operand

_WORDS = frozenset(("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"))
_SEARCH_WORDS = frozenset(create.SEARCHES)

# A longer alternative stands before one that it begins with. A `--` without an end of line is two minuses.
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
# Deeper than anyone nests, and shallow enough for Python's stack at any call depth. Java's stack ends after a few
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
        Every property it may ask for.
    """

    def __init__(self, text: str, *, contains: bool) -> None:
        """Compile `text`; `compile_expression` has the arguments and errors."""
        parser = _Parser(text, contains=contains)
        self.text = text
        self.contains = contains
        self._evaluate = parser.parse().evaluate
        self.property_names = frozenset(parser.property_names)

    def evaluate(self, properties: Mapping[str, str]) -> bool | None:
        """Whether a message with `properties` matches; None means unknown, which is no match.

        Raises
        ------
        ExpressionEvaluationError
            Where RocketMQ throws: a text that should be a number is not one. This is no match either.
        """
        try:
            value = self._evaluate(properties)
        except (
            RecursionError
        ):  # a chain of a thousand operators; Java's stack ends later, and its error is no match either
            raise ExpressionEvaluationError(f"{self.text!r} is too long a chain to be evaluated") from None
        assert value is None or isinstance(value, bool)
        return value

    def __reduce__(self) -> tuple[Callable[..., Expression], tuple[str, bool]]:
        return _restore, (self.text, self.contains)

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
        Where RocketMQ throws ``MQFilterException``, or the text is nested deeper than 60 levels.
    """
    return Expression(text, contains=contains)


def _restore(text: str, contains: bool) -> Expression:
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
    """Parses with one method for each rule; each leaves `_next` at the first token that is not its own."""

    def __init__(self, text: str, *, contains: bool) -> None:
        self._text = text
        self._words = _WORDS | _SEARCH_WORDS if contains else _WORDS
        self._tokens = _tokens(text, self._words)
        self._next = next(self._tokens)
        self._depth = 0
        self.property_names: set[str] = set()

    def parse(self) -> Operand:
        return create.as_boolean(self._or())

    def _or(self) -> Operand:
        operands = [self._and()]
        while self._accept("OR"):
            operands.append(self._and())
        return operands[0] if len(operands) == 1 else create.create_or(operands)

    def _and(self) -> Operand:
        operands = [self._equality()]
        while self._accept("AND"):
            operands.append(self._equality())
        return operands[0] if len(operands) == 1 else create.create_and(operands)

    def _equality(self) -> Operand:
        left = self._comparison()
        while True:
            if self._accept("="):
                left = create.create_equal(left, self._comparison())
            elif self._accept("<>"):
                left = create.create_not_equal(left, self._comparison())
            elif self._accept("IS"):
                inverted = self._accept("NOT")
                self._expect("NULL")
                left = create.create_is_null(left)
                left = create.create_not(left) if inverted else left
            else:
                return left

    def _comparison(self) -> Operand:
        left = self._unary()
        while True:
            operator = self._next.kind
            if operator in create.ORDERS:
                self._advance()
                left = create.create_order(operator, left, self._unary())
                continue
            inverted = self._accept("NOT")
            word = self._next.kind
            if word == "BETWEEN":
                left = self._between(left, inverted=inverted)
            elif word == "IN":
                left = create.create_in(left, self._strings(), inverted=inverted)
            elif word in self._words & _SEARCH_WORDS:
                self._advance()
                left = create.create_search(word, left, self._string(), inverted=inverted)
            elif inverted:
                raise self._unexpected("BETWEEN or IN after NOT")
            else:
                return left

    def _between(self, value: Operand, *, inverted: bool) -> Operand:
        self._expect("BETWEEN")
        low = self._unary()
        self._expect("AND")
        high = self._unary()
        return create.create_not_between(value, low, high) if inverted else create.create_between(value, low, high)

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
                return create.create_negate(self._unary())
            if self._accept("NOT"):
                return create.create_not(self._unary())
            return self._primary()
        finally:
            self._depth -= 1

    def _primary(self) -> Operand:
        kind = self._next.kind
        if kind == "string":
            return create.create_constant(self._string())
        if kind not in ("decimal", "float", "TRUE", "FALSE", "NULL", "id", "("):
            raise self._unexpected("a literal, a property or a parenthesis")
        image = self._next.image
        self._advance()
        if kind == "decimal":
            return create.create_from_decimal(image)
        if kind == "float":
            return create.create_float(image)
        if kind == "id":
            self.property_names.add(image)
            return create.create_property(image)
        if kind == "(":
            inner = self._or()
            self._expect(")")
            return inner
        return create.create_constant({"TRUE": True, "FALSE": False, "NULL": None}[kind])

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
