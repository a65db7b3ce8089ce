"""`reput ask`: a command for each of the named questions, made from the comment of its file."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from reput.source.errors import OptionError, UnknownNameError
from reput.source.options import shown
from reput.source.printable import printable_json
from reput.streaming.ask.question import Parameter, Question, questions
from reput.streaming.cli.app import MissingOptionError, app
from reput.streaming.cli.options import Json, LogConfig, StoreIfGiven
from reput.streaming.cli.sql import OLD_NAMES, Asking

if TYPE_CHECKING:
    from reput.streaming.config.pipeline import PipelineConfig
    from reput.streaming.sql.output import Relations

ask = app.group("ask", "Answer named questions about the message table.", invoke_without_command=True)

_BROKER: Final = "broker"
_CONSUMER_OFFSETS: Final = "consumer_offsets"
_COPIES: Final = "copies"
_CONSUMPTION: Final = "consumption"
_CONSUMED: Final = "consumed"
_EVIDENCE: Final = "evidence"
_METAVARS: Final = {"text": "<text>", "integer": "<number>", "time": "<time>"}
# Every question that takes a key also takes a unique key; `reput query` tells them apart.
_OTHER_NAMES: Final = {**OLD_NAMES, "--uniq-key": "--key"}
_TIME_HELP: Final = " A time is 2026-01-31T12:00:00Z, milliseconds, or how long ago: 30m, 2h, 7d."


@ask.callback()
def about(context: typer.Context, as_json: Json = False) -> None:
    """Answer named questions about the message table; without a name, list the questions."""
    if context.invoked_subcommand is not None:
        return
    width = max(map(len, questions()))
    for name, question in questions().items():
        named = {"question": name, "summary": question.summary}
        typer.echo(printable_json(named) if as_json else f"{name.ljust(width)}  {question.title}")


@dataclass(frozen=True)
class _Wish:
    """The form of the answer: the statement alone, rows, or a plan to replay messages with a file of bodies."""

    shows_sql: bool
    plans: bool
    bodies: Path | None


def _command_of(question: Question) -> Callable[..., None]:
    """Return the function of a question's command, with its own options and those that all questions have."""

    def command(
        context: typer.Context,
        asking: Asking,
        settings: LogConfig,
        store: StoreIfGiven = None,
        show_sql: Annotated[
            bool, typer.Option("--show-sql", help="Print the statement, as 'reput sql' takes it, and run nothing.")
        ] = False,
        plan: Annotated[
            bool, typer.Option("--plan", help="Print the messages that are found as ranges of queue offsets.")
        ] = False,
        bodies: Annotated[
            Path | None,
            typer.Option(help="Write the messages with their bodies to this file; with --plan and --store."),
        ] = None,
        **given: str | None,
    ) -> None:
        if asking.table is None and not show_sql:
            raise MissingOptionError("--table", context)
        config = None
        if store is not None:
            from reput.streaming.config.stored_sizes import Kind, read_by_files  # noqa: PLC0415

            config = settings.load(store, only_reads=True, knows_rocksdb=True, reads_backup=True)
            config = read_by_files(config, config.store, (Kind.SEGMENT,))
        _answer(question, asking, given, config, _Wish(show_sql, plan, bodies))

    command.__signature__ = _signature(command, question)  # type: ignore[attr-defined]
    return command


def _signature(command: Callable[..., None], question: Question) -> inspect.Signature:
    """Return the parameters of `command`, with those of the question in place of its keywords."""
    shared = inspect.signature(command, eval_str=True).parameters.values()
    own = [
        inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, **_option(each)) for each in question.parameters
    ]
    named = [each.replace(kind=each.KEYWORD_ONLY) for each in shared if each.kind is not each.VAR_KEYWORD]
    return inspect.Signature([*own, *named])


def _option(parameter: Parameter) -> dict[str, Any]:
    """Return the annotation and the default of a parameter's option."""
    words = parameter.meaning[:1].upper() + parameter.meaning[1:]
    words += _TIME_HELP if parameter.kind == "time" else ""
    words += f" [default: {parameter.default}]" if parameter.default is not None else ""
    shown = typer.Option(metavar=_METAVARS[parameter.kind], help=words)
    if parameter.is_required:
        return {"annotation": Annotated[str, shown]}
    return {"annotation": Annotated[str | None, shown], "default": None}


def _answer(
    question: Question,
    asking: Asking,
    given: Mapping[str, str | None],
    store: PipelineConfig | None,
    wish: _Wish,
) -> None:
    """Run a question and print its rows, or print its statement."""
    from reput.streaming.ask.values import statement_of, values_of, with_relations  # noqa: PLC0415  not for --help
    from reput.streaming.sql.output import AnsweredResult  # noqa: PLC0415

    if wish.bodies is not None and (store is None or not wish.plans):
        raise OptionError("--bodies FILE goes with --plan and --store, which has the bodies")
    if store is not None and asking.table is not None and given.get(_BROKER) is None:
        from reput.streaming.ask.relations import broker_of  # noqa: PLC0415

        given = {**given, _BROKER: broker_of(asking.table, store)}
    values = values_of(question, given, lambda: datetime.now(timezone.utc))
    statement = statement_of(question, values, for_spark=asking.for_spark)
    relations = _relations(question, asking, store, wish, values) if question.reads else {}
    if wish.shows_sql:
        typer.echo(with_relations(statement, relations, for_spark=asking.for_spark), nl=False)
        return

    def check_names() -> None:
        _check_names(question, asking, values, store, relations)

    if question.name == _CONSUMED:
        _check_group(question, asking, values, store, relations)
    with asking.ask(statement, relations) as asked:
        result = AnsweredResult(asked, check_names)
        if not wish.plans:
            with asking.destination() as out:
                asking.show(result, out)
            return
        found = list(result.rows())
        names = result.names
    from reput.streaming.ask.replay import replay_plan, write_messages  # noqa: PLC0415

    with asking.destination() as out:
        asking.show(replay_plan(names, found), out)
    if wish.bodies is not None:
        assert store is not None
        _note(write_messages(wish.bodies, asking.table, names, found, store))


def _check_names(
    question: Question,
    asking: Asking,
    values: Mapping[str, Any],
    store: PipelineConfig | None,
    relations: Relations,
) -> None:
    """Raise UnknownNameError if the answer is empty because a name is unknown, or a group has no offsets."""
    from reput.streaming.ask.known_names import BROKER, GROUP, TOPIC, check_offsets  # noqa: PLC0415  not for --help

    given = {name: values.get(name) for name in (BROKER, TOPIC, GROUP)}
    if question.name == _CONSUMED:  # each message has a row
        when = "" if values.get("since") is None and values.get("until") is None else " in that time"
        words = f"no message of the table that consumers can get has the key or id {shown(str(values['key']))}{when}"
        raise UnknownNameError(f"nothing found: {words}")
    if _CONSUMPTION in question.reads:
        _note_first_seen(asking, given[GROUP])
    if not any(given.values()):
        return
    _check_known(question, asking, given, store)
    if _CONSUMER_OFFSETS in question.reads:
        check_offsets(relations[_CONSUMER_OFFSETS], given)


def _note_first_seen(asking: Asking, group: str | None) -> None:
    """Say since when offsets are known: an empty answer about an earlier time does not mean that nothing happened."""
    from reput.streaming.ask.relations import first_seen  # noqa: PLC0415  not for --help

    if (time := first_seen(asking.table, group)) is not None:
        whose = "consumer groups" if group is None else f"the consumer group {shown(group)}"
        _note(f"offsets of {whose} are known from {time:%Y-%m-%d %H:%M:%S} UTC on")


def _check_group(
    question: Question,
    asking: Asking,
    values: Mapping[str, Any],
    store: PipelineConfig | None,
    relations: Relations,
) -> None:
    """Raise UnknownNameError if the group of `consumed` is unknown: its answer would still have a row for the group."""
    from reput.streaming.ask.known_names import GROUP  # noqa: PLC0415  not for --help

    group, told = values.get(GROUP), set(relations[_EVIDENCE]["consumer_group"].to_pylist()) - {None}
    groups = {*relations[_CONSUMPTION]["consumer_group"].to_pylist(), *told}
    is_watched = told or relations[_COPIES]["seen_until"].drop_null()
    if group is not None and is_watched and group not in groups:
        _check_known(question, asking, {GROUP: group}, store, told)


def _check_known(
    question: Question,
    asking: Asking,
    given: Mapping[str, Any],
    store: PipelineConfig | None,
    told: Iterable[str] = (),
) -> None:
    """Raise UnknownNameError if a name is unknown; groups that are `told` of in another place are known."""
    from reput.streaming.ask.known_names import GROUP, add_consumption, known_names  # noqa: PLC0415  not for --help

    advice = (
        "the table only names groups that sent messages back; give --store to look in the broker's configuration, too"
    )
    known = known_names(asking.table, store, at=asking.version)
    known.names[GROUP].update(told)
    if _CONSUMPTION in question.reads:
        add_consumption(known, asking.table)
    known.check(given, advice if store is None and given.get(GROUP) else None)


def _relations(
    question: Question, asking: Asking, store: PipelineConfig | None, wish: _Wish, values: Mapping[str, Any]
) -> Relations:
    """Return the relations that the question reads; empty ones for a statement that is only shown, without a store."""
    from reput.streaming.ask.relations import empty_relations, relations_of  # noqa: PLC0415

    if wish.shows_sql and (store is None or asking.table is None):
        return empty_relations(question)
    return relations_of(question, asking.table, store, _note, values, asking.version)


def _note(text: str) -> None:
    from reput.source.printable import printable  # noqa: PLC0415

    sys.stdout.flush()
    typer.echo(printable(f"reput: {text}"), err=True)


def _help(question: Question) -> str:
    reads = [f"Also reads {', '.join(question.reads)} (docs/commands/ask.md)."] if question.reads else []
    return "\n\n".join([f"{question.summary}.", *reads, *question.notes])


for _question in questions().values():
    ask.command(_question.name, help=_help(_question), short_help=_question.title, old_names=_OTHER_NAMES)(
        _command_of(_question)
    )
