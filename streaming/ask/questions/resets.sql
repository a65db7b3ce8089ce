-- Resets of consumer groups: offsets that went back, and offsets that are gone, newest first.
--
-- :group text: only this consumer group.
-- :topic text: only this topic.
-- :broker text: only offsets of this broker.
-- :since time: only resets that were seen then or later.
-- :until time: only resets that were seen before then.
--
-- Reads consumption.
--
-- `messages` is how many messages the group was sent back over. A reset ahead is not shown, because a broker's files do not
-- tell it from progress. A reset back whose messages were all consumed again before the next look is not seen.
SELECT broker, consumer_group, topic, queue_id, move, offset_before, offset_after, offset_before - offset_after AS messages,
  seen_before, seen_after
FROM consumption
WHERE move IN ('reset_back', 'gone')
  AND (:group IS NULL OR consumer_group = :group) AND (:topic IS NULL OR topic = :topic)
  AND (:broker IS NULL OR broker = :broker)
  AND (:since IS NULL OR seen_after >= :since) AND (:until IS NULL OR seen_after < :until)
ORDER BY seen_after DESC, broker, consumer_group, topic, queue_id
