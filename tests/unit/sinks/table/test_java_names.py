from __future__ import annotations

from reput.sinks.table.java_names import JavaNames


class Package:
    """A package of py4j's, which asks the JVM for each part of a name."""

    def __init__(self, name: str, asked: list[str]) -> None:
        self._name = name
        self._asked = asked

    def __getattr__(self, part: str) -> Package:
        name = f"{self._name}.{part}".lstrip(".")
        self._asked.append(name)
        return Package(name, self._asked)


def test_a_name_is_looked_up_once() -> None:
    asked: list[str] = []
    names = JavaNames(Package("", asked), "java")
    first = names("util.Optional.of")
    assert asked == ["java", "java.util", "java.util.Optional", "java.util.Optional.of"]
    assert names("util.Optional.of") is first
    assert len(asked) == 4
    assert names("util.Optional.empty") is not first
