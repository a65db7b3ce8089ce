-- Message sizes and delays from producer to broker: percentiles by topic.
--
-- :topic text: only this topic.
-- :broker text: only messages of this broker.
-- :since time: only messages stored then or later.
-- :until time: only messages stored before then.
--
-- A size is that of the whole record in bytes. A delay is store_time - born_time in milliseconds. born_time is from the
-- producer's clock: if it is ahead of the broker's clock, a delay is negative. Messages that waited, or were part of a
-- transaction, were born long before they were stored, and are left out. A message without a unique key is left out,
-- too, if one that waited looks the same. A percentile is a value that occurs: the least one that this share of the
-- values does not exceed.
SELECT topic, count(*) AS messages,
  CAST(percentile_disc(0.5) WITHIN GROUP (ORDER BY msg_size) AS BIGINT) AS size_50,
  CAST(percentile_disc(0.9) WITHIN GROUP (ORDER BY msg_size) AS BIGINT) AS size_90,
  CAST(percentile_disc(0.99) WITHIN GROUP (ORDER BY msg_size) AS BIGINT) AS size_99,
  max(msg_size) AS size_max,
  CAST(percentile_disc(0.5) WITHIN GROUP (ORDER BY delay_ms) AS BIGINT) AS delay_ms_50,
  CAST(percentile_disc(0.9) WITHIN GROUP (ORDER BY delay_ms) AS BIGINT) AS delay_ms_90,
  CAST(percentile_disc(0.99) WITHIN GROUP (ORDER BY delay_ms) AS BIGINT) AS delay_ms_99,
  max(delay_ms) AS delay_ms_max
FROM (
  SELECT topic, msg_size, unix_millis(store_time) - unix_millis(born_time) AS delay_ms
  FROM messages sent
  WHERE kind = 'normal' AND transaction_type <> 'commit'
    AND (:topic IS NULL OR topic = :topic) AND (:broker IS NULL OR broker = :broker)
    AND (:since IS NULL OR store_time >= :since) AND (:until IS NULL OR store_time < :until)
    AND NOT EXISTS (
      SELECT 1 FROM messages waited
      WHERE waited.kind IN ('delayed', 'timer') AND waited.consumer_group IS NULL AND waited.broker = sent.broker
        AND coalesce(waited.uniq_key, '') = coalesce(sent.uniq_key, ''))
) each_message
GROUP BY topic
ORDER BY topic
