"""Text of producers never reaches a terminal raw, and JSON keeps its value."""

import json
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.source.printable import counted, lines_of, printable, printable_json

_UNSAFE = {"Cc", "Cf", "Cs", "Zl", "Zp"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, 中文\u3000, é", "plain, 中文\u3000, é"),
        ("\x1b]52;c;aGk=\x07", "\\x1b]52;c;aGk=\\x07"),
        ("a\nb\rc\td", "a\\nb\\rc\\td"),
        ("\x9b31m", "\\x9b31m"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\u2028", "\\u2028"),
        ("\ud800", "\\ud800"),
        ("\U000e0001", "\\U000e0001"),
    ],
)
def test_unsafe_characters_are_shown_as_escapes(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_every_character_of_an_unsafe_category_is_escaped() -> None:
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    for shown in (printable(every), printable_json(every)):
        assert not {unicodedata.category(character) for character in set(shown)} & _UNSAFE


@given(st.recursive(st.text(st.characters()), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_keeps_its_value(value: object) -> None:
    assert json.loads(printable_json(value)) == value


def test_a_line_of_json_ends_where_json_says() -> None:
    """Other characters that end a line for Python stay in JSON's texts, where another program wrote them."""
    ends = [one for one in map(chr, range(sys.maxunicode + 1)) if len(f"a{one}b".splitlines()) > 1]
    assert "\u2028" in ends
    values = [{"topic": f"a{one}b"} for one in ends]
    text = "\n".join(json.dumps(value, ensure_ascii=False) for value in values)
    assert [json.loads(line) for line in lines_of(f"{text}\n\n")] == values
    assert not any(len(printable(f"a{one}b").splitlines()) > 1 for one in ends)


@pytest.mark.parametrize(
    ("shown", "told"),
    [
        (counted(1, "message"), "1 message"),
        (counted(0, "message"), "0 messages"),
        (counted(2, "batch"), "2 batches"),
        (counted(1, "batch"), "1 batch"),
        (counted(3, "entry"), "3 entries"),
        (counted(3, "key"), "3 keys"),
        (counted(2, "index"), "2 indexes"),
        (counted(1234, "row", form=","), "1,234 rows"),
        (counted(2, "child", "children"), "2 children"),
    ],
)
def test_a_number_with_its_noun(shown: str, told: str) -> None:
    assert shown == told
