"""The prompt of `reput sql`: statements one after another, with history and completion."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Final

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from reput.source.errors import ReputError
from reput.source.printable import printable
from reput.streaming.process.interruption import keyboard_interrupts
from reput.streaming.sql.duckdb_check import ALLOWED_FUNCTIONS, VIEW
from reput.streaming.sql.output import ListedResult, Result

HELP: Final = r"""A statement ends with a semicolon; Ctrl-C gives it up.
\d       the columns of messages; \d+ with what they mean
\timing  how long each statement takes, from now on, or no more
\q       the end, as is Ctrl-D"""
_KEYWORDS: Final = [
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP",
    "BY",
    "ORDER",
    "BY",
    "HAVING",
    "LIMIT",
    "OFFSET",
    "DISTINCT",
    "AS",
    "AND",
    "OR",
    "NOT",
    "IN",
    "IS",
    "NULL",
    "LIKE",
    "ILIKE",
    "BETWEEN",
    "CASE",
    "WHEN",
    "THEN",
    "ELSE",
    "END",
    "JOIN",
    "LEFT",
    "RIGHT",
    "ON",
    "USING",
    "UNION",
    "ALL",
    "EXCEPT",
    "INTERSECT",
    "WITH",
    "OVER",
    "PARTITION",
    "BY",
    "QUALIFY",
    "DESC",
    "ASC",
    "INTERVAL",
    "TIMESTAMP",
    "DESCRIBE",
    "SUMMARIZE",
    "EXPLAIN",
    "FILTER",
    "UNNEST",
    "VALUES",
]
_WORD: Final = re.compile(r"[A-Za-z_\\][A-Za-z_0-9]*$")
_TEXT_BEGUN: Final = re.compile(r"'((?:[^']|'')*)$")
_TOPICS_MAX: Final = 10_000

Ask = Callable[[str], AbstractContextManager[Result]]
#: Name, type and comment.
Column = tuple[str, str, str]


def prompt(ask: Ask, write: Callable[[Result, Any], object], columns: Callable[[], list[Column]]) -> None:
    """Read statements from the terminal until its end; `write` shows what `ask` answers.

    The error of a statement is printed, and the next statement may follow. Ctrl-C gives a statement up in the same way.
    """
    session: PromptSession[str] = PromptSession(
        history=_history(),
        completer=_Completer(ask, columns),
        complete_while_typing=False,
        complete_in_thread=True,
        multiline=True,
        prompt_continuation="       -> ",
        key_bindings=_keys(),
    )
    print("A statement ends with a semicolon; \\? tells more.")  # noqa: T201
    is_timed = False
    while True:
        try:
            text = session.prompt("messages> ", handle_sigint=False).strip()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        command = text.rstrip("; ")
        if command in ("\\q", "quit", "exit"):
            return
        if command == "\\timing":
            is_timed = not is_timed
            print(f"Timing is {'on' if is_timed else 'off'}.")  # noqa: T201
        elif command in ("\\d", "\\d+"):
            width = 3 if command == "\\d+" else 2
            _tell(lambda width=width: write(_described(columns(), width), sys.stdout))  # type: ignore[misc]
        elif command.startswith("\\"):
            print(HELP)  # noqa: T201
        elif command:
            began = time.monotonic()
            _tell(lambda text=text: _answer(ask, write, text))  # type: ignore[misc]
            if is_timed:
                print(f"{time.monotonic() - began:.3f} s")  # noqa: T201


def _described(columns: list[Column], width: int) -> Result:
    return ListedResult(("column", "type", "comment")[:width], [column[:width] for column in columns])


def _answer(ask: Ask, write: Callable[[Result, Any], object], text: str) -> None:
    with ask(text) as result:
        write(result, sys.stdout)


def _tell(action: Callable[[], object]) -> None:
    """Run `action`; print its error in one line, and let Ctrl-C end it."""
    try:
        with keyboard_interrupts():
            action()
            sys.stdout.flush()
    except KeyboardInterrupt:
        print("given up", file=sys.stderr)  # noqa: T201
    except ReputError as error:
        print(printable(f"reput: {error}"), file=sys.stderr)  # noqa: T201


class _Completer(Completer):
    """Completes columns, keywords and functions; in a text, topics of the table."""

    def __init__(self, ask: Ask, columns: Callable[[], list[Column]]) -> None:
        self._ask, self._columns = ask, columns

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:  # noqa: ARG002
        """Yield completions for the cursor."""
        before = document.text_before_cursor
        if before.count("'") % 2 and (text := _TEXT_BEGUN.search(before)) is not None:
            yield from self._beginning(text.group(1), self._topics, ending="'")
        elif (word := _WORD.search(before)) is not None:
            yield from self._beginning(word.group(), self._words)

    @staticmethod
    def _beginning(typed: str, words: Iterable[str], ending: str = "") -> Iterator[Completion]:
        for word in words:
            if word.lower().startswith(typed.lower()):
                yield Completion(word + ending, start_position=-len(typed), display=word)

    @cached_property
    def _words(self) -> list[str]:
        functions = [name for name in ALLOWED_FUNCTIONS if name.isidentifier()]
        names = [name for name, _, _ in self._columns()]
        return [VIEW, *names, *dict.fromkeys(_KEYWORDS), *sorted(functions), "\\d", "\\timing", "\\q"]

    @cached_property
    def _topics(self) -> list[str]:
        with self._ask("SELECT DISTINCT topic FROM messages ORDER BY topic") as result:
            topics = [str(topic) for (topic,) in islice(result.rows(), _TOPICS_MAX) if topic is not None]
        return [topic.replace("'", "''") for topic in topics if topic.isprintable()]


def _keys() -> KeyBindings:
    """Have the Enter key end a statement that has its semicolon, and begin a line of any other."""
    keys = KeyBindings()

    @keys.add("enter")
    def _enter(event: KeyPressEvent) -> None:
        text = event.current_buffer.text.strip()
        if not text or text.endswith(";") or text.startswith("\\") or text in ("quit", "exit"):
            event.current_buffer.validate_and_handle()
        else:
            event.current_buffer.insert_text("\n")

    return keys


def _history() -> History:
    """Return the earlier statements; only in memory, if the user's directory takes no file."""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "reput"
    try:
        state.mkdir(parents=True, exist_ok=True)
        path = state / "sql_history"
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600))
    except (OSError, RuntimeError):
        return InMemoryHistory()
    return FileHistory(path)
