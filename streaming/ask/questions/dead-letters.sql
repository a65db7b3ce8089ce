-- The messages that a consumer group gave up (its DLQ): oldest first, each with what it was when it was sent.
--
-- :group text: only this consumer group.
-- :topic text: only messages that were sent to this topic.
-- :broker text: only messages of this broker.
-- :since time: only messages given up then or later.
-- :until time: only messages given up before then.
--
-- `sent` is when the message was first stored; it is NULL where the table does not have it any more.
SELECT dead.store_time, sent.sent, dead.consumer_group, dead.origin_topic, dead.reconsume_times, dead.tags, dead.keys,
  dead.uniq_key, dead.born_host, dead.broker, dead.topic, dead.queue_id, dead.queue_offset, dead.physical_offset
FROM messages dead
LEFT JOIN (
  SELECT uniq_key, min(store_time) AS sent FROM messages WHERE kind IN ('normal', 'half') GROUP BY uniq_key
) sent ON sent.uniq_key = dead.uniq_key
WHERE dead.kind = 'dlq'
  AND (:group IS NULL OR dead.consumer_group = :group) AND (:topic IS NULL OR dead.origin_topic = :topic)
  AND (:broker IS NULL OR dead.broker = :broker)
  AND (:since IS NULL OR dead.store_time >= :since) AND (:until IS NULL OR dead.store_time < :until)
ORDER BY dead.store_time, dead.broker, dead.physical_offset
