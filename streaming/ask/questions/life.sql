-- The life of a message: sent, half, committed, waiting, delivered, tried again, given up, in the order of the log.
--
-- :key text, required: one of the message's keys (KEYS), or its unique key.
-- :broker text: only what this broker stored.
--
-- A rollback leaves no copy of the message, so a half message that was rolled back looks like one that is open:
-- `half-open` tells them apart. Whether a consumer took a message is not in the log: `unconsumed` tells.
WITH copies AS (
  SELECT broker, coalesce(uniq_key, msg_id) AS message, kind, topic, queue_id, queue_offset, physical_offset, store_time,
    deliver_time, consumer_group, reconsume_times, transaction_type, msg_id
  FROM messages
  WHERE array_contains(keys, :key) AND kind <> 'trace' AND (:broker IS NULL OR broker = :broker)
  UNION ALL
  SELECT broker, coalesce(uniq_key, msg_id) AS message, kind, topic, queue_id, queue_offset, physical_offset, store_time,
    deliver_time, consumer_group, reconsume_times, transaction_type, msg_id
  FROM messages
  WHERE uniq_key = :key AND NOT array_contains(keys, :key) AND kind <> 'trace' AND (:broker IS NULL OR broker = :broker)
), told AS (
  SELECT *,
    sum(CASE WHEN kind = 'half' THEN 1 ELSE 0 END) OVER before_it AS halves,
    sum(CASE WHEN kind IN ('delayed', 'timer') AND consumer_group IS NULL THEN 1 ELSE 0 END) OVER before_it AS waits
  FROM copies
  WINDOW before_it AS (
    PARTITION BY broker, message ORDER BY physical_offset ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
)
SELECT message,
  CASE
    WHEN kind = 'half' AND halves > 1 THEN 'half, checked'
    WHEN kind = 'half' THEN 'half'
    WHEN kind = 'half_discarded' THEN 'discarded'
    WHEN kind IN ('delayed', 'timer') AND consumer_group IS NOT NULL THEN 'sent back'
    WHEN kind IN ('delayed', 'timer') THEN 'waits'
    WHEN kind = 'retry' THEN 'tried again'
    WHEN kind = 'dlq' THEN 'given up'
    WHEN transaction_type = 'commit' THEN 'committed'
    WHEN waits > 0 THEN 'delivered'
    ELSE 'sent'
  END AS step,
  store_time, deliver_time, consumer_group, reconsume_times, broker, topic, queue_id, queue_offset, physical_offset, msg_id
FROM told
ORDER BY message, store_time, broker, physical_offset
