"""Check that a statement only reads the table `messages`, on DuckDB's own parse of it, before anything is run.

DuckDB gives its parse of a query as JSON, and of nothing but a query. The whole of it is walked, and each node, name
and function in it must be one that ``duckdb_allowed`` names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from reput.sinks.table.key_filter import KEY_COLUMNS
from reput.source.errors import OptionError
from reput.source.printable import printable
from reput.streaming.sql import duckdb_allowed as allowed

#: The table's name in a statement.
VIEW = "messages"
_EXPLAIN = re.compile(r"\s*EXPLAIN\s+(ANALYZE\s+)?", re.IGNORECASE)
# Where DuckDB's own functions and operators are, as some of its releases spell it out.
_OWN_SCHEMAS = frozenset({"", "main", "system"})
_LIST_HAS = frozenset({"list_contains", "array_contains", "list_has", "array_has"})
# `first_key` is one of the keys as well.
_KEY_TEXTS = frozenset({*KEY_COLUMNS, "first_key"} - {"keys"})

Scope = frozenset[str]  # names of the statement's own queries (WITH) and of relations beside the table, in lower case
Node = Mapping[str, Any]


@dataclass(frozen=True)
class Query:
    """A statement that only reads.

    Attributes
    ----------
    text
        The statement.
    keys
        Each row that it needs has one of these among its keys; None if nothing is known of them.
    """

    text: str
    keys: frozenset[str] | None


def check_query(connection: Any, statement: str, relations: Iterable[str] = ()) -> Query:
    """What `statement` is, which only reads `messages`; DuckDB's `connection` parses it.

    `relations` are the names, in lower case, of what else it may read.

    Raises
    ------
    OptionError
        It contains something that is not known to only read, is no single statement, or DuckDB's parser does not
        understand it.
    """
    if "\0" in statement:
        raise OptionError("the statement has a byte 0")
    explain = _EXPLAIN.match(statement)
    query = statement[explain.end() :] if explain else statement
    # This only parses. `extract_statements` would do what a PRAGMA is for, and open the files of an IMPORT.
    parsed = json.loads(connection.execute("SELECT json_serialize_sql(?)", [query]).fetchall()[0][0])
    if parsed["error"] and parsed["error_type"] == "parser":
        position = None if "position" not in parsed else len(statement) - len(query) + int(parsed["position"])
        raise OptionError(f"cannot run the query: {parsed['error_message']}{_where(statement, position)}")
    if parsed["error"]:
        raise _refused("only queries, and DESCRIBE, SUMMARIZE and EXPLAIN of one, are known to only read")
    if (count := len(parsed["statements"])) != 1:
        raise OptionError("the statement is empty" if count == 0 else _words(f"{count} statements, not one"))
    walk = _Walk()
    walk.check(parsed["statements"][0], frozenset(relations))
    return Query(statement, None if walk.reads_all else frozenset(walk.keys))


def _where(statement: str, position: int | None) -> str:
    """A position in the statement, in words; DuckDB counts its bytes."""
    if position is None:
        return ""
    *lines, last = statement.encode()[:position].decode(errors="ignore").split("\n")
    return f" (line {len(lines) + 1}, column {len(last) + 1})"


class _Walk:
    """A walk over a parsed statement.

    Attributes
    ----------
    reads_all
        Whether the table is read in a place that asks for no key.
    keys
        The keys that other places ask for.
    """

    def __init__(self) -> None:
        self.reads_all = False
        self.keys: set[str] = set()

    def check(self, statement: Node, relations: Scope) -> None:
        todo: list[tuple[Any, Scope, frozenset[str]]] = [(statement, relations, allowed.ALLOWED_FUNCTIONS)]
        while todo:
            value, scope, functions = todo.pop()
            if isinstance(value, list):
                todo += [(each, scope, functions) for each in value]
            elif isinstance(value, dict) and value.get("class") != "CONSTANT":
                self._check_node(value, scope, functions)
                todo += self._below(value, scope)

    def _check_node(self, node: Node, scope: Scope, functions: frozenset[str]) -> None:
        kind, expression = node.get("type"), node.get("class")
        if expression is not None:
            if expression not in allowed.EXPRESSIONS:
                raise _refused(f"{expression} is not among the expressions that are known to only read")
        elif isinstance(kind, str) and kind not in allowed.NODES and not kind.endswith(allowed.TYPE_INFO):
            raise _refused(f"{kind} is not among the parts of a query that are known to only read")
        if "function_name" in node:
            _check_function(node, functions)
        if kind == "BASE_TABLE":
            self._check_table(node, scope)
        elif kind == "SHOW_REF":
            self._check_description(node)
        elif kind == "PIVOT" and any(pivot.get("pivot_enum") for pivot in node.get("pivots") or ()):
            raise _refused("the values of a pivot are given in the statement, not by a type")

    def _check_table(self, node: Node, scope: Scope) -> None:
        _check_table_name(_path(node, "table_name"), scope)
        if node.get("at_clause") is not None:
            raise _refused(f"{VIEW} is read as it is; --at takes another version")
        if _folded(node["table_name"]) not in scope and not node.get(_ASKED):
            self.reads_all = True

    def _check_description(self, node: Node) -> None:
        if node.get("show_type") not in allowed.DESCRIPTIONS:
            raise _refused("what can be shown are the columns of a table or a query: DESCRIBE messages")
        if node.get("query") is None:
            _check_table_name([part.strip('"') for part in _path(node, "table_name")], frozenset())

    def _below(self, node: Node, scope: Scope) -> Iterator[tuple[Any, Scope, frozenset[str]]]:
        """What must be checked inside a node: each query of WITH sees those before it, and itself if it recurs."""
        queries = (node.get("cte_map") or {}).get("map", ())
        for each in queries:
            yield each["value"], scope, allowed.ALLOWED_FUNCTIONS
            scope = scope | {_folded(each["key"])}
        if node.get("type") == "RECURSIVE_CTE_NODE":
            scope = scope | {_folded(node["cte_name"])}
        if node.get("type") == "SELECT_NODE":
            node = self._with_asked(node, scope)
        is_table = node.get("type") == "TABLE_FUNCTION"
        for name, value in node.items():
            if name == "function" and is_table:
                yield value, scope, allowed.TABLE_FUNCTIONS
            elif name != "cte_map":
                yield value, scope, allowed.ALLOWED_FUNCTIONS

    def _with_asked(self, select: Node, scope: Scope) -> Node:
        """The query with its table marked, if all rows that it takes from the table have one of some keys."""
        table = select["from_table"]
        if table.get("type") != "BASE_TABLE" or VIEW in scope or table.get("column_name_alias"):
            return select
        if any(_folded(each.get("alias") or "") in {*_KEY_TEXTS, "keys"} for each in select["select_list"]):
            return select
        for condition in _conditions(select.get("where_clause")):
            if (keys := _keys_of(condition, table.get("alias") or VIEW)) is not None:
                self.keys |= keys
                return {**select, "from_table": {**table, _ASKED: True}}
        return select


# Marks a table of which only rows with certain keys are needed; no name of DuckDB's.
_ASKED = "reput asked"


def _check_function(node: Node, functions: frozenset[str]) -> None:
    *schemas, name = _path(node, "function_name")
    schemas += [node.get("schema") or "", node.get("catalog") or ""]
    if _folded(name) not in functions or not _OWN_SCHEMAS.issuperset(schemas):
        raise _refused(f"function {name} is not among those that are known to only compute or read here")


def _check_table_name(path: list[str], scope: Scope) -> None:
    if len(path) != 1 or _folded(path[0]) not in {VIEW, *scope}:
        name = ".".join(f'"{part}"' for part in path)
        raise _refused(f"the only table is {VIEW}, besides the statement's own WITH queries; found {name}")


def _path(node: Node, name: str) -> list[str]:
    """A name and what it is qualified by, as any release of DuckDB tells it."""
    qualified = (node.get("qualified_name") or {}).get("path")
    before = [node.get(part) for part in ("catalog_name", "schema_name") if node.get(part)]
    return [str(part) for part in qualified or (*before, node[name])]


def _conditions(where: Node | None) -> Iterator[Node]:
    """The conditions all of which a row must meet."""
    if where is None:
        return
    if where.get("type") == "CONJUNCTION_AND":
        for each in _arguments(where):
            yield from _conditions(each)
    else:
        yield where


def _keys_of(condition: Node, table: str) -> frozenset[str] | None:
    """The keys of which a row must have one to meet the condition; None if it asks for none."""
    kind, function = condition.get("type"), condition.get("function_name")
    values = _arguments(condition)
    if function in _LIST_HAS and len(values) == 2:
        column, texts, names = values[0], values[1:], frozenset({"keys"})
    elif kind == "COMPARE_IN" and values:
        column, texts, names = values[0], values[1:], _KEY_TEXTS
    elif kind == "COMPARE_EQUAL":
        column, texts, names = condition["left"], [condition["right"]], _KEY_TEXTS
        if column.get("class") == "CONSTANT":
            column, texts = texts[0], [column]
    else:
        return None
    found = [_text(each) for each in texts]
    keys = frozenset(text for text in found if text is not None)
    return keys if _is_column(column, names, table) and len(found) == len(texts) and None not in found else None


def _is_column(node: Node, names: frozenset[str], table: str) -> bool:
    *qualifier, name = (_folded(part) for part in node.get("column_names") or ("",))
    return node.get("class") == "COLUMN_REF" and name in names and qualifier in ([], [_folded(table)])


def _arguments(node: Node) -> list[Node]:
    """The arguments of a function or an operator, as any release of DuckDB tells them."""
    arguments = node.get("arguments")
    return list(node.get("children") or ()) if arguments is None else [each["expression"] for each in arguments]


def _text(node: Node) -> str | None:
    """The text that an expression is; None if it is anything else."""
    if node.get("class") != "CONSTANT":
        return None
    literal, value = node.get("literal") or {}, node.get("value") or {}
    if literal.get("kind") == "STRING":
        return str(literal["text"])
    is_text = (value.get("type") or {}).get("id") == "VARCHAR" and not value.get("is_null", True)
    return str(value["value"]) if is_text else None


def _folded(name: str) -> str:
    """The name in lower case; one beyond ASCII stays as it is, since languages fold it in different ways."""
    return name.lower() if name.isascii() else name


def _refused(what: str) -> OptionError:
    return OptionError(_words(what))


def _words(what: str) -> str:
    return f"refused: {printable(what)} (docs/commands/sql.md)"
