-- Gaps and repeats in queue offsets: offsets that no message of the table has, and those that two have.
--
-- :topic text: only this topic.
-- :broker text: only messages of this broker.
-- :since time: only what is before a message that was stored then or later.
-- :until time: only what is before a message that was stored before then.
--
-- A gap is a record that was damaged or lost, or rows that were removed from the table; `left-out` may say which. Gaps
-- before a queue's first row and after its last row are not shown: those records have expired, or have never existed.
-- `physical_offset` and `store_time` are those of the record after the gap, or of the second of two records with one
-- offset.
SELECT broker, topic, queue_id,
  CASE WHEN queue_offset > expected THEN 'gap' ELSE 'repeat' END AS finding,
  CASE WHEN queue_offset > expected THEN expected ELSE queue_offset END AS first_offset,
  CASE WHEN queue_offset > expected THEN queue_offset - 1 ELSE expected - 1 END AS last_offset,
  abs(queue_offset - expected) AS messages, physical_offset, store_time
FROM (
  SELECT broker, topic, queue_id, queue_offset, physical_offset, store_time,
    lag(queue_offset + units) OVER (
      PARTITION BY broker, topic, queue_id ORDER BY queue_offset, physical_offset) AS expected
  FROM (
    SELECT broker, topic, queue_id, queue_offset, physical_offset, store_time,
      -- An inner batch (5.x) is one record and takes a queue offset for each of its messages.
      coalesce(TRY_CAST(properties['INNER_NUM'] AS BIGINT), 1) AS units
    FROM messages
    -- What is prepared or rolled back under its own topic takes no queue offset.
    WHERE transaction_type IN ('none', 'commit')
      AND (:topic IS NULL OR topic = :topic) AND (:broker IS NULL OR broker = :broker)
  ) each_message
) neighbours
WHERE queue_offset <> expected
  AND (:since IS NULL OR store_time >= :since) AND (:until IS NULL OR store_time < :until)
ORDER BY broker, topic, queue_id, first_offset, physical_offset
