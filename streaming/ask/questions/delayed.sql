-- Delayed and timer messages that were not delivered: what waits, and what is overdue.
--
-- :topic text: only messages for this topic.
-- :group text: only messages that this consumer group sent back.
-- :broker text: only messages of this broker.
-- :now time = now: the moment that tells what is overdue.
--
-- A message counts as delivered when the log has it behind that, under its topic: the same unique key, body and number of
-- tries. Of messages without a unique key, two with one body are not told apart. The table is as old as its last
-- commit: what came due since then may have been delivered. A timer message that was recalled (5.x) looks overdue.
SELECT CASE WHEN deliver_time <= :now THEN 'overdue' ELSE 'waits' END AS state,
  deliver_time, store_time, kind, delay_level, real_topic, origin_topic, consumer_group, reconsume_times, uniq_key, keys,
  broker, topic, queue_id, queue_offset, physical_offset
FROM messages waiting
WHERE kind IN ('delayed', 'timer') AND (:broker IS NULL OR broker = :broker)
  AND (:topic IS NULL OR origin_topic = :topic) AND (:group IS NULL OR consumer_group = :group)
  AND NOT EXISTS (
    SELECT 1 FROM messages delivered
    WHERE delivered.broker = waiting.broker AND delivered.topic = waiting.real_topic
      AND coalesce(delivered.uniq_key, '') = coalesce(waiting.uniq_key, '')
      AND delivered.body_crc = waiting.body_crc AND delivered.reconsume_times = waiting.reconsume_times
      AND delivered.physical_offset > waiting.physical_offset)
ORDER BY deliver_time, broker, physical_offset
