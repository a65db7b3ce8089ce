-- Messages and bytes by sender: the producer's host, its client behind a proxy, and topic.
--
-- :topic text: only this topic.
-- :broker text: only messages of this broker.
-- :since time: only messages stored then or later.
-- :until time: only messages stored before then.
--
-- `connections` counts the ports from which a host sent. RocketMQ stores the producer's group only with messages of
-- transactions. It stores the address of a client behind a proxy (5.x) in a property, and does not store the client's
-- language or version. A proxy does not know the group, so messages that came through one have none here. A message
-- that waits, or is half, counts once it is under its topic.
SELECT host, client, producer_group, topic, count(*) AS messages, sum(msg_size) AS bytes,
  count(DISTINCT born_host) AS connections, min(store_time) AS first_stored, max(store_time) AS last_stored
FROM (
  SELECT regexp_replace(born_host, ':[0-9]+$', '') AS host, regexp_replace(client_host, ':[0-9]+$', '') AS client,
    -- Rows of earlier versions of reput have the topic there, which a proxy stores in the place of a group.
    CASE WHEN client_host IS NULL OR producer_group <> origin_topic THEN producer_group END AS producer_group,
    topic, msg_size, born_host, store_time
  FROM messages
  WHERE kind = 'normal'
    AND (:topic IS NULL OR topic = :topic) AND (:broker IS NULL OR broker = :broker)
    AND (:since IS NULL OR store_time >= :since) AND (:until IS NULL OR store_time < :until)
) each_message
GROUP BY host, client, producer_group, topic
ORDER BY messages DESC, host, client, producer_group, topic
