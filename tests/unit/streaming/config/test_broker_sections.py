"""Sections ``[[broker]]`` of the configuration file: what they may say, and what beats what for each broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from reput.source.errors import OptionError
from reput.streaming.config.config_file import Configuration, check_names
from reput.streaming.config.pipeline import PIPELINE_OPTIONS, load_config, load_process_options
from reput.streaming.config.run_options import OF_PROCESS


def file_of(root: Path, *sections: str, top: str = "") -> Path:
    """A file with sections, of brokers `a`, `b`, ..., each with a store and an output below `root`, and more lines."""
    text = top
    for name, more in zip("abcdef", sections, strict=False):
        (root / name / "store" / "commitlog").mkdir(parents=True, exist_ok=True)
        text += f'\n[[broker]]\nstore = "{root}/{name}/store"\noutput = "{root}/{name}/out"\n{more}\n'
    path = root / "brokers.toml"
    path.write_text(text)
    return path


def test_a_section_beats_broker_conf_and_the_command_line_beats_it(tmp_path: Path) -> None:
    """Four places in their order, each with a value that only it, or it and those before it, have."""
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName=of-conf\nmaxIndexNum=22\nmaxHashSlotNum=22\n")
    path = file_of(
        tmp_path,
        f'brokerConf = "{conf}"\nMAXHASHSLOTNUM = 33\nonDamage = "quarantine"',
        'broker = "broker-b"\nmaxIndexNum = 333',
        top="maxIndexNum = 11\nmaxHashSlotNum = 11\ntailGuardMs = 11\nonDamage = 'broker'\nretryForMs = 11\n",
    )
    first = load_config(tmp_path / "a" / "store", config_file=path, overrides=["retryForMs=44"])
    assert (first.broker.name, first.index.max_index_num, first.index.max_hash_slot_num) == ("of-conf", 22, 33)
    assert (first.source.tail_guard_ms, first.source.on_damage, first.tail.retry_for_ms) == (11, "quarantine", 44)
    second = load_config(tmp_path / "b" / "store", config_file=Configuration.read(path))
    assert (second.broker.name, second.index.max_index_num, second.source.on_damage) == ("broker-b", 333, "broker")
    other = tmp_path / "other.conf"
    other.write_text("maxIndexNum=55\n")
    asked = load_config(tmp_path / "a" / "store", config_file=path, broker_conf=other)
    assert (asked.broker.name, asked.index.max_index_num) == ("DEFAULT_BROKER", 55)


def test_paths_of_the_sections(tmp_path: Path) -> None:
    """Store and output, and the optional ones; options of the whole process are above the sections."""
    path = file_of(
        *(tmp_path, f'checkpoint = "{tmp_path}/spark"\nbrokerconf = "{tmp_path}/broker.conf"', ""),
        top='sparkMaster = "local[1]"\nmetricsPort = 9464\n',
    )
    file = Configuration.read(path)
    first, second = file.sections
    assert (first.store, first.output) == (tmp_path / "a" / "store", tmp_path / "a" / "out")
    assert (first.checkpoint, first.broker_conf) == (tmp_path / "spark", tmp_path / "broker.conf")
    assert (second.checkpoint, second.broker_conf) == (None, None)
    tail, spark = load_process_options(file, ["metricsPort=9465"])
    assert (tail.metrics_port, spark.master) == (9465, "local[1]")


def test_a_command_on_one_store_takes_the_section_of_that_store(tmp_path: Path) -> None:
    """Whatever the path is called; a store without a section is refused."""
    path = file_of(tmp_path, 'broker = "one"', 'broker = "two"')
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "b" / "store")
    assert load_config(link, config_file=path).broker.name == "two"
    (tmp_path / "c" / "commitlog").mkdir(parents=True)
    with pytest.raises(OptionError, match=r"brokers\.toml: no \[\[broker\]\] has the store .*/c; give the --store"):
        load_config(tmp_path / "c", config_file=path)


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        (("", 'store = "/elsewhere"'), "Cannot overwrite a value"),
        (("", "onDamage = 'never'"), r"\[\[broker\]\] 2: onDamage=never: stop, quarantine or broker wanted"),
        (("", "onDamages = 'stop'"), r"\[\[broker\]\] 2: unknown option 'onDamages'"),
        (("", "onDamage = 'stop'\nondamage = 'stop'"), r"\[\[broker\]\] 2: ondamage is given twice"),
        (("tailGuardMs = [1]",), r"\[\[broker\]\] 1: tailGuardMs is an array"),
        (("checkpoint = 'spark'",), r"\[\[broker\]\] 1: checkpoint=spark: an absolute path wanted"),
        (("", "checkpoint = '{root}/a/out'"), r"1: its output .*/a/out is the checkpoint of section 2"),
        (("checkpoint = '{root}/b/out/x'", ""), r"1: its checkpoint .*/x is inside the output of section 2"),
        (("checkpoint = '{root}/b/store/x'", ""), r"1: its checkpoint .*/x is inside the store of section 2"),
    ],
)
def test_what_a_section_may_not_say(sections: tuple[str, ...], words: str, tmp_path: Path) -> None:
    """One line: which section, what was found."""
    with pytest.raises(OptionError, match=words):
        Configuration.read(file_of(tmp_path, *(each.replace("{root}", str(tmp_path)) for each in sections)))


@pytest.mark.parametrize("name", sorted(OF_PROCESS))
def test_what_a_process_has_once_stands_above_the_sections(name: str, tmp_path: Path) -> None:
    """Such an option is refused in a section, whatever its value."""
    (value,) = (spec.default for spec in PIPELINE_OPTIONS if spec.name == name)
    with pytest.raises(OptionError, match=rf"1: {name} is one for all brokers of a process; give it above the first"):
        Configuration.read(file_of(tmp_path, f'{name} = "{value}"'))


@pytest.mark.parametrize("missing", ["store", "output"])
def test_store_and_output_are_required(missing: str, tmp_path: Path) -> None:
    """The other one alone is not enough."""
    path = tmp_path / "brokers.toml"
    path.write_text(f'[[broker]]\n{({"store", "output"} - {missing}).pop()} = "/data"\n')
    with pytest.raises(OptionError, match=rf"\[\[broker\]\] 1: {missing} is missing"):
        Configuration.read(path)


def test_two_sections_share_no_path(tmp_path: Path) -> None:
    """One store or one output of two sections, also by another name of it, or one inside the other."""

    def read(*pairs: tuple[str, str]) -> None:
        path = tmp_path / "brokers.toml"
        path.write_text("".join(f'[[broker]]\nstore = "{store}"\noutput = "{output}"\n' for store, output in pairs))
        Configuration.read(path)

    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    a, link, b, c = (tmp_path / name for name in ("a", "link", "b", "c"))
    with pytest.raises(OptionError, match=r"2: its store .*/link is that of section 1"):
        read((str(a), str(b)), (str(link), str(c)))
    with pytest.raises(OptionError, match=r"1: its output .*/a is the output of section 2"):
        read((str(b), str(a)), (str(c), str(link)))
    with pytest.raises(OptionError, match=r"1: its output .*/b/x is inside the output of section 2"):
        read((str(a), f"{b}/x"), (str(c), str(b)))
    with pytest.raises(OptionError, match=r"2: its output .*/link/x is inside the store of section 1"):
        read((str(a), str(b)), (str(c), f"{link}/x"))
    read((str(a), str(a)), (str(b), str(b)))  # an output may be its broker's own store


def test_two_brokers_of_one_name_are_refused(tmp_path: Path) -> None:
    """Whether the name comes from a section, from broker.conf, or is the default of both."""
    file = Configuration.read(file_of(tmp_path, "", "", ""))
    with pytest.raises(
        OptionError, match=r"3: its broker is called b, as that of section 1; give each a name of its own"
    ):
        check_names(list(zip(file.sections, ("b", "c", "b"), strict=True)))
    check_names(list(zip(file.sections, ("b", "c", "B"), strict=True)))


def test_a_table_of_that_name_is_no_section(tmp_path: Path) -> None:
    """``[broker]`` is the mistake of a user who forgets the second pair of brackets; without it, it is the name."""
    path = tmp_path / "reput.toml"
    path.write_text('[broker]\nstore = "/data"\n')
    with pytest.raises(OptionError, match="broker is a table"):
        Configuration.read(path)
    path.write_text('broker = "b"\n')
    assert Configuration.read(path) == Configuration(path, {"broker": "b"}, ())
