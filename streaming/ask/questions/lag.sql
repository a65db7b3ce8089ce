-- How far consumer groups are behind: messages not consumed, and the oldest of them, by group, topic and queue.
--
-- :group text: only this consumer group.
-- :topic text: only this topic.
-- :broker text: only messages of this broker.
-- :since time: only unconsumed messages stored then or later.
-- :until time: only unconsumed messages stored before then.
--
-- Reads consumer_offsets.
--
-- `next_offset` is one more than the queue offset of the last message in the table, and NULL if the table has none. The
-- limits of `unconsumed` also apply to this question.
SELECT consumer_offsets.consumer_group, consumer_offsets.topic, consumer_offsets.queue_id,
  consumer_offsets.consumer_offset, max(stored.queue_offset) + 1 AS next_offset,
  sum(CASE WHEN stored.queue_offset >= consumer_offsets.consumer_offset AND stored.counts THEN 1 ELSE 0 END) AS unconsumed,
  min(CASE WHEN stored.queue_offset >= consumer_offsets.consumer_offset AND stored.counts THEN stored.store_time END) AS oldest_stored
FROM consumer_offsets
LEFT JOIN (
  SELECT topic, queue_id, queue_offset, store_time,
    (:since IS NULL OR store_time >= :since) AND (:until IS NULL OR store_time < :until) AS counts
  FROM messages
  WHERE transaction_type IN ('none', 'commit') AND (:broker IS NULL OR broker = :broker)
) stored ON stored.topic = consumer_offsets.topic AND stored.queue_id = consumer_offsets.queue_id
WHERE (:group IS NULL OR consumer_offsets.consumer_group = :group)
  AND (:topic IS NULL OR consumer_offsets.topic = :topic)
GROUP BY consumer_offsets.consumer_group, consumer_offsets.topic, consumer_offsets.queue_id,
  consumer_offsets.consumer_offset
ORDER BY unconsumed DESC, consumer_offsets.consumer_group, consumer_offsets.topic, consumer_offsets.queue_id
