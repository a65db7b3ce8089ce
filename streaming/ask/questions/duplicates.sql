-- Business keys that several messages of a topic have: what was sent twice.
--
-- :topic text: only this topic.
-- :broker text: only messages of this broker.
-- :since time: only messages stored then or later.
-- :until time: only messages stored before then.
--
-- `unique_keys` below `messages` is a client that sent one message again, or a broker that delivered one twice; where
-- both are the same, the producer made several messages for one key, which may be meant. Only messages under a topic of
-- a producer count, not copies that wait or were sent back. A key is one of KEYS, which are split at blanks.
SELECT topic, business_key, count(*) AS messages, count(DISTINCT message) AS unique_keys,
  min(store_time) AS first_stored, max(store_time) AS last_stored
FROM (
  SELECT topic, explode(keys) AS business_key, coalesce(uniq_key, msg_id) AS message, store_time
  FROM messages
  WHERE kind = 'normal'
    AND (:topic IS NULL OR topic = :topic) AND (:broker IS NULL OR broker = :broker)
    AND (:since IS NULL OR store_time >= :since) AND (:until IS NULL OR store_time < :until)
) each_key
GROUP BY topic, business_key
HAVING count(*) > 1
ORDER BY messages DESC, topic, business_key
