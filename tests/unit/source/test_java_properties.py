"""Java's properties files; that all are read as by Java itself is proved in tests/broker/test_settings.py."""

from __future__ import annotations

import pytest

from reput.streaming.config.broker_conf import load_properties


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"a=1", {"a": ("1", 1)}),
        (b"\n\n# c\r\n  a : 1 \r\rb 2", {"a": ("1 ", 4), "b": ("2", 6)}),
        (b"a=1\na=2", {"a": ("2", 2)}),
        (b"a = b\\\n   c\\\r\n\td", {"a": ("bcd", 1)}),
        (b"# \\\na=1", {"a": ("1", 2)}),
        (b"! \xd6\xd0\na=\xe9", {"a": ("\xe9", 2)}),
        (b"\\u0061\\:\\=\\ b=\\t\\u4e2d", {"a:= b": ("\t\u4e2d", 1)}),
        (b"\\\n#a=1\nb=2", {"b": ("2", 3)}),
        (b"  \\\r\n \\\n! c\\\na=1", {"a": ("1", 4)}),
        (b"#\\u00zz\na", {"a": ("", 2)}),
        (b"\xef\xbb\xbfa=1", {"\xef\xbb\xbfa": ("1", 1)}),
        (b"a=1\\", {"a": ("1", 1)}),
        (b"a=\\\n\nb=2", {"a": ("", 1), "b": ("2", 3)}),
    ],
)
def test_what_a_file_says(data: bytes, expected: dict[str, tuple[str, int]]) -> None:
    """Names, values as they are with their blanks, and lines."""
    assert {name: (entry.value, entry.line) for name, entry in load_properties(data).items()} == expected


def test_what_java_refuses() -> None:
    """The error about a malformed escape has its line."""
    with pytest.raises(ValueError, match=r"^line 2: "):
        load_properties(b"a=1\nb=\\u12\n")


def test_a_file_of_backslashes() -> None:
    """A megabyte of them takes no time to speak of."""
    assert load_properties(b"\\\n" * 500_000) == {}
    assert load_properties(b"a=" + b"\\\n" * 500_000)["a"].value == ""
