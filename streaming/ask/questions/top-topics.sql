-- The topics that take most of the log, by hour: their messages and bytes.
--
-- :top integer = 10: the number of topics for each hour.
-- :broker text: only messages of this broker.
-- :since time: only messages stored then or later.
-- :until time: only messages stored before then.
--
-- Bytes are those of whole records in the log. Queues and index take more: 20 bytes a message, and 20 a key.
SELECT hour_begins, place, topic, messages, bytes
FROM (
  SELECT hour_begins, topic, messages, bytes,
    row_number() OVER (PARTITION BY hour_begins ORDER BY bytes DESC, topic) AS place
  FROM (
    SELECT date_trunc('hour', store_time) AS hour_begins, topic, count(*) AS messages, sum(msg_size) AS bytes
    FROM messages
    WHERE (:broker IS NULL OR broker = :broker)
      AND (:since IS NULL OR store_time >= :since) AND (:until IS NULL OR store_time < :until)
    GROUP BY date_trunc('hour', store_time), topic
  ) each_hour
) placed
WHERE place <= :top
ORDER BY hour_begins, place
