-- Statements that mean the same to both engines of `reput sql`, one a line; those that end with an order have all of it.
-- kind: rows and columns
SELECT * FROM messages ORDER BY physical_offset
SELECT topic, queue_id, queue_offset, msg_size FROM messages ORDER BY physical_offset
SELECT DISTINCT topic, kind FROM messages
SELECT store_time, born_time, deliver_time FROM messages ORDER BY physical_offset
SELECT keys, properties, tags, uniq_key FROM messages ORDER BY physical_offset
SELECT body, body_bytes, body_size FROM messages ORDER BY physical_offset
SELECT m.topic AS t, m.queue_id q FROM messages AS m WHERE m.queue_offset = 0 ORDER BY m.physical_offset
SELECT tags FROM messages ORDER BY tags, physical_offset
SELECT tags, physical_offset FROM messages ORDER BY tags DESC, physical_offset DESC
SELECT physical_offset FROM messages ORDER BY physical_offset DESC LIMIT 3
SELECT physical_offset FROM messages ORDER BY physical_offset LIMIT 3 OFFSET 2
VALUES (1, 'a'), (2, NULL)
SELECT 1 AS a, 'x' AS b, NULL AS c, true AS d, DATE '2020-01-31' AS e
-- kind: conditions
SELECT count(*) FROM messages WHERE kind = 'normal' AND queue_id >= 0 OR tags IS NULL
SELECT count(*) FROM messages WHERE kind IN ('half', 'retry') AND topic NOT IN ('x')
SELECT count(*) FROM messages WHERE topic LIKE 'RMQ%' OR topic ILIKE '%retry%'
SELECT count(*) FROM messages WHERE queue_offset BETWEEN 1 AND 5 AND NOT queue_id = 1
SELECT count(*) FROM messages WHERE tags IS DISTINCT FROM 'TagA'
SELECT count(*) FROM messages WHERE store_time >= TIMESTAMP '2020-01-01 00:00:00'
SELECT count(*) FROM messages WHERE array_contains(keys, 'order-7')
SELECT count(*) FROM messages WHERE uniq_key = first_key
SELECT count(*) FROM messages WHERE properties['TAGS'] = tags
SELECT physical_offset FROM messages WHERE (SELECT max(queue_offset) FROM messages) = queue_offset ORDER BY physical_offset
-- kind: values
SELECT queue_id + 1, queue_id - 1, queue_id * 2, queue_offset % 3, -queue_id FROM messages ORDER BY physical_offset
SELECT msg_size / 7.0E0, CAST(msg_size AS DOUBLE), CAST(queue_id AS DECIMAL(10, 2)) FROM messages ORDER BY physical_offset
SELECT topic || '-' || queue_id, upper(topic), length(topic), substring(topic, 2, 3), trim(tags) FROM messages ORDER BY physical_offset
SELECT coalesce(tags, 'none'), nullif(topic, kind), CASE WHEN queue_id = 0 THEN 'a' ELSE 'b' END FROM messages ORDER BY physical_offset
SELECT CAST(queue_offset AS INT), CAST('12' AS BIGINT), TRY_CAST(topic AS INT) FROM messages ORDER BY physical_offset
SELECT date_trunc('hour', store_time), EXTRACT(YEAR FROM store_time), EXTRACT(MINUTE FROM store_time) FROM messages ORDER BY physical_offset
SELECT store_time + INTERVAL '1' DAY, CAST(store_time AS DATE) FROM messages ORDER BY physical_offset
SELECT map_keys(properties), map_values(properties), cardinality(keys) FROM messages WHERE cardinality(keys) > 0 ORDER BY physical_offset
SELECT unix_millis(store_time), timestamp_millis(queue_offset) FROM messages ORDER BY physical_offset
SELECT unix_millis(TIMESTAMP '2026-01-01 00:00:00.0009'), unix_millis(TIMESTAMP '1969-12-31 23:59:59.9991'), timestamp_millis(-1)
SELECT physical_offset, explode(keys) AS k FROM messages ORDER BY physical_offset, k
SELECT greatest(queue_id, 1), least(queue_id, 1), abs(-queue_id), round(1.5E0), sqrt(4E0) FROM messages ORDER BY physical_offset
SELECT md5('a'), lower('ÄB'), replace('aXb', 'X', 'ü'), reverse('abc'), lpad('a', 3, '.'), concat('a', 'b')
-- kind: groups
SELECT count(*), count(tags), count(DISTINCT tags), min(store_time), max(store_time) FROM messages
SELECT topic, count(*), sum(msg_size), avg(msg_size), min(queue_offset), max(queue_offset) FROM messages GROUP BY topic ORDER BY topic
SELECT topic, queue_id, count(*) FROM messages GROUP BY topic, queue_id HAVING count(*) > 1 ORDER BY topic, queue_id
SELECT kind, count(*) FILTER (WHERE tags = 'TagA') FROM messages GROUP BY kind ORDER BY kind
SELECT topic, kind, count(*) FROM messages GROUP BY ROLLUP (topic, kind)
SELECT topic, kind, grouping(kind), count(*) FROM messages GROUP BY GROUPING SETS ((topic), (kind), ())
SELECT topic, count(*) FROM messages GROUP BY ALL ORDER BY topic
SELECT median(msg_size), bool_and(queue_id >= 0), max_by(topic, physical_offset), min_by(topic, physical_offset) FROM messages
SELECT sum(physical_offset), sum(queue_id), sum(CAST(queue_id AS DECIMAL(10, 2))) FROM messages
-- kind: windows
SELECT row_number() OVER (PARTITION BY topic ORDER BY physical_offset), topic, physical_offset FROM messages ORDER BY physical_offset
SELECT physical_offset, lag(tags, 1) OVER w, lead(tags) OVER w, sum(msg_size) OVER w FROM messages WINDOW w AS (ORDER BY physical_offset) ORDER BY physical_offset
SELECT topic, physical_offset FROM messages QUALIFY row_number() OVER (PARTITION BY topic ORDER BY physical_offset) = 1
SELECT kind, tags, count(*), sum(count(*)) OVER () FROM messages GROUP BY kind, tags
SELECT physical_offset, sum(msg_size) OVER (ORDER BY physical_offset ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM messages ORDER BY physical_offset
-- kind: joins, subqueries and sets
SELECT a.physical_offset, b.topic FROM messages a JOIN messages b ON a.uniq_key = b.uniq_key AND a.physical_offset < b.physical_offset
SELECT a.physical_offset, b.physical_offset FROM messages a LEFT JOIN messages b ON a.uniq_key = b.uniq_key AND b.kind = 'half'
SELECT topic FROM messages UNION SELECT kind FROM messages
SELECT topic FROM messages EXCEPT SELECT origin_topic FROM messages
SELECT topic FROM messages INTERSECT SELECT origin_topic FROM messages
SELECT count(*) FROM messages m WHERE EXISTS (SELECT 1 FROM messages n WHERE n.uniq_key = m.uniq_key AND n.kind = 'half')
SELECT count(*) FROM messages WHERE uniq_key IN (SELECT uniq_key FROM messages WHERE kind = 'half')
WITH x AS (SELECT topic, count(*) AS n FROM messages GROUP BY topic), y AS (SELECT max(n) AS n FROM x) SELECT x.topic, x.n FROM x JOIN y ON x.n = y.n
