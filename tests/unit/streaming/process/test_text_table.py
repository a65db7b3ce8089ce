"""A table of text: as it was in a file or a pipe; numbers on the right, and blocks, on a terminal."""

from __future__ import annotations

from reput.streaming.process.text_table import TextTable

NAMES = ("offset", "msg_size", "topic", "keys")
COLUMNS = [[5, 1234567], [12, 1234], ["T", "Topic"], [["a", "b"], []]]


def test_a_pipe_gets_columns_as_they_are() -> None:
    """Never cut or wrapped, and without separators."""
    assert [*TextTable(NAMES).lines(COLUMNS)] == [
        "offset   msg_size  topic  keys",
        "5        12        T      a b",
        "1234567  1234      Topic",
    ]


def test_a_wide_terminal_gets_numbers_on_the_right() -> None:
    """Sizes have separators; offsets, which are copied into options, have none."""
    assert [*TextTable(NAMES, 80).lines(COLUMNS)] == [
        " offset  msg_size  topic  keys",
        "      5        12  T      a b",
        "1234567     1,234  Topic",
    ]


def test_a_narrow_terminal_gets_blocks() -> None:
    """One line for each cell that is not empty; rows that come later have the next numbers, and stay blocks."""
    table = TextTable(NAMES, 28)
    assert [*table.lines(COLUMNS)] == [
        *("row 1", "  offset   | 5", "  msg_size | 12", "  topic    | T", "  keys     | a b"),
        *("row 2", "  offset   | 1234567", "  msg_size | 1,234", "  topic    | Topic"),
    ]
    assert [*table.lines([[1], [2], ["t"], [[]]])] == ["row 3", "  offset   | 1", "  msg_size | 2", "  topic    | t"]
    assert [*table.line_of_its_own([7], "5 bytes\x1b")] == ["row 4", "  offset   | 7", "  5 bytes\\x1b"]


def test_rows_that_do_not_fit_after_rows_that_do() -> None:
    """They are blocks from there on."""
    table = TextTable(("a", "b"), 12)
    assert [*table.lines([[1], ["x"]])] == ["a  b", "1  x"]
    assert [*table.lines([[2], ["long enough"]])] == ["row 2", "  a | 2", "  b | long enough"]
    assert [*table.lines([[3], ["y"]])] == ["row 3", "  a | 3", "  b | y"]
