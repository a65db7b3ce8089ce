"""The page docs/table-layouts.md, made from the results of ``table_layouts`` alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks import machine

_HEAD = """\
# Layouts of the table

The same messages in four layouts. Everything on this page is written by the command that measured it:

```console
$ PYTHONPATH=tests .venv/bin/python -m benchmarks.table_layouts --work .work/layouts --docs docs --messages {messages}
```

* **reput's own**: files in the order of time, merged a day at a time, sorted by topic inside.
* **partitioned by day**: a column `day`, a directory for each; files sorted by topic inside.
* **liquid clustering** and **Z-order**: by topic and store time, by Spark's OPTIMIZE.

{messages:,} messages of 100 topics over {days} days; {loaded_files} files before the upkeep.
"""

_DECIDES = """\
## The choice

The tables above are measured. The conclusion is a choice:

1. **The widest readers and writers** come first: a tool cannot use a table that it cannot read. See the
   protocol, its features, and the tools that could use the table.
2. **The cost of the upkeep** is paid every day, by the process that also keeps the queues: seconds and bytes written a
   million messages. reput's own upkeep also works in small steps between two commits; the others are one job each,
   with Spark's fixed cost of a job, which is a large part with few messages.
3. **Files and bytes read** are the cost of every query. Seconds on one machine with a warm page cache say less
   than bytes about a colder or larger one.

The unique keys of this log rise with time, as those of one client do; with many clients they are less in order, and
fewer row groups can be left out.
"""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _mib(size_bytes: float) -> str:
    return f"{size_bytes / 2**20:.1f}" if size_bytes < 100 * 2**20 else f"{size_bytes / 2**20:,.0f}"


def _part(read: int, there: int) -> str:
    return f"{read:,} of {there:,}"


def _cost(layouts: list[dict[str, Any]]) -> str:
    head = ("layout", "s a million", "MiB written a million", "files", "bytes a message")
    rows = (
        (
            *(each["layout"], f"{each['upkeep_s_a_million']:.1f}", _mib(each["upkeep_bytes_a_million"])),
            *(f"{each['files']:,}", f"{each['bytes_a_message']:.1f}"),
        )
        for each in layouts
    )
    return f"## Cost of the upkeep\n\nMeasured, from the small files to the layout.\n\n{_table(head, rows)}"


def _questions(layouts: list[dict[str, Any]]) -> str:
    text = (
        "## Files and bytes read\n\nFiles, row groups and MiB are counted by the statistics in the table, for the "
        "columns that the question\nneeds; seconds are measured, the best of three. `reput query --table` first asks "
        "the key filters beside the files of\nreput's own layout, and opens a file or two for a key; that is not "
        "counted here.\n"
    )
    head = ("layout", "files", "row groups", "MiB", "Spark s", "deltalake s")
    for number, question in enumerate(layouts[0]["questions"]):
        found = [(each["layout"], each["questions"][number]) for each in layouts]
        rows = (
            (
                *(name, _part(seen["files"], seen["of_files"]), _part(seen["row_groups"], seen["of_row_groups"])),
                *(_mib(seen["bytes"]), f"{seen['spark_s']:.2f}", f"{seen['deltalake_s']:.2f}"),
            )
            for name, seen in found
        )
        text += f"\n**{question['question']}**: {question['rows']:,} rows\n\n{_table(head, rows)}"
    return text


def _retention(layouts: list[dict[str, Any]]) -> str:
    head = ("layout", "files removed", "files written", "MiB written", "seconds")
    rows = (
        (
            each["layout"],
            f"{day['removed']:,}",
            f"{day['written']:,}",
            _mib(day["bytes_written"]),
            f"{day['seconds']:.1f}",
        )
        for each, day in ((each, each["oldest_day"]) for each in layouts)
    )
    return f"## Dropping the oldest day\n\nMeasured, by DELETE in Spark.\n\n{_table(head, rows)}"


def _users(layouts: list[dict[str, Any]], versions: dict[str, str]) -> str:
    head = ("", *(each["layout"] for each in layouts))
    rows = [
        ("protocol", *(each["protocol"] for each in layouts)),
        ("features", *(", ".join(each["features"]) or "none" for each in layouts)),
        *((name, *(each["users"][name].partition(":")[0] for each in layouts)) for name in layouts[0]["users"]),
    ]
    refusals = [
        f"* {each['layout']}, {name}: {said.replace('`', '').removeprefix('no: ')[:200]}\n"
        for each in layouts
        for name, said in each["users"].items()
        if said != "yes"
    ]
    tried = ", ".join(f"{name} {version}" for name, version in versions.items())
    text = f"## Who can use it\n\nMeasured: each was tried on the table, with {tried}.\n\n{_table(head, rows)}"
    return text + ("\nTheir messages:\n\n" + "".join(refusals) if refusals else "")


def page(facts: dict[str, Any]) -> str:
    """The whole page."""
    layouts = facts["layouts"]
    parts = [
        _HEAD.format(messages=facts["messages"], days=facts["days"], loaded_files=facts["loaded_files"]).replace(
            f"--messages {facts['messages']:,}", f"--messages {facts['messages']}"
        ),
        f"Measured: {machine.sentence(facts['machine'])}.\n",
        _users(layouts, facts["versions"]),
        _cost(layouts),
        _questions(layouts),
        _retention(layouts),
        _DECIDES,
    ]
    return "\n".join(parts)
