"""The options that give every command its settings, and the configuration made of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reput.streaming.process.submission import submit_gateway

if TYPE_CHECKING:
    from reput.streaming.config.pipeline import PipelineConfig

_MASTER = "sparkmaster="

BrokerConf = Annotated[
    Path | None, typer.Option(help="The broker's broker.conf: sizes, delay levels, index switches, paths.")
]
DLedger = Annotated[
    bool, typer.Option("--dledger", help="The log is DLedger's; same as -o enableDLegerCommitLog=true.")
]
ConfigFile = Annotated[
    Path | None, typer.Option(help="A file like conf/reput.toml; broker.conf and the command line beat it.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", help="name=value, any option of conf/reput.toml; may be repeated."),
]


def settings_of(
    store: Path,
    config: Path | None,
    broker_conf: Path | None,
    option: Sequence[str] | None,
    *,
    dledger: bool,
    output: Path | None = None,
    makes_all: bool = False,
    only_reads: bool = False,
) -> PipelineConfig:
    """A command's configuration; the arguments are its options of these names.

    The last three, and the errors, are those of ``load_config``.
    """
    from reput.streaming.config.pipeline import load_config  # noqa: PLC0415  --help need not wait for the modules

    return load_config(
        store,
        config_file=config,
        broker_conf=broker_conf,
        overrides=overrides_of(option, dledger=dledger),
        output=output,
        makes_all=makes_all,
        only_reads=only_reads,
    )


def overrides_of(option: Sequence[str] | None, *, dledger: bool) -> list[str]:
    """The settings that a command line states, as ``name=value``.

    Where ``spark-submit`` started this process its master counts as one that was given on the command line, unless
    `option` has another.
    """
    overrides = [*(option or ()), *(["enableDLegerCommitLog=true"] if dledger else [])]
    if submit_gateway() is not None and not any(text.lower().startswith(_MASTER) for text in overrides):
        from reput.streaming.spark.submitted import submitted_master  # noqa: PLC0415

        overrides.append(f"{_MASTER}{submitted_master()}")
    return overrides
