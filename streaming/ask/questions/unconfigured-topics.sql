-- Topics on disk without a configuration in the broker: their queues' files, and what the log still has of them.
--
-- :broker text: only messages of this broker.
-- :since time: only messages stored then or later.
-- :until time: only messages stored before then.
--
-- Reads topic_configs, consume_queues, log_segments.
--
-- A topic that was deleted keeps its messages in the log until their segments expire; its queues' files stay if the broker
-- was not there to remove them. Light queues (%LMQ%...) and the op topic of transactions never have a configuration, and are
-- left out. A period restricts messages, not files of queues. Rows that have expired from the log are not counted in `bytes_in_log`.
WITH log_begin AS (SELECT min(physical_offset) AS physical_offset FROM log_segments),
seen AS (
  SELECT topic, count(*) AS messages,
    sum(CASE WHEN messages.physical_offset >= log_begin.physical_offset THEN msg_size ELSE 0 END) AS bytes_in_log,
    max(store_time) AS last_stored, CAST(0 AS BIGINT) AS queue_files, CAST(0 AS BIGINT) AS queue_bytes
  FROM messages CROSS JOIN log_begin
  WHERE (:broker IS NULL OR broker = :broker)
    AND (:since IS NULL OR store_time >= :since) AND (:until IS NULL OR store_time < :until)
  GROUP BY topic
  UNION ALL
  SELECT topic, 0, 0, CAST(NULL AS TIMESTAMP), sum(files), sum(bytes) FROM consume_queues GROUP BY topic
)
SELECT topic, sum(messages) AS messages, sum(bytes_in_log) AS bytes_in_log, max(last_stored) AS last_stored,
  sum(queue_files) AS queue_files, sum(queue_bytes) AS queue_bytes
FROM seen
WHERE substring(topic, 1, 5) <> '%LMQ%' AND topic NOT IN ('RMQ_SYS_TRANS_OP_HALF_TOPIC', 'RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC')
  AND NOT EXISTS (SELECT 1 FROM topic_configs WHERE topic_configs.topic = seen.topic)
GROUP BY topic
ORDER BY bytes_in_log DESC, queue_bytes DESC, topic
