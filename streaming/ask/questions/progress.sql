-- The progress of consumer groups: each move of an offset in a queue that the ledger of consumption has, in order.
--
-- :group text: only this consumer group.
-- :topic text: only this topic.
-- :broker text: only offsets of this broker.
-- :since time: only moves that were seen then or later.
-- :until time: only moves that were seen before then.
--
-- Reads consumption.
--
-- A move came between `seen_before` and `seen_after`. An interval that is longer than 10 s spans a time in which no tail
-- ran, or in which the broker's file was damaged. A reset ahead looks like progress.
SELECT broker, consumer_group, topic, queue_id, move, offset_before, offset_after, offset_after - offset_before AS messages,
  seen_before, seen_after
FROM consumption
WHERE (:group IS NULL OR consumer_group = :group) AND (:topic IS NULL OR topic = :topic)
  AND (:broker IS NULL OR broker = :broker)
  AND (:since IS NULL OR seen_after >= :since) AND (:until IS NULL OR seen_after < :until)
ORDER BY seen_after, broker, consumer_group, topic, queue_id
