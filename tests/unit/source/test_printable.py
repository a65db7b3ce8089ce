"""Text of producers never reaches a terminal raw, and JSON keeps its value."""

import json
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.source.printable import printable, printable_json

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
