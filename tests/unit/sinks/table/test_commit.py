"""Commits of a table without a JVM: what a log gets, and what a table may ask of its writers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from reput.sinks.table.data_file import DataFile
from reput.sinks.table.delta_table import Change, DeltaTable, TransactionAlreadyCommittedError
from reput.sinks.table.log import Snapshot, commit_file
from reput.source.errors import OutputError, SinkError

APP = "reput/b/messages"
SCHEMA = StructType([StructField("topic", StringType()), StructField("physical_offset", LongType())])
# The fields of a file in a checkpoint.
CHECKPOINTED = pa.struct(
    [
        *(("path", pa.string()), ("partitionValues", pa.map_(pa.string(), pa.string())), ("size", pa.int64())),
        *(("modificationTime", pa.int64()), ("dataChange", pa.bool_()), ("stats", pa.string())),
    ]
)
VECTOR = {
    "storageType": "u",
    "pathOrInlineDv": "vBn[lx{q8@P<9BNH/isA",
    "offset": 1,
    "sizeInBytes": 36,
    "cardinality": 2,
}
Actions = list[dict[str, Any]]
Alter = Callable[..., None]


def opened(path: Path, **properties: str) -> DeltaTable:
    return DeltaTable.open_or_create(path, SCHEMA, properties=properties, comment='it\'s a "test"')


def written(table: DeltaTable, first: int, rows: int = 10) -> DataFile:
    """A data file with rows from offset `first` on."""
    path, values = table.path / f"{first}.parquet", range(first, first + rows)
    pq.write_table(pa.table({"topic": ["t"] * rows, "physical_offset": pa.array(values, pa.int64())}), path)
    statistics = {
        "numRecords": rows,
        "minValues": {"topic": "t", "physical_offset": first},
        "maxValues": {"topic": "t", "physical_offset": first + rows - 1},
        "nullCount": {"topic": 0, "physical_offset": 0},
    }
    return DataFile.new(path.name, path.stat().st_size, json.dumps(statistics))


def append(table: DeltaTable, first: int, rows: int = 10) -> int:
    return table.append([written(table, first, rows)], app_id=APP, version=first)


def actions(table: DeltaTable, version: int) -> Actions:
    return [json.loads(line) for line in (table.path / commit_file(version)).read_text().splitlines()]


def only(kind: str, found: Actions) -> Actions:
    return [action[kind] for action in found if kind in action]


def others_commit(table: DeltaTable, *content: dict[str, Any], **info: Any) -> int:
    """A commit of another writer."""
    version = table.version + 1
    lines = [{"commitInfo": {**info, "operation": "OTHERS", "operationParameters": {}}}, *content]
    (table.path / commit_file(version)).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return version


def switched(table: DeltaTable, *features: str, schema: str | None = None, **properties: str) -> Actions:
    """Return the options that switch features on and set properties; underscores are dots in these."""
    (metadata,) = only("metaData", actions(table, 0))
    metadata["configuration"] |= {name.replace("_", "."): value for name, value in properties.items()}
    metadata["schemaString"] = schema or metadata["schemaString"]
    readers = sorted(
        {"deletionVectors", "v2Checkpoint", "typeWidening", "variantType", "vacuumProtocolCheck"} & {*features}
    )
    versions = {"minReaderVersion": 3, "minWriterVersion": 7}
    return [
        {"protocol": {**versions, "readerFeatures": readers, "writerFeatures": list(features)}},
        {"metaData": metadata},
    ]


def test_what_a_log_gets(tmp_path: Path) -> None:
    table = opened(tmp_path / "t")
    assert [append(table, first) for first in (0, 100)] == [1, 2]
    kinds = [[next(iter(action)) for action in actions(table, version)] for version in range(3)]
    assert kinds == [["commitInfo", "metaData", "protocol"], *[["commitInfo", "txn", "add"]] * 2]
    infos = [only("commitInfo", actions(table, version))[0] for version in range(3)]
    assert [info["operation"] for info in infos] == ["CREATE TABLE", "WRITE", "WRITE"]
    assert all("/reput/" in info["engineInfo"] for info in infos)
    assert len({info["txnId"] for info in infos}) == 3
    read = deltalake.DeltaTable(str(table.path))
    assert (read.version(), read.transaction_version(APP)) == (2, 100)
    assert sorted(read.to_pyarrow_table()["physical_offset"].to_pylist()) == [*range(10), *range(100, 110)]
    assert read.metadata().description == 'it\'s a "test"'
    with pytest.raises(TransactionAlreadyCommittedError, match=r"transaction 100 .* now at 100"):
        append(opened(table.path), 100)


def test_files_are_replaced(tmp_path: Path) -> None:
    """By others with the same rows, which does not count as a change; every field of a deletion vector stays."""
    table = opened(tmp_path / "t")
    for first in (0, 10):
        append(table, first)
    assert table.rewrite(["0.parquet", "10.parquet"], [written(table, 5, 20)])
    found = actions(table, 3)
    assert [each["dataChange"] for kind in ("remove", "add") for each in only(kind, found)] == [False] * 3
    assert {"stats", "size", "partitionValues"} <= only("remove", found)[0].keys()
    (add,) = only("add", found)
    others_commit(table, {"remove": {**add, "deletionTimestamp": 1}}, {"add": {**add, "deletionVector": VECTOR}})
    assert not table.rewrite(["5.parquet"], [])

    def taken(snapshot: Snapshot) -> Change:
        return Change((), [*table.files(snapshot)], None, deleted=18)

    (remove,) = only("remove", actions(table, table.commit(taken)))
    assert (remove["deletionVector"], remove["dataChange"], "stats" in remove) == (VECTOR, True, False)
    assert deltalake.DeltaTable(str(table.path)).file_uris() == []


def test_row_ids_and_times(tmp_path: Path) -> None:
    """Rows get ascending numbers, commits ascending times, the first in their log."""
    table = opened(tmp_path / "t")
    append(table, 0)
    properties = {"delta_enableInCommitTimestamps": "true", "delta_enableRowTracking": "true"}
    domain = {"domain": "delta.rowTracking", "configuration": '{"rowIdHighWaterMark":9}', "removed": False}
    later = 2**42
    features = ("rowTracking", "domainMetadata", "inCommitTimestamp")
    others_commit(table, *switched(table, *features, **properties), {"domainMetadata": domain}, inCommitTimestamp=later)
    table.append([written(table, 10), written(table, 20)], app_id=APP, version=30)
    append(opened(table.path), 40, 5)
    first, second = actions(table, 3), actions(table, 4)
    assert [(add["baseRowId"], add["defaultRowCommitVersion"]) for add in only("add", first)] == [(10, 3), (20, 3)]
    assert [add["baseRowId"] for add in only("add", second)] == [30]
    marks = [json.loads(only("domainMetadata", each)[0]["configuration"]) for each in (first, second)]
    assert marks == [{"rowIdHighWaterMark": 29}, {"rowIdHighWaterMark": 34}]
    infos = [only("commitInfo", each)[0] for each in (first, second)]
    assert [next(iter(info)) for info in infos] == ["inCommitTimestamp"] * 2
    assert [info["inCommitTimestamp"] for info in infos] == [later + 1, later + 2]
    (removed,) = [file for file in Snapshot.load(table.storage).files() if file.path == "20.parquet"]
    assert removed.removal(7, changes_rows=True, with_statistics=True)["remove"]["baseRowId"] == 20


def bad_schema(key: str) -> str:
    fields = [field.jsonValue() for field in SCHEMA]
    fields.append({"name": "theirs", "type": "long", "nullable": True, "metadata": {key: "x"}})
    return json.dumps({"type": "struct", "fields": fields})


REFUSED: dict[str, tuple[Callable[[DeltaTable], Actions], str]] = {
    "unknown": (lambda table: switched(table, "appendOnly", "new"), "the table needs new, .* DROP FEATURE `new`"),
    "iceberg": (lambda table: switched(table, "icebergCompatV2"), "the table needs icebergCompatV2, which"),
    "later": (
        lambda _: [{"protocol": {"minReaderVersion": 4, "minWriterVersion": 8}}],
        "reader version 4 and writer version 8, and reput writes up to 3 and 7; give another",
    ),
    "generated": (
        lambda table: switched(table, "generatedColumns", schema=bad_schema("delta.generationExpression")),
        "the column `theirs` has values that are generated, .* DROP COLUMN `theirs`",
    ),
    "invariant": (
        lambda table: switched(table, "invariants", schema=bad_schema("delta.invariants")),
        "the column `theirs` has a condition on its values",
    ),
    "identity": (
        lambda table: switched(table, "identityColumns", schema=bad_schema("delta.identity.start")),
        "the column `theirs` has values that are counted up",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_written_is_refused(case: str, tmp_path: Path) -> None:
    """In one line that says what and what to do, by a writer that is at work as by one that starts."""
    table = opened(tmp_path / "t")
    append(table, 0)
    make, said = REFUSED[case]
    version = others_commit(table, *make(table))
    for write in (lambda: append(table, 10), lambda: opened(table.path)):
        with pytest.raises(OutputError, match=said) as raised:
            write()
        assert "\n" not in str(raised.value)
    assert not (table.path / commit_file(version + 1)).exists()


KNOWN = (
    *("appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "identityColumns"),
    *("deletionVectors", "rowTracking", "domainMetadata", "v2Checkpoint", "inCommitTimestamp", "clustering"),
    *("typeWidening", "allowColumnDefaults", "variantType", "vacuumProtocolCheck", "checkpointProtection"),
)


def test_what_is_written(tmp_path: Path) -> None:
    """A table may name all of these; and a checkpoint of it is read as the commits were."""
    table = opened(tmp_path / "t", **{"delta.checkpointInterval": "3"})
    others_commit(table, *switched(table, *KNOWN, delta_checkpointInterval="3"))
    assert [append(table, first) for first in (0, 10, 20)] == [2, 3, 4]
    assert [path.name for path in (table.path / "_delta_log").glob("*.checkpoint*")] == [f"{3:020d}.checkpoint.parquet"]
    assert json.loads((table.path / "_delta_log" / "_last_checkpoint").read_text())["version"] == 3
    for version in range(3):
        (table.path / commit_file(version)).unlink()
    found = Snapshot.load(table.storage)
    assert [*sorted((file.path, file.logged["baseRowId"]) for file in found.files())] == [
        ("0.parquet", 0),
        ("10.parquet", 10),
        ("20.parquet", 20),
    ]
    assert (found.version, found.transactions, found.features) == (4, {APP: 20}, {*KNOWN})
    assert append(opened(table.path), 30) == 5


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("delta_appendOnly", "only takes new rows, and these replace others; allow it: .*'delta.appendOnly' = 'false'"),
        ("delta_enableChangeDataFeed", "keeps a change data feed, .*'delta.enableChangeDataFeed' = 'false'"),
    ],
)
def test_a_table_that_does_not_let_rows_be_replaced(name: str, said: str, tmp_path: Path) -> None:
    """It takes new ones, and the same in other files."""
    table = opened(tmp_path / "t", **{name.replace("_", "."): "true"})
    append(table, 0)
    append(table, 10)
    assert table.rewrite(["0.parquet", "10.parquet"], [written(table, 5, 20)])

    def replaced(snapshot: Snapshot) -> Change:
        return Change([written(table, 40)], [*table.files(snapshot)], (APP, 50), is_next=False)

    with pytest.raises(OutputError, match=said):
        table.commit(replaced)
    assert table.version == 3


@pytest.mark.parametrize(
    "statistics",
    [
        "{",
        "{}",
        "[]",
        '{"numRecords": "1"}',
        '{"numRecords": 1, "minValues": {"physical_offset": "1"}}',
        '{"numRecords": 1, "maxValues": {"topic": 1}}',
        '{"numRecords": 1, "maxValues": {"other": 1}}',
    ],
)
def test_statistics_of_another_form(statistics: str, tmp_path: Path) -> None:
    table = opened(tmp_path / "t")
    file = written(table, 0)
    bad = DataFile.new(file.path, file.size_bytes, statistics)
    with pytest.raises(SinkError, match=r"0\.parquet: not Delta's statistics with numRecords"):
        table.append([bad], app_id=APP, version=1)
    assert table.version == 0


def test_a_path_in_the_log(tmp_path: Path) -> None:
    """It is encoded as a URL, and read as it was."""
    table = opened(tmp_path / "t")
    name = "with space%20ü#?.parquet"
    file = written(table, 0)
    (table.path / file.path).rename(table.path / name)
    table.append([DataFile.new(name, file.size_bytes, file.statistics_json)], app_id=APP, version=1)
    (found,) = Snapshot.load(table.storage).files()
    assert found.logged["path"] == "with%20space%2520%C3%BC%23%3F.parquet"
    assert found.path == name
    assert len(deltalake.DeltaTable(str(table.path)).to_pyarrow_table()) == 10


def test_a_log_that_was_cut_under_a_snapshot(tmp_path: Path) -> None:
    """A commit and a look both read the checkpoint again."""
    table = opened(tmp_path / "t", **{"delta.checkpointInterval": "2"})
    for first in (0, 10, 20):
        append(table, first)
    names: list[list[str]] = []

    def change(snapshot: Snapshot) -> Change:
        names.append([])
        names[-1] += [file.path for file in table.files(snapshot)]
        return Change([written(table, 30)], (), (APP, 30))

    (old,) = (table.path / "_delta_log").glob("*.checkpoint.parquet")
    deltalake.DeltaTable(str(table.path)).create_checkpoint()
    old.unlink()
    assert table.commit(change) == 4
    assert [sorted(each) for each in names] == [[], ["0.parquet", "10.parquet", "20.parquet"]]


def test_versions_by_number(tmp_path: Path) -> None:
    table = opened(tmp_path / "t", **{"delta.checkpointInterval": "2"})
    for first in (0, 10, 20):
        append(table, first)

    def paths(snapshot: Snapshot) -> list[str]:
        return sorted(file.path for file in table.files(snapshot))

    assert [len(table.of_snapshot(paths, version)) for version in range(4)] == [0, 1, 2, 3]
    append(table, 30)
    assert table.rewrite(["0.parquet", "20.parquet"], [written(table, 40)])  # they are in the checkpoint before
    for found in (table, opened(table.path)):
        assert found.of_snapshot(paths) == ["10.parquet", "30.parquet", "40.parquet"]


def test_v2_checkpoints(tmp_path: Path) -> None:
    """Their manifest is a Parquet file or one of JSON, and their files are named in sidecars."""
    table = opened(tmp_path / "t")
    for first in (0, 10):
        append(table, first)
    sound = Snapshot.load(table.storage)
    adds = [dict(file.logged) for file in sound.files()]
    log = table.path / "_delta_log"
    (log / "_sidecars").mkdir()
    pq.write_table(pa.table({"add": pa.array(adds, CHECKPOINTED)}), log / "_sidecars" / "a.parquet")
    sidecar = {"path": "a.parquet", "sizeInBytes": 1, "modificationTime": 1}
    header = [
        {"checkpointMetadata": {"version": 2}},
        {"protocol": dict(sound.protocol)},
        {"metaData": dict(sound.metadata)},
        {"txn": {"appId": APP, "version": 10}},
        {"sidecar": sidecar},
    ]
    manifest = log / f"{2:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
    manifest.write_text("".join(f"{json.dumps(line)}\n" for line in header))
    for version in range(3):
        (table.path / commit_file(version)).unlink()
    found = Snapshot.load(table.storage)
    assert (found.version, found.transactions, found.metadata) == (2, {APP: 10}, sound.metadata)
    assert sorted(file.path for file in found.files()) == ["0.parquet", "10.parquet"]
    assert [file.bounds for file in found.files()] == [DataFile.of(table.storage, add).bounds for add in adds]
