"""Check that a statement only reads the table `messages`, on Spark's own parse of it, before anything is run.

Spark runs a command while it makes its DataFrame, and a write may occur anywhere in a statement. So the whole parsed
plan is walked, with every field of every node, and each must be of a kind that ``spark_allowed`` names. Afterwards that
very plan is run, not the text again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession

from reput.source.errors import OptionError
from reput.source.printable import printable
from reput.streaming.sql import spark_allowed as allowed

VIEW = "messages"
_SUBSTITUTE = "spark.sql.variable.substitute"

Scope = frozenset[str]  # names of the statement's own queries (WITH) and of relations beside the table, in lower case


def parse_query(spark: SparkSession, statement: str, relations: Iterable[str] = ()) -> JavaObject:
    """Spark's parsed plan of `statement`, which only reads `messages`.

    `relations` are the names, in lower case, of what else it may read.

    Raises
    ------
    OptionError
        It contains something that is not known to only read.
    PySparkException
        Spark's parser does not understand it.
    """
    session: Any = spark._jsparkSession  # noqa: SLF001  the parser has no Python API
    jvm: Any = spark._jvm  # noqa: SLF001
    jvm.SparkSession.setActiveSession(session)  # the parser uses the settings of this thread's active session
    with _no_substitution(spark):
        plan: JavaObject = session.sessionState().sqlParser().parsePlan(statement)
    check_plan(plan, frozenset(relations))
    return plan


@contextmanager
def _no_substitution(spark: SparkSession) -> Iterator[None]:
    """Leave ``${env:NAME}`` and ``${system:NAME}`` as plain text."""
    before = spark.conf.get(_SUBSTITUTE)
    spark.conf.set(_SUBSTITUTE, "false")
    try:
        yield
    finally:
        spark.conf.set(_SUBSTITUTE, before or "true")


def check_plan(plan: JavaObject, relations: Scope = frozenset()) -> None:
    """Check every node and every value of a parsed plan against what is allowed.

    Raises
    ------
    OptionError
        One is not allowed; its name is in the message.
    """
    is_statement = _class_name(plan) in allowed.STATEMENT_NODES
    todo: list[tuple[Any, Scope]] = _fields(plan, relations) if is_statement else [(plan, relations)]
    nodes = allowed.QUERY_NODES | (allowed.STATEMENT_PARTS if is_statement else frozenset())
    while todo:
        value, scope = todo.pop()
        if isinstance(value, JavaObject):
            todo += _below(value, scope, nodes)


def _below(value: JavaObject, scope: Scope, nodes: frozenset[str]) -> list[tuple[Any, Scope]]:
    """What must be checked inside `value`; raise OptionError if `value` itself is not allowed."""
    name = _class_name(value)
    if name in nodes:
        kind = name.rpartition(".")[2]
        if kind == "Literal":  # a value and its type; a list of thousands of them is common
            return []
        _check_names(kind, value, scope)
        return _queries_of_with(value, scope) if kind == "UnresolvedWith" else _fields(value, scope)
    if name in allowed.PARTS:
        return _elements(value, scope)
    if name.startswith(allowed.COLLECTIONS):
        return _items(value, scope)
    if name in allowed.VALUES or name.startswith(allowed.DATA_TYPES):
        return []
    raise _refused(f"{_words(name)} is not among the statements and expressions that are known to only read")


def _class_name(value: JavaObject) -> str:
    return str(value.getClass().getName())


def _elements(product: JavaObject, scope: Scope) -> list[tuple[Any, Scope]]:
    return [(product.productElement(index), scope) for index in range(product.productArity())]


def _fields(node: JavaObject, scope: Scope) -> list[tuple[Any, Scope]]:
    """A node's fields, with those of its second parameter list."""
    return [*_elements(node, scope), *_items(node.otherCopyArgs(), scope)]


def _items(collection: JavaObject, scope: Scope) -> list[tuple[Any, Scope]]:
    found, iterator = [], collection.iterator()
    while iterator.hasNext():
        found.append((iterator.next(), scope))
    return found


def _queries_of_with(node: JavaObject, scope: Scope) -> list[tuple[Any, Scope]]:
    """A query of WITH sees those before it, and itself if they are recursive; what follows WITH sees all."""
    found: list[tuple[Any, Scope]] = []
    for query, _ in _items(node.cteRelations(), scope):
        name, plan, *more = (value for value, _ in _elements(query, scope))
        known = scope | {_folded(name)}
        found += [(value, known if node.allowRecursion() else scope) for value in (plan, *more)]
        scope = known
    return [*found, (node.child(), scope), *_items(node.otherCopyArgs(), scope)]


def _check_names(kind: str, node: JavaObject, scope: Scope) -> None:
    """Check the table or the function that a node names."""
    if kind == "UnresolvedRelation":
        _check_table(_parts(node.multipartIdentifier()), scope)
        if node.isStreaming() or not node.options().isEmpty():
            raise _refused(f"{VIEW} is read as it is: no stream of it, no options")
    elif kind == "UnresolvedTableOrView":
        _check_table(_parts(node.multipartIdentifier()), frozenset())
    elif kind == "UnresolvedFunction":
        _check_function(_parts(node.nameParts()), allowed.ALLOWED_FUNCTIONS)
    elif kind == "UnresolvedFunctionName":
        _check_function(_parts(node.multipartIdentifier()), allowed.ALLOWED_FUNCTIONS | allowed.TABLE_FUNCTIONS)
    elif kind == "UnresolvedTableValuedFunction":
        _check_function(_parts(node.name()), allowed.TABLE_FUNCTIONS)
    elif kind == "UnresolvedGenerator":
        _check_function(node.name().unquotedString().split("."), allowed.TABLE_FUNCTIONS)


def _check_table(parts: list[str], scope: Scope) -> None:
    if len(parts) != 1 or _folded(parts[0]) not in {VIEW, *scope}:
        name = ".".join(f"`{part}`" for part in parts)
        raise _refused(f"the only table is {VIEW}, besides the statement's own WITH queries; found {name}")


def _check_function(parts: list[str], names: frozenset[str]) -> None:
    if len(parts) != 1 or _folded(parts[0]) not in names:
        raise _refused(f"function {'.'.join(parts)} is not among those that are known to only compute or read here")


def _folded(name: str) -> str:
    """The name in lower case; one beyond ASCII stays as it is, since languages fold it in different ways."""
    return name.lower() if name.isascii() else name


def _parts(names: JavaObject) -> list[str]:
    return [str(name) for name, _ in _items(names, frozenset())]


def _words(class_name: str) -> str:
    return class_name.rpartition(".")[2].partition("$")[0].removeprefix("Unresolved")


def _refused(what: str) -> OptionError:
    return OptionError(f"refused: {printable(what)} (docs/commands/sql.md)")
