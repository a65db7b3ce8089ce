-- The messages that a consumer group has not consumed: oldest first.
--
-- :group text, required: the consumer group.
-- :topic text: only this topic.
-- :broker text: only messages of this broker.
-- :since time: only messages stored then or later.
-- :until time: only messages stored before then.
--
-- Reads consumer_offsets.
--
-- The broker writes consumerOffset.json every five seconds and at its end, and the table is as old as its last commit. A
-- queue that the group never committed an offset for is left out. Broadcast consumers keep their offsets to
-- themselves, and popped messages (5.x) that wait for their acknowledgement count as consumed. Messages that
-- the group's filter does not take count as unconsumed until its offset has passed them.
SELECT messages.broker, messages.topic, messages.queue_id, messages.queue_offset, messages.physical_offset,
  messages.store_time, messages.msg_size, messages.tags, messages.keys, messages.uniq_key, messages.msg_id,
  consumer_offsets.consumer_offset
FROM messages
JOIN consumer_offsets
  ON consumer_offsets.topic = messages.topic AND consumer_offsets.queue_id = messages.queue_id
WHERE consumer_offsets.consumer_group = :group AND messages.queue_offset >= consumer_offsets.consumer_offset
  AND messages.transaction_type IN ('none', 'commit')
  AND (:topic IS NULL OR messages.topic = :topic) AND (:broker IS NULL OR messages.broker = :broker)
  AND (:since IS NULL OR messages.store_time >= :since) AND (:until IS NULL OR messages.store_time < :until)
ORDER BY messages.store_time, messages.physical_offset
