-- Who consumed a message, and when: each time that a consumer group passed it, waits for it, or was reset over it.
--
-- :key text, required: one of the message's keys (KEYS), its unique key, or its message id.
-- :group text: only this consumer group.
-- :broker text: only messages of this broker.
-- :since time: only messages stored then or later.
-- :until time: only messages stored before then.
--
-- Reads copies, consumption, evidence.
--
-- The group passed the message between `passed_after` and `passed_before`, `precision_ms` apart: its consumer had then got
-- this message and all before it in the queue. This holds whenever the client reported that. The broker's offset moved
-- after `moved_after`; clients report every 5 s, and for the first time 10 s after they start. `passed` is consumed,
-- filtered out, or skipped by a reset ahead, which a broker's files do not tell apart. `passed before it was watched` is
-- one of these, at an unknown time.
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
WITH copy AS (
  SELECT * FROM copies
  WHERE (:group IS NULL OR kind NOT IN ('retry', 'dlq') OR coalesce(consumer_group, :group) = :group)
    AND NOT EXISTS (
      SELECT 1 FROM evidence AS own WHERE own.state = 'is a trace' AND own.broker = copies.broker
        AND own.physical_offset = copies.physical_offset)
), known AS (
  SELECT DISTINCT broker, topic, consumer_group FROM consumption WHERE (:group IS NULL OR consumer_group = :group)
  UNION
  SELECT DISTINCT broker, topic, :group AS consumer_group FROM copy
  WHERE :group IS NOT NULL AND (kind NOT IN ('retry', 'dlq') OR consumer_group = :group)
), moved AS (
  SELECT *,
    row_number() OVER (PARTITION BY broker, consumer_group, topic, queue_id ORDER BY seen_after DESC) AS from_last,
    lag(offset_after) OVER (PARTITION BY broker, consumer_group, topic, queue_id ORDER BY seen_after) AS came_to,
    lag(seen_before) OVER (PARTITION BY broker, consumer_group, topic, queue_id ORDER BY seen_after) AS came_after
  FROM consumption
), told AS (
  SELECT copy.*, known.consumer_group AS by_group, moved.seen_before, moved.seen_after,
    CASE WHEN moved.came_to = moved.offset_before THEN moved.came_after END AS came_after,
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
  LEFT JOIN moved ON moved.broker = copy.broker AND moved.topic = copy.topic AND moved.queue_id = copy.queue_id
    AND moved.consumer_group = known.consumer_group
), stated AS (
  SELECT * FROM told WHERE state IS NOT NULL
  UNION ALL
  SELECT broker, topic, queue_id, queue_offset, physical_offset, store_time, kind, reconsume_times, uniq_key, msg_id,
    consumer_group, seen_until, by_group, NULL, NULL, NULL, 'waits', 1
  FROM told WHERE waits = 1
), by_offset AS (
  SELECT by_group AS consumer_group, state, CASE WHEN state <> 'unknown' THEN 'offset' END AS evidence,
    CASE WHEN state = 'passed' THEN greatest(store_time, came_after) WHEN state LIKE 'passed %' THEN store_time
      ELSE seen_before END AS passed_after,
    seen_after AS passed_before, seen_before AS moved_after, seen_until, store_time, kind, reconsume_times, broker, topic,
    queue_id, queue_offset, physical_offset, msg_id, CAST(NULL AS BIGINT) AS evidence_offset, CAST(NULL AS STRING) AS detail
  FROM stated
  WHERE state <> 'unknown' OR NOT EXISTS (
    SELECT 1 FROM evidence AS told WHERE told.broker = stated.broker AND told.physical_offset = stated.physical_offset
      AND told.consumer_group IS NOT NULL AND (stated.by_group IS NULL OR told.consumer_group = stated.by_group))
), by_record AS (
  SELECT evidence.consumer_group, evidence.state, evidence.evidence, happened_after AS passed_after,
    happened_before AS passed_before, CAST(NULL AS TIMESTAMP) AS moved_after, CAST(NULL AS TIMESTAMP) AS seen_until,
    store_time, kind, reconsume_times, copy.broker, topic, queue_id, queue_offset, copy.physical_offset, msg_id,
    evidence_offset, detail
  FROM copy JOIN evidence ON evidence.broker = copy.broker AND evidence.physical_offset = copy.physical_offset
  WHERE :group IS NULL OR evidence.consumer_group IS NULL OR evidence.consumer_group = :group
)
SELECT consumer_group, state, evidence, passed_after, passed_before,
  unix_millis(passed_before) - unix_millis(passed_after) AS precision_ms, moved_after, seen_until, store_time, kind,
  reconsume_times, broker, topic, queue_id, queue_offset, physical_offset, msg_id, evidence_offset, detail
FROM (SELECT * FROM by_offset UNION ALL SELECT * FROM by_record) AS answers
ORDER BY store_time, broker, physical_offset, consumer_group NULLS FIRST, passed_before NULLS LAST, evidence, state
