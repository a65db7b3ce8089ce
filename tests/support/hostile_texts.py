"""Texts that might end a literal in a statement, in one dialect of SQL or another."""

from __future__ import annotations

HOSTILE_TEXTS = (
    "'",
    "''",
    '"',
    "\\",
    "\\'",
    "'\\''",
    "x' OR '1' = '1",
    "x\\' OR 1 = 1 --",
    "x'; DROP TABLE messages; --",
    "\\u0027 OR 1 = 1",
    "\\047",
    "%_",
    ":topic",
    "$1 ? ${env:HOME} {{x}}",
    "-- x\n' /* */",
    "line\r\nend\t\x1b[31m\x7f",
    "`x` $$x$$ E'x' r'x' X'00'",
    "\u2028\u202e\ufeff\U0001f600",
    "ab\u0301c",
)
