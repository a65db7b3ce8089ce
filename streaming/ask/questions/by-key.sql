-- The messages with a key, newest first: where each message is in its queue and in the log.
--
-- :key text, required: one of the message's keys (KEYS), or its unique key.
-- :topic text: only messages under this topic of the log.
-- :broker text: only messages of this broker.
-- :since time: only messages stored then or later.
-- :until time: only messages stored before then.
--
-- Copies of a message have its keys, too: what waited, was tried again or given up. `life` tells what each of them is.
-- The table's key filters name the files that may have the key, so this reads few of them.
SELECT broker, topic, queue_id, queue_offset, physical_offset, msg_size, store_time, born_time, born_host, kind, tags,
  keys, uniq_key, msg_id
FROM messages
WHERE array_contains(keys, :key)
  AND (:topic IS NULL OR topic = :topic) AND (:broker IS NULL OR broker = :broker)
  AND (:since IS NULL OR store_time >= :since) AND (:until IS NULL OR store_time < :until)
UNION ALL
SELECT broker, topic, queue_id, queue_offset, physical_offset, msg_size, store_time, born_time, born_host, kind, tags,
  keys, uniq_key, msg_id
FROM messages
WHERE uniq_key = :key AND NOT array_contains(keys, :key)
  AND (:topic IS NULL OR topic = :topic) AND (:broker IS NULL OR broker = :broker)
  AND (:since IS NULL OR store_time >= :since) AND (:until IS NULL OR store_time < :until)
ORDER BY store_time DESC, broker, physical_offset DESC
