"""SQL92 expressions: results, errors and refusals as RocketMQ's own parser and classes give them.

Vectors from running the 4.9.3 and 5.x classes, and RocketMQ's ``ParserTest`` and ``ExpressionTest``; random ones are
compared with the real classes in ``broker/test_filters.py``.
"""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.sinks.filter.sql92 import ExpressionEvaluationError, ExpressionSyntaxError, compile_expression

THROWS = "throws"


def result(text: str, properties: dict[str, str], *, contains: bool) -> bool | str | None:
    expression = compile_expression(text, contains=contains)
    try:
        return expression.evaluate(properties)
    except ExpressionEvaluationError:
        return THROWS


# expression, properties, result; the same in every release
VECTORS: list[tuple[str, dict[str, str], bool | str | None]] = [
    # what follows the longest expression is ignored
    ("a = 1 garbage", {"a": "1"}, True),
    ("a = 1 )", {"a": "1"}, True),
    ("a = 0L", {"a": "0"}, True),
    ("a = 01", {"a": "0"}, True),
    ("a-b = 'x'", {"a": "x"}, False),
    ("a like 'x'", {"a": "x"}, False),
    ("a = 'x' -- c", {"a": "x"}, True),
    ("a = 5l", {"a": "5"}, True),
    # white space and comments
    ("\ta\r\n=\f1 /* b */ -- c\n", {"a": "1"}, True),
    ("a /***/ = /* * / ' */ 1", {"a": "1"}, True),
    ("a = -- 5\r6", {"a": "6"}, True),
    ("a > -- 5", {"a": "6"}, True),
    # NOT
    ("NOT a = 'x'", {"a": "y"}, THROWS),
    ("NOT (a = 'x')", {"a": "y"}, True),
    ("NOT (a = 'x')", {}, None),
    ("NOT a", {"a": "true"}, True),
    ("not not not TRUE", {}, False),
    # = and <>
    ("'x' = a", {}, False),
    ("'x' <> a", {}, True),
    ("a = 'x'", {}, None),
    ("a <> 'x'", {}, None),
    ("a = b", {}, True),
    ("a <> b", {}, False),
    ("a = TRUE", {"a": "true"}, True),
    ("a = TRUE", {"a": "abc"}, False),
    ("a = FALSE", {"a": "abc"}, True),
    ("TRUE = a", {"a": "true"}, THROWS),
    ("TRUE = a", {}, False),
    ("'a' = TRUE", {}, False),
    ("1 = TRUE", {}, False),
    ("1 = '1'", {}, True),
    ("1 = 'x'", {}, THROWS),
    ("a = 1 = TRUE", {"a": "1"}, True),
    ("(a = 1) = 5", {"a": "1"}, False),
    ("a = 5", {"a": "5.0"}, THROWS),
    ("a = 5.0", {"a": "5"}, True),
    ("5 = 5.0", {}, True),
    ("9007199254740993 = 9007199254740992.0", {}, True),
    ("a = 'it''s'", {"a": "it's"}, True),
    ("A = 'x'", {"a": "x"}, None),
    ("a = '中'", {"a": "中"}, True),
    ("a = ''", {"a": ""}, True),
    ("a = $_1", {"a": "x", "$_1": "x"}, True),
    ("a = -2147483648", {"a": "-2147483648"}, True),
    # a whole that is a property or a constant
    ("a", {"a": "true"}, False),
    ("a", {}, None),
    ("NULL", {}, None),
    ("TRUE", {}, True),
    ("(((false)))", {}, False),
    # order
    ("a > 0", {"a": "1.5"}, THROWS),
    ("a > 1.0", {"a": "1.5"}, True),
    ("a > 5", {"a": "abc"}, THROWS),
    ("a > 5", {}, None),
    ("a > 5", {"a": " 6"}, THROWS),
    ("a > 5", {"a": "+6"}, True),
    ("a > 5.0", {"a": " 6 "}, True),
    ("a > 5.0", {"a": "NaN"}, True),
    ("a > 5.0", {"a": "0x10p0"}, True),
    ("a > 5.0", {"a": "6d"}, True),
    ("a > 2147483647", {"a": "2147483648"}, THROWS),
    ("a >= 2147483648", {"a": "2147483648"}, True),
    ("a > b", {"a": "6", "b": "5"}, True),
    ("a > b", {"a": "x", "b": "5"}, THROWS),
    ("a > b", {"a": "0.0", "b": "-0.0"}, True),
    ("a > - -5", {"a": "6"}, True),
    ("a > + -5", {"a": "-4"}, True),
    ("a > -b", {"a": "6", "b": "5"}, None),
    ("1 > 2", {}, False),
    ("2.5 > 2", {}, True),
    # BETWEEN
    ("a between 1 and 5", {"a": "5"}, True),
    ("a between 1 and 5", {}, None),
    ("a not between 5 and 1", {"a": "9"}, True),
    ("a between -5 and -10", {"a": "-7"}, False),
    ("a between b and c", {"a": "3", "b": "1", "c": "5"}, True),
    # IN
    ("a in ('1')", {"a": "1"}, True),
    ("a in ('1')", {}, None),
    ("(a) not in ('1','2','3','4','5','6')", {"a": "9"}, True),
    ("a not in ('1')", {"a": "1"}, False),
    # IS NULL
    ("a is null", {}, True),
    ("a is not null", {}, False),
    ("a is not null", {"a": ""}, True),
    ("5 is null", {}, False),
    ("NULL is null", {}, True),
    # AND and OR
    ("a = 'x' and b > 1", {"a": "y", "b": "zz"}, False),
    ("a = 'x' or b > 1", {"a": "x", "b": "zz"}, True),
    ("b > 1 or a = 'x'", {"a": "x", "b": "zz"}, THROWS),
    ("a > 5 or b > 5", {"a": "4"}, None),
    ("a > 5 or b > 5", {"b": "6"}, True),
    ("a > 5 and b > 5", {"b": "4"}, False),
    ("a > 5 and b > 5", {"b": "6"}, None),
    ("a or b > 5", {"b": "6"}, True),
    ("a = 'x' or b = 'y' and c = 'z'", {"a": "x"}, True),
    ("TAGS is not null and TAGS='''''tag'''''", {"TAGS": "''tag''"}, True),
    # ParserTest and ExpressionTest
    ("a=3 and b<>4 And c>5 AND d<=4", {"a": "3", "b": "5", "c": "6", "d": "4"}, True),
    ("a=3 or b<>4 Or c>5 OR d<=4", {"a": "4", "b": "4", "c": "5", "d": "4"}, True),
    ("a in ('3', '4', '5')", {"a": "4"}, True),
    ("(a not in ('6', '4', '5')) or (b in ('3', '4', '5'))", {"a": "6", "b": "3"}, True),
    ("(a between 2 and 10) AND (b not between 6 and 9)", {"a": "3", "b": "5"}, True),
    ("a <= now", {"a": "1", "now": "2"}, True),
    *[("a between 2 and 10", {"a": value}, value in ("2", "3", "10")) for value in ("1", "2", "3", "10", "11")],
    ("a > b", {"a": "10", "b": "20"}, False),
    ("a > 3.1E10", {"a": "3.1415E10"}, True),
    ("a=b", {"a": "3.14", "b": "3.14"}, True),
    ("a<>b", {"a": "3.14", "b": "3.14"}, False),
    ("a<>b", {"a": "3.14", "b": "3.141"}, True),
    ("a is not null and a='hello'", {"a": "hello"}, True),
    ("a is not null and a='hello'", {}, False),
    ("a=TRUE OR b=FALSE", {"a": "true", "b": "false"}, True),
    ("a=TRUE OR b=FALSE", {"a": "false", "b": "true"}, False),
    *[("a is null OR a='hello'", {"a": value} if value else {}, value != "abc") for value in ("", "hello", "abc")],
    ("a > b", {"a": "x", "b": "y"}, THROWS),
    ("a between b and c", {"a": "x", "b": "y", "c": "z"}, THROWS),
]

REFUSED = [
    *("", " ", "5", "'a'", "-a", "a = 1 /", "a = 1 and", "a = 1 and &", "a = 1 &", "a = 1 not &", "a = 1 \u00a0"),
    *("NOT a > 5", "NOT a IN ('1')", "a = 1 not x", "a is 5", "a is not 5", "(a = 1", "a = ", "a = 'x", "a = 1 'x"),
    *("a == 1", "a != 1", "a && b", "a.b = 'x'", "in = 'x'", "中 = 1", "5 and a", "a or 'x'", "NOT 5", "NOT -a"),
    *("a > '5'", "TRUE > FALSE", "a > NULL", "a > 1 > 2", "(a > 1) < 2", "a = NULL", "NULL = a"),
    *("NULL <> NULL", "TRUE = 'a'", "TRUE = 1", "FALSE <> 1.5", "a between 5 and 1", "a between 1 and NULL"),
    *("a between '1' and '5'", "a between 5.5 and 5", "a between 2147483648 and 5", "TRUE between 1 and 2"),
    *("a not between '1' and 5", "a between 1", "a between 1 or 2", "a in (1)", "a in ()", "'a' in ('a')", "a in 'a'"),
    *("a in ('a' 'b')", "a in ('a',)", "(a = 1) in ('a')", "a = 9223372036854775808", "a = -9223372036854775808"),
    *("a = 1e400", "a = 1e-400", "a = 0.0", "a = .", "a = /* x", "a = + ", "a and between 2 and 10"),
    *("a > 100000000000000000000000", " a between 10 and 0", "a > 1" + "0" * 100_000 + ".0", "a > 1" + "0" * 100_000),
]

# expression, properties, result of 4.9.3 (and up to 5.1.2), result of 5.1.3 and later
PE = "refused"
SEARCH_VECTORS: list[tuple[str, dict[str, str], bool | str, bool | str]] = [
    ("a contains 'x'", {"a": "axb"}, False, True),
    ("a not contains 'x'", {"a": "axb"}, PE, False),
    ("contains = 'x'", {"contains": "x"}, True, PE),
    ("a not startswith 'x'", {}, PE, False),
    ("a contains ''", {"a": "axb"}, False, False),
    ("a not endswith ''", {"a": "axb"}, PE, False),
    ("5 contains '5'", {}, PE, False),
    ("5 not contains '6'", {}, PE, False),
    ("'abc' contains 'b'", {}, PE, True),
    ("a contains b", {"a": "b"}, False, PE),
    ("NOT a contains 'x'", {"a": "b"}, True, False),
    *[(f"a startswith '{text}'", {"a": "axb"}, False, text == "ax") for text in ("ax", "x", "xb")],
    *[(f"a endsWith '{text}'", {"a": "axb"}, False, text == "xb") for text in ("ax", "x", "xb")],
    *[(f"a not EndsWith '{text}'", {"a": "axb"}, PE, text != "xb") for text in ("ax", "x", "xb")],
    ("a contains 'x' = FALSE", {"a": "abb"}, False, True),
]


@pytest.mark.parametrize("contains", [False, True])
@pytest.mark.parametrize(("text", "properties", "expected"), VECTORS)
def test_vectors(text: str, properties: dict[str, str], expected: bool | str | None, contains: bool) -> None:
    assert result(text, properties, contains=contains) is expected


@pytest.mark.parametrize("contains", [False, True])
@pytest.mark.parametrize("text", REFUSED, ids=lambda text: repr(text[:40]))
def test_refused(text: str, contains: bool) -> None:
    with pytest.raises(ExpressionSyntaxError):
        compile_expression(text, contains=contains)


@pytest.mark.parametrize("contains", [False, True])
@pytest.mark.parametrize(("text", "properties", "before", "since"), SEARCH_VECTORS)
def test_search_words(
    text: str, properties: dict[str, str], before: bool | str, since: bool | str, contains: bool
) -> None:
    expected = since if contains else before
    if expected == PE:
        with pytest.raises(ExpressionSyntaxError):
            compile_expression(text, contains=contains)
    else:
        assert result(text, properties, contains=contains) is expected


def test_an_error_says_what_is_wanted_and_where() -> None:
    with pytest.raises(ExpressionSyntaxError, match=r"'a = \(b c': 'c' at character 7, where \) is wanted"):
        compile_expression("a = (b c", contains=False)
    with pytest.raises(ExpressionSyntaxError, match="'a is not': the end at character 8, where NULL is wanted"):
        compile_expression("a is not", contains=False)
    with pytest.raises(ExpressionSyntaxError, match="'a = 1 & b': no token begins with '&' at character 6"):
        compile_expression("a = 1 & b", contains=False)


def test_it_knows_its_properties_and_can_be_pickled() -> None:
    expression = compile_expression("a = 1 or B > c", contains=True)
    copy = pickle.loads(pickle.dumps(expression))
    assert copy.property_names == {"a", "B", "c"}
    assert (copy.text, copy.contains) == (expression.text, True)
    assert copy.evaluate({"B": "2", "c": "1"}) is True


def test_long_and_deep_expressions() -> None:
    """A thousand alternatives are usual; nesting has a limit, and it is an error like any other."""
    many = " or ".join(f"a = '{number}'" for number in range(5000))
    assert compile_expression(many, contains=False).evaluate({"a": "4999"}) is True
    assert compile_expression("(" * 59 + "a = 1" + ")" * 59, contains=False).evaluate({"a": "1"}) is True
    for deep in ("(" * 5000 + "a" + ")" * 5000, "NOT " * 5000 + "a", "a = " + "- " * 5000 + "1"):
        with pytest.raises(ExpressionSyntaxError, match="nested deeper than 60"):
            compile_expression(deep, contains=False)
    chain = compile_expression("a" + " = TRUE" * 5000, contains=False)
    with pytest.raises(ExpressionEvaluationError, match="too long a chain"):
        chain.evaluate({"a": "true"})


@given(st.text(alphabet="aANOTRDIS=<>'().0159eEL-+/* \n,BWN中&", max_size=30), st.booleans())
def test_any_text_is_compiled_or_refused(text: str, contains: bool) -> None:
    """Whatever a stranger wrote, only the two errors come out."""
    try:
        expression = compile_expression(text, contains=contains)
        assert expression.evaluate({"a": "5", "A": "x"}) in (True, False, None)
    except (ExpressionSyntaxError, ExpressionEvaluationError):
        pass
