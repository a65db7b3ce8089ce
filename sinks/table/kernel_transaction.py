"""A change of a table as a transaction of Delta Kernel."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql.types import StructType

from reput import __version__
from reput.sinks.table.change import Change
from reput.sinks.table.exclusive_commit import ExclusiveCommit
from reput.sinks.table.history import REPAIR
from reput.sinks.table.location import TableLocation
from reput.sinks.table.new_columns import kernel_schema, metadata_action
from reput.sinks.table.refusal import output_errors
from reput.source.errors import SinkError

#: Who commits, for the table's history.
ENGINE_INFO = f"reput/{__version__}"


class KernelTransactions:
    """Makes the transactions of the table at `path`."""

    def __init__(self, jvm: Any, engine: Any, path: TableLocation) -> None:
        self._jvm = jvm
        self._kernel = jvm.io.delta.kernel
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
        table_properties = self._jvm.java.util.HashMap()
        for key, value in properties.items():
            table_properties.put(key, value)
        builder = kernel.Table.forPath(engine, str(self._path)).createTransactionBuilder(
            engine, ENGINE_INFO, kernel.Operation.CREATE_TABLE
        )
        builder = builder.withSchema(engine, kernel_schema(kernel, schema))
        transaction = builder.withTableProperties(engine, table_properties).withMaxRetries(0).build(engine)
        parameters = {"partitionBy": "[]", "description": comment, "properties": json.dumps(dict(properties))}
        committer.describe({"operationParameters": parameters}, table_comment=comment)
        transaction.commit(committer, kernel.utils.CloseableIterable.emptyIterable())

    def commit(self, committer: ExclusiveCommit, snapshot: Any, change: Change) -> Any:
        """Commit a change of a snapshot once; returns Kernel's result.

        What Kernel refuses is raised as Java's error; SinkError for a file without Delta's statistics.
        """
        kernel, engine = self._kernel, self._engine
        engine_info = ENGINE_INFO if change.is_next else ENGINE_INFO + REPAIR
        builder = snapshot.buildUpdateTableTransaction(engine_info, kernel.Operation.WRITE).withMaxRetries(0)
        if change.transaction is not None and change.is_next:
            builder = builder.withTransactionId(*change.transaction)
        transaction = builder.build(engine)
        actions = self._jvm.java.util.ArrayList()
        now = self._jvm.java.util.Optional.of(self._jvm.java.lang.System.currentTimeMillis())
        single = kernel.internal.actions.SingleAction
        if change.transaction is not None and not change.is_next:
            set_transaction = kernel.internal.actions.SetTransaction(*change.transaction, now)
            actions.add(single.createTxnSingleAction(set_transaction.toRow()))
        for file in change.removed:
            actions.add(single.createRemoveFileSingleAction(file.toRemoveFileRow(change.has_rows_anew, now)))
        if change.new_columns:
            actions.add(metadata_action(kernel, snapshot, change.new_columns))
        self._add_files(transaction, change, actions)
        committer.describe(change.commit_info(), hides_removed=change.deleted is not None)
        iterator = kernel.internal.util.Utils.toCloseableIterator(actions.iterator())
        return transaction.commit(committer, kernel.utils.CloseableIterable.inMemoryIterable(iterator))

    def _add_files(self, transaction: Any, change: Change, actions: Any) -> None:
        kernel, engine = self._kernel, self._engine
        state, schema = transaction.getTransactionState(engine), transaction.getSchema(engine)
        parse, status = kernel.statistics.DataFileStatistics.deserializeFromJson, kernel.utils.DataFileStatus
        root = kernel.Table.forPath(engine, str(self._path)).getPath(engine)
        statuses = self._jvm.java.util.ArrayList()
        for file in change.files:
            path = f"{root}/{file.path}"
            with output_errors(f"{path}: not Delta's statistics with numRecords", self._path / file.path, SinkError):
                statistics = parse(file.statistics_json, schema)
                statistics.get()
            statuses.add(status(path, file.size_bytes, file.modification_time_ms, statistics))
        if not change.has_rows_anew:
            add, none = kernel.internal.actions.AddFile, self._jvm.java.util.Optional.empty()
            single, no_values = kernel.internal.actions.SingleAction, self._jvm.java.util.HashMap()
            base = kernel.internal.fs.Path(root).toUri()
            for each in statuses:
                row = add.convertDataFileStatus(schema, base, each, no_values, False, no_values, none, none, none)
                actions.add(single.createAddFileSingleAction(row.toRow()))
            return
        context = kernel.Transaction.getWriteContext(engine, state, self._jvm.java.util.HashMap())
        iterator = kernel.internal.util.Utils.toCloseableIterator(statuses.iterator())
        adds = kernel.Transaction.generateAppendActions(engine, state, iterator, context)
        while adds.hasNext():
            actions.add(adds.next())
