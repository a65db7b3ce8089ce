-- Delayed and timer messages that were not delivered: what waits, and what is overdue.
--
-- :topic text: only messages for this topic.
-- :group text: only messages that this consumer group sent back.
-- :broker text: only messages of this broker.
-- :since time: only messages stored then or later.
-- :until time: only messages stored before then.
-- :now time = now: the moment that tells what is overdue.
--
-- A message counts as delivered when the log has it again later, under its topic, with the same unique key, body and
-- number of tries. Two messages without a unique key that have the same body cannot be told apart. The table is as old
-- as its last commit, so messages that have come due since then may have been delivered. A broker of 5.x stores a timer
-- message that is far ahead again each time its wheel has gone round. The last row of such a message is shown, and
-- `rolls` counts the others. A message that was recalled is left out, because it is never delivered; `life` shows it.
WITH waiting AS (
  SELECT deliver_time, store_time, kind, delay_level, real_topic, origin_topic, consumer_group, reconsume_times, uniq_key,
    keys, body_crc, broker, topic, queue_id, queue_offset, physical_offset,
    coalesce(TRY_CAST(properties['TIMER_ROLL_TIMES'] AS BIGINT), 0) AS rolls,
    topic = 'rmq_sys_wheel_timer' AND properties['TIMER_DEL_UNIQKEY'] IS NOT NULL AS is_mark
  FROM messages
  WHERE kind IN ('delayed', 'timer', 'recall') AND (:broker IS NULL OR broker = :broker)
)
SELECT CASE WHEN deliver_time <= :now THEN 'overdue' ELSE 'waits' END AS state,
  deliver_time, store_time, kind, delay_level, real_topic, origin_topic, consumer_group, reconsume_times, rolls, uniq_key,
  keys, broker, topic, queue_id, queue_offset, physical_offset
FROM waiting
WHERE NOT is_mark
  AND (:topic IS NULL OR origin_topic = :topic) AND (:group IS NULL OR consumer_group = :group)
  AND (:since IS NULL OR store_time >= :since) AND (:until IS NULL OR store_time < :until)
  AND NOT EXISTS (
    SELECT 1 FROM messages delivered
    WHERE delivered.broker = waiting.broker AND delivered.topic = waiting.real_topic
      AND coalesce(delivered.uniq_key, '') = coalesce(waiting.uniq_key, '')
      AND delivered.body_crc = waiting.body_crc AND delivered.reconsume_times = waiting.reconsume_times
      AND delivered.physical_offset > waiting.physical_offset)
  AND NOT EXISTS (
    SELECT 1 FROM waiting rolled
    WHERE rolled.broker = waiting.broker AND rolled.topic = waiting.topic AND rolled.real_topic = waiting.real_topic
      AND coalesce(rolled.uniq_key, '') = coalesce(waiting.uniq_key, '')
      AND rolled.body_crc = waiting.body_crc AND rolled.reconsume_times = waiting.reconsume_times
      AND NOT rolled.is_mark AND rolled.rolls > waiting.rolls AND rolled.physical_offset > waiting.physical_offset)
  AND NOT EXISTS (
    SELECT 1 FROM waiting mark
    WHERE mark.is_mark AND mark.broker = waiting.broker AND mark.topic = waiting.topic
      AND mark.real_topic = waiting.real_topic AND mark.uniq_key = waiting.uniq_key)
ORDER BY deliver_time, broker, physical_offset
