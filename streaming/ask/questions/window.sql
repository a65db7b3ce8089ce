-- The messages that a consumer group passed in a period: each with the interval in which its offset passed it.
--
-- :group text, required: the consumer group.
-- :topic text: only this topic.
-- :broker text: only messages of this broker.
-- :since time: only messages that the group may have passed then or later.
-- :until time: only messages that the group may have passed before then.
--
-- Reads consumption.
--
-- `is_certain` is 1 if the whole interval is in the period, and 0 if the offset may have passed the message outside of it.
-- A message that was passed again after a reset has a row for each time. Messages that the group had passed before it was
-- first seen are left out, because the time is not known. The limits of `consumed` also apply to this question.
SELECT messages.broker, messages.topic, messages.queue_id, messages.queue_offset, messages.physical_offset,
  messages.store_time, consumption.seen_before AS passed_after, consumption.seen_after AS passed_before,
  CASE WHEN (:since IS NULL OR consumption.seen_before >= :since) AND (:until IS NULL OR consumption.seen_after <= :until)
    THEN 1 ELSE 0 END AS is_certain,
  messages.tags, messages.keys, messages.uniq_key, messages.msg_id
FROM consumption
JOIN messages
  ON messages.broker = consumption.broker AND messages.topic = consumption.topic
    AND messages.queue_id = consumption.queue_id AND messages.queue_offset >= consumption.offset_before
    AND messages.queue_offset < consumption.offset_after
WHERE consumption.consumer_group = :group AND consumption.move = 'progress'
  AND messages.transaction_type IN ('none', 'commit')
  AND (:topic IS NULL OR messages.topic = :topic) AND (:broker IS NULL OR messages.broker = :broker)
  AND (:since IS NULL OR consumption.seen_after >= :since)
  AND (:until IS NULL OR coalesce(consumption.seen_before, consumption.seen_after) < :until)
ORDER BY consumption.seen_after, messages.broker, messages.topic, messages.queue_id, messages.queue_offset
