"""Patterns of speech that make a reader read twice, counted: ``PYTHONPATH=tests python -m support.english [PATH ...]``.

Only patterns that can be matched with few mistakes are here. Code that is quoted in a text is not read.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from support.command_line import APPLICATION
from support.pages import PAGES, prose
from support.paths import ROOT

#: Each pattern by what to write in its place.
PATTERNS: Final = {
    "so many, so much: name the number": r"\bso (?:many|much)\b(?![^.;:]*\bthat\b)",
    "whoever, nobody, somebody: name the actor": r"\b(?:whoever|whomever|nobody|somebody)(?:'s)?\b",
    "goes on, gets on, waits on: continues, succeeds, keeps waiting": r"\b(?:go(?:es|ing|ne)?|went|gets?|waits?) on\b",
    "stands: is": r"\b(?:stands?|stood)\b(?! (?:for|still|out)\b|-)",
    "is there, is away: exists, cannot be reached": r"\b(?:is|are|was|were) (?:there|away)\b(?! (?:an?|any|to)\b)",
    "behind: after": r"\bbehind (?:the (?:last|first|end|good|hole|damage|cut|name|command|path)|a hole|damage|it|them"
    r"|that|what|which)\b",
    "anew, besides, as well: again, also": r"\b(?:anew|besides|as well(?=[.,;:)]|$))",
    "is no X: is not an X": r"(?<!there )\b(?:is|are|was|were) (?:no|none)\b"
    r"(?! (?:longer|more|less|fewer|later|earlier|larger|one)\b)",
    "What ...: a noun or a verb": r"(?:^#+ |^[*-] |^\d\. |(?<=[.:] )|^)What\b(?=[^?]*(?:\.\s|\.$|$|\|))",
    "is told, is said: reput prints, reports": r"\b(?:is|are|was|were) (?:told|said)\b",
    "what is behind: the cause": r"\bwhat (?:is|was|lies) behind\b",
    "neither at the end: not ... either": r"\bneither(?=[.;])",
}
_MATCHERS: Final = {
    name: re.compile(pattern, re.IGNORECASE if "What" not in name else 0) for name, pattern in PATTERNS.items()
}
_SPAN: Final = re.compile(r"``[^`]+``|`[^`]+`|\"[^\"\n]*\"")


def found_in(text: str) -> list[tuple[str, str]]:
    """Each match in a text: its pattern, and the words around it."""
    found = []
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[*\-#|]|\d\.) ?)", text):
        line = _SPAN.sub("`x`", " ".join(paragraph.split()))
        for name, matcher in _MATCHERS.items():
            matches = matcher.finditer(line)
            found += [(name, line[max(each.start() - 40, 0) : each.end() + 40]) for each in matches]
    return found


def docstrings(path: Path) -> str:
    """The docstrings of a module, a paragraph each."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    holders = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, holders))
    return "\n\n".join(text for text in texts if text)


def comments(path: Path) -> str:
    """The comments of a module, a paragraph each; those on consecutive lines of their own are one."""
    source = path.read_text(encoding="utf-8")
    lines, blocks, last = source.splitlines(), list[list[str]](), -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or token.string.startswith(("# noqa", "# type:", "# ---")):
            continue
        number = token.start[0]
        is_alone = lines[number - 1].lstrip().startswith("#")
        if not is_alone or number != last + 1:
            blocks.append([])
        blocks[-1].append(token.string.lstrip("#:").strip())
        last = number if is_alone else -1
    return "\n\n".join("\n".join(block) for block in blocks)


def messages(path: Path) -> str:
    """The phrases that a module's code holds, a paragraph each: messages, reasons of options, texts of pages.

    A phrase is a literal with a blank that is not a docstring; ``{}`` takes the place of values.
    """
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    alone = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    alone |= {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    phrases = []
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            phrases.append("".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            phrases.append(node.value)
    return "\n\n".join(phrase for phrase in phrases if " " in phrase.strip())


def help_texts(command: Any) -> Iterator[str]:
    """Yield the help of a command, of its options, and of the commands below it."""
    yield command.help or ""
    yield from (each.help or "" for each in command.params if hasattr(each, "help"))
    for each in getattr(command, "commands", {}).values():
        yield from help_texts(each)


def texts() -> Iterator[tuple[str, str]]:
    """Every text that is counted: where it is, by its path from the root, and its words."""
    for page in PAGES:
        yield str(page.relative_to(ROOT)), prose(page)
    yield "help", "\n\n".join(help_texts(APPLICATION))
    options = (ROOT / "conf" / "reput.toml").read_text(encoding="utf-8").replace("\n#   ", " ")
    yield "conf/reput.toml", options.replace("# ", "")
    for folder in ("reput", "source", "sinks", "streaming", "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield str(path.relative_to(ROOT)), f"{docstrings(path)}\n\n{comments(path)}"
            if folder != "tests":
                yield f"messages/{path.relative_to(ROOT)}", messages(path)


def main(chosen: list[str]) -> None:
    """Print the matches in the chosen files or folders; without any, the counts of all."""
    counts: Counter[tuple[str, str]] = Counter()
    for place, text in texts():
        matches = found_in(text)
        if any(place == name or place.startswith(f"{name}/") for name in chosen):
            for name, words in matches:
                print(f"{place}: {name}\n    {words}")
        kind = "help" if place == "help" else "pages" if place.endswith(".md") else "code"
        kind = "messages" if place.startswith("messages/") else kind
        counts.update((kind, name) for name, _ in matches)
    if not chosen:
        for (kind, name), number in sorted(counts.items()):
            print(f"{kind:10} {number:5} {name}")
        print(f"all        {counts.total():5}")


if __name__ == "__main__":
    main(sys.argv[1:])
