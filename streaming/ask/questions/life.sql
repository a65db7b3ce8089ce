-- The life of a message: sent, half, committed, waiting, recalled, delivered, tried again, given up.
--
-- :key text, required: one of the message's keys (KEYS), or its unique key.
-- :broker text: only what this broker stored.
-- :since time: only what was stored then or later.
-- :until time: only what was stored before then.
--
-- A rollback leaves no copy of the message, so a half message that was rolled back looks like an open one; `half-open`
-- tells them apart. The log does not say whether a consumer took a message; `unconsumed` does. A timer message that was
-- recalled (5.x) is not delivered, unless it was recalled too late. The mark of a recall has the message's unique key
-- but not its other keys, so ask for the `message` to see it. `rolled on` is a timer message that was stored again and
-- keeps waiting.
WITH copies AS (
  SELECT broker, coalesce(uniq_key, msg_id) AS message, kind, topic, queue_id, queue_offset, physical_offset, store_time,
    deliver_time, consumer_group, reconsume_times, transaction_type, msg_id, properties
  FROM messages
  WHERE array_contains(keys, :key) AND kind <> 'trace' AND (:broker IS NULL OR broker = :broker)
  UNION ALL
  SELECT broker, coalesce(uniq_key, msg_id) AS message, kind, topic, queue_id, queue_offset, physical_offset, store_time,
    deliver_time, consumer_group, reconsume_times, transaction_type, msg_id, properties
  FROM messages
  WHERE uniq_key = :key AND NOT array_contains(keys, :key) AND kind <> 'trace' AND (:broker IS NULL OR broker = :broker)
), named AS (
  SELECT broker, message, topic, queue_id, queue_offset, physical_offset, store_time, consumer_group,
    CASE WHEN topic <> 'rmq_sys_wheel_timer' OR properties['TIMER_DEL_UNIQKEY'] IS NULL THEN deliver_time END AS deliver_time,
    reconsume_times, transaction_type, msg_id, properties['TIMER_ROLL_TIMES'] IS NOT NULL AS is_rolled,
    -- Rows of earlier versions of reput have other kinds there.
    CASE WHEN topic = 'RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC' THEN 'half'
         WHEN topic = 'rmq_sys_wheel_timer' AND properties['TIMER_DEL_UNIQKEY'] IS NOT NULL THEN 'recall'
         ELSE kind END AS kind
  FROM copies
), told AS (
  SELECT *,
    sum(CASE WHEN kind = 'half' THEN 1 ELSE 0 END) OVER before_it AS halves,
    sum(CASE WHEN kind IN ('delayed', 'timer') AND consumer_group IS NULL THEN 1 ELSE 0 END) OVER before_it AS waits
  FROM named
  WINDOW before_it AS (
    PARTITION BY broker, message ORDER BY physical_offset ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
)
SELECT message,
  CASE
    WHEN kind = 'half' AND halves > 1 THEN 'half, checked'
    WHEN kind = 'half' THEN 'half'
    WHEN kind = 'half_discarded' THEN 'discarded'
    WHEN kind = 'recall' THEN 'recalled'
    WHEN kind = 'timer' AND is_rolled AND consumer_group IS NULL THEN 'rolled on'
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
WHERE (:since IS NULL OR store_time >= :since) AND (:until IS NULL OR store_time < :until)
ORDER BY message, store_time, broker, physical_offset
