"""The statements in Spark's grammars and registries, for `reput sql` to run or refuse."""

from __future__ import annotations

import re
from typing import Any

from pyspark.sql import SparkSession

SPARK_PARSER = "org.apache.spark.sql.catalyst.parser.SqlBaseParser"
DELTA_PARSER = "io.delta.sql.parser.DeltaSqlBaseParser"
# Rules each of whose alternatives is a kind of statement.
_STATEMENT_RULES = {
    "StatementContext",
    "SetResetStatementContext",
    "SetStatementInsideSqlScriptContext",
    "DmlStatementNoWithContext",
    "InsertIntoContext",
    "QuerySpecificationContext",
}
# Statements lie this deep below the root of a parse at most, those of scripts included.
_DEPTH_MAX = 9


def statement_classes(spark: SparkSession, parser: str) -> set[str]:
    """The kinds of statement that a generated parser knows, as it names them."""
    loader = spark._jsparkSession.sessionState().sqlParser().getClass().getClassLoader()
    rules = {one.getSimpleName(): one.getSuperclass().getSimpleName() for one in _contexts(loader, parser)}
    named = {name for name in rules if name.endswith("StatementContext")}
    alternatives = {name for name, rule in rules.items() if rule in _STATEMENT_RULES}
    return (named | alternatives) - set(rules.values())  # a rule of alternatives is not a statement itself


def _contexts(loader: Any, parser: str) -> list[Any]:
    return [one for one in loader.loadClass(parser).getDeclaredClasses() if one.getSimpleName().endswith("Context")]


def classes_of(spark: SparkSession, parser: str, statement: str) -> set[str]:
    """Those of a statement, by the parser's own tree; none where it does not understand it."""
    package: Any = spark._jvm
    for part in parser.split(".")[:-1]:
        package = getattr(package, part)
    name = parser.rpartition(".")[2]
    antlr = spark._jvm.org.antlr.v4.runtime  # type: ignore[union-attr]
    upper = spark._jvm.org.apache.spark.sql.catalyst.parser.UpperCaseCharStream  # type: ignore[union-attr]
    lexer = getattr(package, name.replace("Parser", "Lexer"))(upper(antlr.CharStreams.fromString(statement)))
    lexer.removeErrorListeners()
    tree = getattr(package, name)(antlr.CommonTokenStream(lexer))
    tree.removeErrorListeners()
    root = tree.compoundOrSingleStatement() if parser == SPARK_PARSER else tree.singleStatement()
    found: set[str] = set()
    todo = [(root, 0)]
    while todo:
        node, depth = todo.pop()
        found.add(node.getClass().getSimpleName())
        if depth < _DEPTH_MAX:
            todo += [(node.getChild(index), depth + 1) for index in range(node.getChildCount())]
    return found if tree.getNumberOfSyntaxErrors() == 0 else set()


def registered_functions(registry: Any) -> dict[str, Any]:
    """The functions in one of Spark's registries: what it knows of each, by name."""
    names = registry.listFunction().iterator()
    found = {}
    while names.hasNext():
        name = names.next()
        found[name.funcName()] = registry.lookupFunction(name).get()
    return found


def examples_of(function: Any) -> list[str]:
    """The statements that Spark's own documentation shows for a function."""
    return re.findall(r"^\s*> (.*?);?\s*$", function.getExamples(), re.MULTILINE)
