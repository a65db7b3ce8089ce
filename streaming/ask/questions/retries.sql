-- Messages that consumer groups could not consume: sent back, tried again and given up, by group and topic.
--
-- :group text: only this consumer group.
-- :topic text: only messages that were sent to this topic.
-- :broker text: only messages of this broker.
-- :since time: only what was stored then or later.
-- :until time: only what was stored before then.
--
-- `messages` counts each message once, `sent_back` what the group returned to the broker to wait for its next try,
-- `tried_again` deliveries to its retry topic, `given_up` what is in its DLQ. Orderly consumers try again in their own
-- process, which the log does not show. Retry topics of popped messages (5.x) of the first version name group and
-- topic in one, and so does `consumer_group`.
SELECT broker, consumer_group, origin_topic,
  count(DISTINCT coalesce(uniq_key, origin_msg_id, msg_id)) AS messages,
  sum(CASE WHEN kind IN ('delayed', 'timer') THEN 1 ELSE 0 END) AS sent_back,
  sum(CASE WHEN kind = 'retry' THEN 1 ELSE 0 END) AS tried_again,
  sum(CASE WHEN kind = 'dlq' THEN 1 ELSE 0 END) AS given_up,
  max(reconsume_times) AS most_times, min(store_time) AS first_stored, max(store_time) AS last_stored
FROM messages
WHERE consumer_group IS NOT NULL
  AND (:group IS NULL OR consumer_group = :group) AND (:topic IS NULL OR origin_topic = :topic)
  AND (:broker IS NULL OR broker = :broker)
  AND (:since IS NULL OR store_time >= :since) AND (:until IS NULL OR store_time < :until)
GROUP BY broker, consumer_group, origin_topic
ORDER BY given_up DESC, tried_again DESC, broker, consumer_group, origin_topic
