-- Half messages without an end: transactions that were neither committed, nor rolled back, nor discarded.
--
-- :topic text: only transactions for this topic.
-- :broker text: only transactions of this broker.
-- :since time: only transactions that were begun then or later.
-- :until time: only transactions that were begun before then.
--
-- Reads half_ops.
--
-- The broker writes a half message again each time it checks it. The newest copy is shown, and `copies` counts all. A
-- transaction looks open if its op message has expired from the log, or is not yet in the store's queue of op messages.
-- If the table has several brokers, the store is one of them. A broker that keeps transactions in RocksDB (5.5.0) does
-- not write a half message again, so `copies` is 1. It drops a transaction that it has checked too often without a
-- record, so that one looks open, too.
WITH halves AS (
  SELECT broker, topic, queue_id, queue_offset, physical_offset, store_time, real_topic AS origin_topic, producer_group,
    born_host, uniq_key, keys, transaction_id,
    row_number() OVER (PARTITION BY broker, transaction_id ORDER BY physical_offset DESC) AS place,
    count(*) OVER (PARTITION BY broker, transaction_id) AS copies,
    min(store_time) OVER (PARTITION BY broker, transaction_id) AS begun
  FROM (
    SELECT broker, topic, queue_id, queue_offset, physical_offset, store_time, real_topic, producer_group, born_host, uniq_key,
      keys, coalesce(properties['__transactionId__'], uniq_key) AS transaction_id
    FROM messages
    WHERE topic IN ('RMQ_SYS_TRANS_HALF_TOPIC', 'RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC')
      AND (:broker IS NULL OR broker = :broker) AND (:topic IS NULL OR real_topic = :topic)
  ) each_half
), ended AS (
  SELECT broker, transaction_id FROM messages WHERE transaction_type = 'commit' OR kind = 'half_discarded'
  UNION
  SELECT halves.broker, halves.transaction_id
  FROM halves JOIN half_ops ON half_ops.queue_id = halves.queue_id AND half_ops.queue_offset = halves.queue_offset
  WHERE halves.topic = 'RMQ_SYS_TRANS_HALF_TOPIC'
  UNION
  -- Op messages of RocksDB name the half message by its physical offset, in a property, and are rows themselves.
  SELECT halves.broker, halves.transaction_id
  FROM halves JOIN messages ops
    ON ops.broker = halves.broker AND TRY_CAST(ops.properties['TRANS_OFFSET'] AS BIGINT) = halves.physical_offset
  WHERE ops.topic = 'RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC'
)
SELECT begun, store_time AS last_stored, copies, origin_topic, producer_group, born_host, transaction_id, uniq_key, keys,
  broker, topic, queue_id, queue_offset, physical_offset
FROM halves
WHERE place = 1 AND (:since IS NULL OR begun >= :since) AND (:until IS NULL OR begun < :until)
  AND NOT EXISTS (
    SELECT 1 FROM ended WHERE ended.broker = halves.broker AND ended.transaction_id = halves.transaction_id)
ORDER BY begun, broker, physical_offset
