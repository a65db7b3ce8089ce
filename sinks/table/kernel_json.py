"""Rows of Kernel's as JSON, as Kernel writes them."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from reput.sinks.table.java_names import JavaNames

_JSON = "defaults.internal.json.JsonUtils"
# Characters that py4j sends in one write of its 8 KiB, whatever they are: four bytes each, and some are escaped.
_PIECE = 1500


class KernelJson:
    """Turns a row of Kernel's into text."""

    def __init__(self, java: JavaNames, kernel: JavaNames, engine: Any) -> None:
        """`java` and `kernel` are the packages ``java`` and ``io.delta.kernel``."""
        self._java = java
        self._kernel = kernel
        self._engine = engine

    def of(self, row: Any) -> str:
        """The text of a row; where that may have more than 8 KiB, `of_long` is quicker."""
        return str(self._kernel(f"{_JSON}.rowToJson")(row))

    def of_long(self, row: Any) -> str:
        """The text of a row, fetched in pieces.

        py4j sends an answer of more than 8 KiB in two writes, and TCP keeps the second back until the first is
        acknowledged, which takes 40 ms.
        """
        arguments = self._java("util.ArrayList")()
        arguments.add(row)
        text = self._to_builder.invokeWithArguments(arguments)
        start, length, pieces = 0, text.length(), []
        while start < length:
            left = text.codePointCount(start, length)
            end = text.offsetByCodePoints(start, min(left, _PIECE))
            pieces.append(text.substring(start, end))
            start = end
        return "".join(pieces)

    @cached_property
    def _to_builder(self) -> Any:
        """A ``MethodHandle`` that makes a ``StringBuilder`` of a row: a ``String`` would be sent as a whole."""
        load = self._engine.getClass().getClassLoader().loadClass
        text, row = load("java.lang.String"), load("io.delta.kernel.data.Row")
        lookup = self._java("lang.invoke.MethodHandles.publicLookup")()
        typed = self._java("lang.invoke.MethodType.methodType")
        to_json = lookup.findStatic(load(f"io.delta.kernel.{_JSON}"), "rowToJson", typed(text, row))
        builder = lookup.findConstructor(load("java.lang.StringBuilder"), typed(self._java("lang.Void.TYPE"), text))
        return self._java("lang.invoke.MethodHandles.filterReturnValue")(to_json, builder)
