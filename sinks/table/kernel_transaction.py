"""A change of a table as a transaction of Delta Kernel."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from pyspark.sql.types import StructType

from reput import __version__
from reput.sinks.table.change import Change
from reput.sinks.table.exclusive_commit import ExclusiveCommit
from reput.sinks.table.history import REPAIR
from reput.sinks.table.java_names import JavaNames
from reput.sinks.table.location import TableLocation
from reput.sinks.table.new_columns import kernel_schema, metadata_action
from reput.sinks.table.refusal import output_errors
from reput.source.errors import SinkError

#: Who commits, for the table's history.
ENGINE_INFO = f"reput/{__version__}"
_ACTION = "internal.actions.SingleAction."


class KernelTransactions:
    """Makes the transactions of the table at `path`."""

    def __init__(self, java: JavaNames, kernel: JavaNames, engine: Any, path: TableLocation) -> None:
        """`java` and `kernel` are the packages ``java`` and ``io.delta.kernel``."""
        self._java = java
        self._kernel = kernel
        self._engine = engine
        self._path = path

    def create(
        self,
        committer: ExclusiveCommit,
        schema: StructType,
        properties: Mapping[str, str],
        comment: str,
    ) -> None:
        """Commit a new table without rows once.

        What Kernel refuses is raised as Java's error. Kernel's result lacks `comment`: no checksum may be made of it.
        """
        kernel, engine = self._kernel, self._engine
        table_properties = self._java("util.HashMap")()
        for key, value in properties.items():
            table_properties.put(key, value)
        builder = kernel("Table.forPath")(engine, str(self._path)).createTransactionBuilder(
            engine, ENGINE_INFO, kernel("Operation.CREATE_TABLE")
        )
        builder = builder.withSchema(engine, kernel_schema(kernel, schema))
        transaction = builder.withTableProperties(engine, table_properties).withMaxRetries(0).build(engine)
        parameters = {"partitionBy": "[]", "description": comment, "properties": json.dumps(dict(properties))}
        committer.describe({"operationParameters": parameters}, table_comment=comment)
        transaction.commit(committer, kernel("utils.CloseableIterable.emptyIterable")())

    def commit(self, committer: ExclusiveCommit, snapshot: Any, change: Change) -> Any:
        """Commit a change of a snapshot once; returns Kernel's result.

        What Kernel refuses is raised as Java's error; SinkError for a file without Delta's statistics.
        """
        kernel, engine = self._kernel, self._engine
        engine_info = ENGINE_INFO if change.is_next else ENGINE_INFO + REPAIR
        builder = snapshot.buildUpdateTableTransaction(engine_info, kernel("Operation.WRITE")).withMaxRetries(0)
        if change.transaction is not None and change.is_next:
            builder = builder.withTransactionId(*change.transaction)
        transaction = builder.build(engine)
        actions = self._java("util.ArrayList")()
        if change.transaction is not None and not change.is_next:
            set_transaction = kernel("internal.actions.SetTransaction")(*change.transaction, self._now())
            actions.add(kernel(_ACTION + "createTxnSingleAction")(set_transaction.toRow()))
        if change.removed:
            now, remove = self._now(), kernel(_ACTION + "createRemoveFileSingleAction")
            for file in change.removed:
                actions.add(remove(file.toRemoveFileRow(change.has_rows_anew, now)))
        if change.new_columns:
            actions.add(metadata_action(kernel, snapshot, change.new_columns))
        self._add_files(transaction, change, actions)
        committer.describe(change.commit_info(), hides_removed=change.deleted is not None)
        iterable = kernel("utils.CloseableIterable.inMemoryIterable")(self._closeable(actions))
        return transaction.commit(committer, iterable)

    def _now(self) -> Any:
        return self._java("util.Optional.of")(self._java("lang.System.currentTimeMillis")())

    def _closeable(self, values: Any) -> Any:
        return self._kernel("internal.util.Utils.toCloseableIterator")(values.iterator())

    @cached_property
    def _root(self) -> str:
        """The table's path as Kernel has it."""
        return str(self._kernel("Table.forPath")(self._engine, str(self._path)).getPath(self._engine))

    def _add_files(self, transaction: Any, change: Change, actions: Any) -> None:
        kernel, engine = self._kernel, self._engine
        state, schema = transaction.getTransactionState(engine), transaction.getSchema(engine)
        parse, status = kernel("statistics.DataFileStatistics.deserializeFromJson"), kernel("utils.DataFileStatus")
        root = self._root
        statuses = []
        for file in change.files:
            path = f"{root}/{file.path}"
            with output_errors(f"{path}: not Delta's statistics with numRecords", self._path / file.path, SinkError):
                statistics = parse(file.statistics_json, schema)
                statistics.get()
            statuses.append(status(path, file.size_bytes, file.modification_time_ms, statistics))
        if not change.has_rows_anew:
            no_values, none = self._java("util.HashMap")(), self._java("util.Optional.empty")()
            converted = kernel("internal.actions.AddFile.convertDataFileStatus")
            add = kernel(_ACTION + "createAddFileSingleAction")
            base = kernel("internal.fs.Path")(root).toUri()
            for each in statuses:
                row = converted(schema, base, each, no_values, False, no_values, none, none, none)
                actions.add(add(row.toRow()))
            return
        context = kernel("Transaction.getWriteContext")(engine, state, self._java("util.HashMap")())
        files = self._java("util.ArrayList")()
        for each in statuses:
            files.add(each)
        adds = kernel("Transaction.generateAppendActions")(engine, state, self._closeable(files), context)
        while adds.hasNext():
            actions.add(adds.next())
