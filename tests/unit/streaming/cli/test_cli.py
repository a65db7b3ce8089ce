"""The command line: bad input ends in one line and the right exit code, before Spark is started."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import BrokerStore
from support.command_line import invoke, run_reput
from support.record_writer import Message, write_log
from support.spark_text import spark_text
from typer.testing import Result

import reput
from reput.streaming.cli import main as cli
from reput.streaming.cli.app import SECTIONS

REPUT = f"{sys.executable} -m reput.streaming.cli.main"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A small store."""
    write_log(tmp_path / "store" / "commitlog", (Message() for _ in range(20)), 1024)
    return tmp_path / "store"


def tail(store: Path, output: Path, *more: str) -> Result:
    return invoke(["tail", "--store", str(store), "--output", str(output), "--available-now", *more])


def test_version_and_help() -> None:
    """Both end with 0; help has an example for each command."""
    version = invoke(["--version"])
    assert (0, f"reput {reput.__version__}\n") == (version.exit_code, version.output)
    for command in ("tail", "rebuild", "sql"):
        shown = run_reput([command, "--help"])
        assert f"Example: reput {command}" in shown.output


def test_a_command_is_loaded_with_its_module_alone() -> None:
    """And all of them for the list of commands, or for a name that none has; the table of modules is complete."""
    shown = subprocess.run([sys.executable, "-m", cli.__name__, "--help"], capture_output=True, text=True, check=True)
    every = re.findall(r"^  (\w+) ", shown.stdout.partition("Keep:")[2], re.MULTILINE)
    assert every == [name for names in SECTIONS.values() for name in names]
    code = "import sys; from reput.streaming.cli.app import application as a; app = a(*sys.argv[1:]); "
    code += "print(len(app.registered_commands) + len(app.registered_groups))"
    for words, count in ((["query"], 5), (["table"], 1), (["expire"], 5), (["nothing"], len(every)), ([], len(every))):
        done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
        assert done.stdout == f"{count}\n", words


@pytest.mark.parametrize("command", ["tail", "rebuild", "verify", "recover", "expire", "query", "sql"])
def test_every_command_is_told_its_settings_the_same_way(command: str, store: Path, tmp_path: Path) -> None:
    """A wrong file of options, a wrong option and a wrong broker.conf are each told by each command."""
    out = tmp_path / "out"
    out.mkdir()
    paths = ["--store", str(store), *(["--msg-id", "7F" * 16] if command == "query" else []), "--output", str(out)]
    if command == "sql":
        paths = ["--table", str(out), "SELECT 1"]
    settings = {"--config": "cannot read the configuration", "-o": "name=value wanted"}
    if command != "sql":
        settings["--broker-conf"] = "cannot read the broker's configuration"
    for option, words in settings.items():
        result = invoke([command, *paths, option, f"{tmp_path}/none"])
        assert words in result.output
    if command != "sql":
        plain = invoke([command, *paths, "--dledger"])
        assert "it has no directory dledger-SELFID" in plain.output
        twice = invoke([command, *paths, "--dledger", "-o", "enabledlegercommitlog=false"])
        assert "enableDLegerCommitLog is given twice: false and true" in twice.output


def test_sql_runs_where_its_settings_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the other commands do: on this machine unless another master is given, with the memory that is given."""
    from reput.source.errors import EnvironmentSetupError
    from reput.streaming.sql import spark_query

    log = tmp_path / "table" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text("{}")
    started: list[tuple[object, object]] = []

    def start(name: str, **given: object) -> None:
        started.append((given["master"], given["driver_memory"]))
        raise EnvironmentSetupError("enough")

    monkeypatch.setattr(spark_query, "start_session", start)
    (tmp_path / "reput.toml").write_text('sparkMaster = "local[3]"\nmaxIndexNum = 7\n')
    words = ["sql", "--engine", "spark", "--table", str(tmp_path / "table"), "SELECT 1"]
    for more in ([], ["--config", str(tmp_path / "reput.toml")], ["-o", "sparkDriverMemory=3g"]):
        assert "enough" in invoke([*words, *more]).output
    assert started == [("local[*]", "2g"), ("local[3]", "2g"), ("local[*]", "3g")]


@pytest.mark.parametrize("with_table", [False, True])
def test_a_rebuild_does_not_wait_for_pandas(store: Path, tmp_path: Path, with_table: bool) -> None:
    """Pyarrow loads it to make an array of Python values: a fifth of the start-up."""
    code = "import atexit, sys; from reput.streaming.cli.main import main\n"
    code += "atexit.register(lambda: print('pandas' in sys.modules)); main()"
    words = ["rebuild", "--store", str(store), "--output", str(tmp_path / "out"), "--master", "local[2]"]
    words += ["--table", str(tmp_path / "table")] if with_table else []
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
    assert list((tmp_path / "out" / "consumequeue").rglob("0*"))


def test_pandas_is_there_again_for_spark() -> None:
    """Objects that pyarrow made without it are whole, and an import that was refused is not remembered."""
    code = """
import importlib.util, sys
from reput.source.system import hide_pandas, show_pandas
hide_pandas()
import pyarrow
assert pyarrow.array(["a", None]).to_pylist() == ["a", None] and "pandas" not in sys.modules
try:
    import pandas
    raise SystemExit("pandas was found")
except ModuleNotFoundError:
    show_pandas()
import pandas
hide_pandas(), show_pandas()
assert pandas.Series([1]).sum() == 1 and len({id(each) for each in sys.meta_path}) == len(sys.meta_path)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("is_awaited", [False, True])
def test_the_process_ends_as_python_ends_it(is_awaited: bool) -> None:
    """Functions registered for the end run, Python waits for threads that it always waits for, and output is whole."""
    code = f"""
import atexit, threading
from reput.streaming.cli.main import run
atexit.register(print, "registered")
if {is_awaited}:
    threading.Thread(target=lambda: (threading.main_thread().join(), print("awaited"))).start()
run()
"""
    words = [sys.executable, "-c", code, "--version"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1:] == [*(["awaited"] if is_awaited else []), "registered"]
    refused = subprocess.run([*words[:3], "nothing"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2


@pytest.mark.parametrize("words", ["--version", "--help", "query --help"])
def test_standard_output_is_full(words: str) -> None:
    """One line, also where a command does not begin."""
    shell = ["/bin/sh", "-c", f"{REPUT} {words} > /dev/full"]
    done = subprocess.run(shell, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "reput: cannot write to standard output: No space left on device\n")


def test_closed_streams_are_given_to_no_file(store: Path, tmp_path: Path) -> None:
    """The number of a closed stream goes to the next file that is opened, and with it what is printed."""
    files = []
    for name, streams in (("open", ""), ("closed", "<&- >&- 2>&-")):
        words = f"rebuild --store {store} --output {tmp_path}/{name} --master 'local[1]'"
        subprocess.run(["/bin/sh", "-c", f"{REPUT} {words} {streams}"], check=True, capture_output=True)
        root = tmp_path / name / "consumequeue"
        files.append({path.relative_to(root): path.read_bytes() for path in root.rglob("0*") if path.is_file()})
    assert files[0] == files[1] != {}


def test_no_such_store(tmp_path: Path) -> None:
    """The directory that is missing is named; exit code 1."""
    result = tail(tmp_path / "nothing", tmp_path / "out")
    assert result.exit_code == 1
    assert f"no store at {tmp_path}/nothing: the directory does not exist" in result.output
    assert not (tmp_path / "out").exists()


def test_no_commitlog(tmp_path: Path) -> None:
    """A directory without commitlog/ is not a store."""
    (tmp_path / "store").mkdir()
    result = tail(tmp_path / "store", tmp_path / "out")
    assert result.exit_code == 1
    assert "give the store root that holds commitlog/" in result.output


def test_segment_sizes_that_differ(store: Path, tmp_path: Path) -> None:
    """The file and both sizes are named."""
    os.truncate(store / "commitlog" / f"{1024:020d}", 1000)
    result = tail(store, tmp_path / "out")
    assert result.exit_code == 1
    assert f"{1024:020d} has 1000 bytes where the size of" in result.output


def test_a_hole_between_segments(store: Path, tmp_path: Path) -> None:
    """The error has the place, the missing bytes and the way to continue."""
    (store / "commitlog" / f"{1024:020d}").unlink()
    result = tail(store, tmp_path / "out")
    assert result.exit_code == 1
    assert "hole in the commitlog" in result.output
    assert "1024 bytes are missing" in result.output
    assert "failOnDataLoss=false" in result.output


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("maxBytesPerTrigger=-1", "maxBytesPerTrigger=-1: bytes: a whole number from 1"),
        ("nonsense=1", "unknown option 'nonsense'; conf/reput.toml has all options"),
        ("startingOffset=7", "startingOffset=7 is not where a record begins"),
        ("mappedFileSizeCommitLog=2048", "mappedFileSizeCommitLog is 2048"),
    ],
)
def test_wrong_options(store: Path, tmp_path: Path, option: str, words: str) -> None:
    """The option and what it allows are named; a wrong value is wrong usage."""
    result = tail(store, tmp_path / "out", "--option", option)
    assert result.exit_code == (1 if "mappedFileSize" in option else 2)
    assert words in result.output
    assert not (tmp_path / "out").exists()


def test_nothing_to_keep(store: Path, tmp_path: Path) -> None:
    """Every sink off and no table is wrong usage."""
    result = tail(store, tmp_path / "out", "-o", "consumeQueueEnable=false", "-o", "messageIndexEnable=false")
    assert result.exit_code == 2
    assert "nothing to keep" in result.output


def test_an_output_that_cannot_be_written(store: Path, tmp_path: Path) -> None:
    """A file where the output should be a directory."""
    (tmp_path / "out").write_text("in the way")
    result = tail(store, tmp_path / "out")
    assert result.exit_code == 1
    assert f"cannot write {tmp_path}/out" in result.output


def test_a_store_whose_broker_is_running_as_output(store: Path, hold_lock: Callable[[Path], int]) -> None:
    """The lock tells; its holder is named."""
    holder = hold_lock(store / "lock")
    result = tail(store, store)
    assert result.exit_code == 1
    assert f"lock is locked by process {holder}: a broker or another reput works on this output" in result.output


def test_a_dledger_store_is_told_from_a_plain_one(broker_store: Callable[[str], BrokerStore], tmp_path: Path) -> None:
    """Without the option it is named; with it, a plain store is."""
    refused = tail(broker_store("v4-dledger").root, tmp_path / "out")
    assert refused.exit_code == 2
    assert "holds a DLedger commitlog: set enableDLegerCommitLog=true to read it (reput tail" in refused.output
    plain = tail(broker_store("v4-plain").root, tmp_path / "out", "--dledger")
    assert plain.exit_code == 1
    assert "no DLedger commitlog in" in plain.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("inside", ["dledger-n0", "dledger-n0/data", "dledger-n0/out", "commitlog/out"])
def test_nothing_is_written_into_a_dledger_log(
    inside: str, broker_store: Callable[[str], BrokerStore], tmp_path: Path
) -> None:
    """Nor beside it: DLedger has an index/ and a checkpoint of its own there."""
    store = broker_store("v4-dledger").root
    result = tail(store, store / inside, "--dledger")
    assert result.exit_code == 1
    assert f"{store / inside} is inside the commitlog" in result.output


def test_java_that_is_missing_is_one_sentence(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No stack trace: what is wanted and how to install it on Debian, RHEL and macOS."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no-java"))
    result = tail(store, tmp_path / "out")
    assert result.exit_code == 1
    for words in ("Spark needs Java 17 or later", "apt-get install", "dnf install", "brew install"):
        assert words in result.output
    assert "Traceback" not in result.output


def test_java_that_is_too_old_is_one_sentence(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The version found is named."""
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    result = tail(store, tmp_path / "out")
    assert result.exit_code == 1
    assert "java is 8; install it" in result.output


def test_a_job_that_spark_spoils_is_run_again() -> None:
    """Twice more at the most, not in a session that has ended, and never for an error of reput's own."""
    from reput.source.errors import DataLossError
    from reput.streaming.spark.job import run_job

    class Job:
        def __init__(self, *failures: str, has_stopped: bool = False) -> None:
            self.failures = list(failures)
            context = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: has_stopped))
            self.sparkSession = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=context))

        def mapInArrow(self, _task: object, _ddl: str) -> Job:  # noqa: N802
            return self

        def toArrow(self) -> str:  # noqa: N802
            if self.failures:
                raise RuntimeError(self.failures.pop(0))
            return "done"

    assert run_job(Job("spoilt", "spoilt"), None, "") == "done"
    with pytest.raises(RuntimeError, match="spoilt"):
        run_job(Job(*["spoilt"] * 3), None, "")
    with pytest.raises(RuntimeError, match="the first"):
        run_job(Job("the first", has_stopped=True), None, "")
    with pytest.raises(DataLossError, match=r"^gone$") as raised:
        run_job(Job(f"Job aborted\n{spark_text(DataLossError('gone', physical_offset=5))} SQLSTATE: 38000"), None, "")
    assert raised.value.physical_offset == 5


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--only", "queues"], 2, "consumequeue, index or table wanted"),
        (["--from", "1"], 2, "--from 1 is inside the record at 0"),
        (["--topic", "T"], 1, "has no queues"),
        (["--topic", "../x"], 1, "is not the printable name of one directory"),
    ],
)
def test_wrong_rebuilds(store: Path, tmp_path: Path, options: list[str], code: int, message: str) -> None:
    """`reput rebuild` says what it wants before Spark is started."""
    arguments = ["rebuild", "--store", str(store), "--output", str(tmp_path / "out"), *options]
    result = invoke(arguments)
    assert (result.exit_code, message in result.output) == (code, True), result.output
