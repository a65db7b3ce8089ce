-- Who consumed a message, and when: each time that a consumer group passed it, waits for it, or was reset over it.
--
-- :key text, required: one of the message's keys (KEYS), its unique key, or its message id.
-- :group text: only this consumer group.
-- :broker text: only messages of this broker.
-- :since time: only messages stored then or later.
-- :until time: only messages stored before then.
--
-- Reads consumption, evidence.
--
-- The group's offset passed the message between `passed_after` and `passed_before`, `precision_ms` apart. The consumer got
-- the message before `passed_before`, and may have got it before `passed_after`: a client reports its offset some seconds
-- later, and not beyond a message that it still works on. `passed` is consumed, filtered out, or skipped by a reset ahead,
-- which a broker's files do not tell apart. `passed before it was watched` is one of these, at an unknown time.
-- `passed or begun behind it` is a group that was new and began after the message, or consumed it at once.
-- `waits` is true until `seen_until`, the last time that the ledger has of the broker. `unknown` is a group without an
-- offset in the queue: it never subscribed, reported no offset, consumes by broadcast, or no tail ran.
-- Copies for a retry or a dead letter are messages of their own, with rows of their own.
--
-- `evidence` is what a row rests on: `offset` is the ledger; `trace` is a message trace of a client; `pop` is a record of the
-- broker that serves POP consumers; `evidence_offset` is where that is in the log. By them a message was `given` to a
-- consumer, `consumed` or `failed`, `postponed` or `acknowledged`; a producer's traces, which have no consumer group, say
-- `sent`, `committed` or `rolled back`. Traces are by the client's clock. Bodies of traces and POP records are read from the
-- table, or with --store from the log. A message without traces need not be lost: its clients may write none.
WITH copies AS (
  SELECT broker, topic, queue_id, queue_offset, physical_offset, store_time, kind, reconsume_times, msg_id, uniq_key,
    transaction_type, consumer_group
  FROM messages
  WHERE array_contains(keys, :key)
  UNION ALL
  SELECT broker, topic, queue_id, queue_offset, physical_offset, store_time, kind, reconsume_times, msg_id, uniq_key,
    transaction_type, consumer_group
  FROM messages
  WHERE uniq_key = :key AND NOT array_contains(keys, :key)
  UNION ALL
  SELECT broker, topic, queue_id, queue_offset, physical_offset, store_time, kind, reconsume_times, msg_id, uniq_key,
    transaction_type, consumer_group
  FROM messages
  WHERE msg_id = :key AND NOT array_contains(keys, :key) AND coalesce(uniq_key, '') <> :key
), copy AS (
  SELECT * FROM copies
  WHERE kind IN ('normal', 'retry', 'dlq', 'reply') AND transaction_type IN ('none', 'commit')
    AND (:broker IS NULL OR broker = :broker)
    AND (:group IS NULL OR kind NOT IN ('retry', 'dlq') OR coalesce(consumer_group, :group) = :group)
    AND (:since IS NULL OR store_time >= :since) AND (:until IS NULL OR store_time < :until)
    AND NOT EXISTS (
      SELECT 1 FROM evidence AS own WHERE own.state = 'is a trace' AND own.broker = copies.broker
        AND own.physical_offset = copies.physical_offset)
), known AS (
  SELECT DISTINCT broker, topic, consumer_group FROM consumption WHERE (:group IS NULL OR consumer_group = :group)
  UNION
  SELECT DISTINCT broker, topic, :group AS consumer_group FROM copy
  WHERE :group IS NOT NULL AND (kind NOT IN ('retry', 'dlq') OR consumer_group = :group)
), last_seen AS (
  SELECT broker, max(seen_after) AS seen_until FROM consumption GROUP BY broker
), moved AS (
  SELECT *, row_number() OVER (
    PARTITION BY broker, consumer_group, topic, queue_id ORDER BY seen_after DESC) AS from_last
  FROM consumption
), told AS (
  SELECT copy.*, known.consumer_group AS by_group, last_seen.seen_until, moved.seen_before, moved.seen_after,
    CASE
      WHEN known.consumer_group IS NULL OR moved.move IS NULL THEN 'unknown'
      WHEN moved.move = 'progress' AND moved.offset_before <= queue_offset AND queue_offset < moved.offset_after
        THEN 'passed'
      WHEN moved.move = 'first_seen' AND queue_offset < moved.offset_after AND moved.seen_before IS NULL
        THEN 'passed before it was watched'
      WHEN moved.move = 'first_seen' AND queue_offset < moved.offset_after THEN 'passed or begun behind it'
      WHEN moved.move = 'reset_back' AND moved.offset_after <= queue_offset AND queue_offset < moved.offset_before
        THEN 'reset back over it'
      WHEN moved.move = 'gone' THEN 'offset removed'
    END AS state,
    CASE WHEN moved.from_last = 1 AND moved.offset_after <= queue_offset THEN 1 ELSE 0 END AS waits
  FROM copy
  LEFT JOIN known ON known.broker = copy.broker AND known.topic = copy.topic
  LEFT JOIN last_seen ON last_seen.broker = copy.broker
  LEFT JOIN moved ON moved.broker = copy.broker AND moved.topic = copy.topic AND moved.queue_id = copy.queue_id
    AND moved.consumer_group = known.consumer_group
), stated AS (
  SELECT * FROM told WHERE state IS NOT NULL
  UNION ALL
  SELECT broker, topic, queue_id, queue_offset, physical_offset, store_time, kind, reconsume_times, msg_id, uniq_key,
    transaction_type, consumer_group, by_group, seen_until, NULL, NULL, 'waits', 1
  FROM told WHERE waits = 1
), by_offset AS (
  SELECT by_group AS consumer_group, state, CASE WHEN state <> 'unknown' THEN 'offset' END AS evidence,
    CASE WHEN state IN ('unknown', 'waits') OR seen_before IS NULL OR seen_before < store_time THEN
      CASE WHEN state IN ('passed', 'passed before it was watched') THEN store_time END
      ELSE seen_before END AS passed_after,
    seen_after AS passed_before, unix_millis(seen_after) - unix_millis(seen_before) AS precision_ms, seen_until,
    store_time, kind, reconsume_times, broker, topic, queue_id, queue_offset, physical_offset, msg_id,
    CAST(NULL AS BIGINT) AS evidence_offset, CAST(NULL AS STRING) AS detail
  FROM stated
  WHERE state <> 'unknown' OR NOT EXISTS (
    SELECT 1 FROM evidence AS told WHERE told.broker = stated.broker AND told.physical_offset = stated.physical_offset
      AND told.consumer_group IS NOT NULL AND (stated.by_group IS NULL OR told.consumer_group = stated.by_group))
), by_record AS (
  SELECT evidence.consumer_group, evidence.state, evidence.evidence, happened_after AS passed_after,
    happened_before AS passed_before, unix_millis(happened_before) - unix_millis(happened_after) AS precision_ms,
    CAST(NULL AS TIMESTAMP) AS seen_until, store_time, kind, reconsume_times, copy.broker, topic, queue_id,
    queue_offset, copy.physical_offset, msg_id, evidence_offset, detail
  FROM copy JOIN evidence ON evidence.broker = copy.broker AND evidence.physical_offset = copy.physical_offset
)
SELECT * FROM by_offset
UNION ALL
SELECT * FROM by_record
ORDER BY store_time, broker, physical_offset, consumer_group NULLS FIRST, passed_before NULLS LAST, evidence, state
