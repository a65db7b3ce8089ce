-- Statements that `reput sql` must run without Spark, one a line; a line of `-- kind:` names the kind of those below it.
-- kind: rows and columns chosen
SELECT * FROM messages
SELECT * FROM Messages AS m
SELECT * FROM "messages"
SELECT topic, tags FROM messages;
SELECT m.* FROM messages m
SELECT * EXCLUDE (properties) FROM messages
SELECT * REPLACE (upper(topic) AS topic) FROM messages
SELECT * RENAME (topic AS t) FROM messages
SELECT COLUMNS('.*_id') FROM messages
SELECT COLUMNS(lambda c: c LIKE '%offset') FROM messages
SELECT DISTINCT topic FROM messages
SELECT DISTINCT ON (topic) topic, tags FROM messages ORDER BY topic, physical_offset
SELECT messages.topic, messages.keys[1] FROM messages
SELECT properties['TAGS'], map_keys(properties), keys[1], keys[1:2] FROM messages
SELECT store_time, queue_id, queue_offset, msg_id FROM messages WHERE topic = 'orders' AND array_contains(keys, '123')
FROM messages
FROM messages SELECT topic WHERE queue_id = 0
TABLE messages
VALUES (1, 'a'), (2, 'b')
SELECT * FROM (VALUES (1, 'a')) AS t(a, b)
SELECT 1
SELECT 'DELETE FROM messages' AS text, $$it's$$ AS dollars, E'\n' AS escaped
SELECT topic /* ; DROP VIEW messages */ FROM messages -- ; DELETE FROM messages
SELECT 1.5, 1e3, -1, true, NULL, DATE '2020-01-01', TIMESTAMP '2020-01-01 00:00:00', INTERVAL 3 MONTHS, X'1A', [1, 2], {'a': 1}, MAP {'a': 1}
SELECT current_date, now() > TIMESTAMPTZ '2020-01-01', current_user, version()
-- kind: conditions and operators
SELECT topic FROM messages WHERE topic = 'TopicTest' AND queue_id >= 0 OR tags IS NULL
SELECT topic FROM messages WHERE tags IN ('A', 'B') AND topic NOT IN ('x') AND NOT queue_id = 1
SELECT topic FROM messages WHERE queue_offset BETWEEN 0 AND 10 AND tags LIKE 'A%' AND topic NOT ILIKE '%x' ESCAPE '/'
SELECT topic FROM messages WHERE topic SIMILAR TO 'T.*' OR topic ~ '^T' OR regexp_matches(topic, 't$') OR topic GLOB 'T*'
SELECT topic FROM messages WHERE tags IS DISTINCT FROM 'A' AND (queue_id = 0) IS TRUE
SELECT topic FROM messages WHERE 'k' = ANY (keys) OR list_has_any(keys, ['a', 'b'])
SELECT topic FROM messages WHERE store_time >= TIMESTAMP '2020-01-01' AND store_time < now()
SELECT queue_id + 1, queue_id / 2, queue_id // 2, queue_id % 2, -queue_id, queue_id & 1, queue_id << 1, 2 ** 3 FROM messages
SELECT topic || '-' || queue_id, topic COLLATE NOCASE FROM messages
SELECT CASE WHEN queue_id = 0 THEN 'a' ELSE 'b' END, CASE queue_id WHEN 0 THEN 1 END, IF(queue_id = 0, 1, 2) FROM messages
SELECT CAST(queue_id AS VARCHAR), queue_id::BIGINT, TRY_CAST(topic AS INT), CAST(keys AS VARCHAR[]), CAST('1.50' AS DECIMAL(10, 2)) FROM messages
SELECT EXTRACT(YEAR FROM store_time), date_part('hour', store_time), store_time AT TIME ZONE 'Asia/Shanghai' FROM messages
SELECT store_time + INTERVAL 1 DAY, age(store_time, born_time), store_time - born_time FROM messages
SELECT trim(topic), substring(topic, 1, 2), topic[1:2], left(topic, 1), position('T' IN topic), coalesce(tags, 'none'), nullif(tags, 'A') FROM messages
SELECT list_transform(keys, lambda k: upper(k)), list_filter(keys, lambda k: k <> '1'), list_reduce([1, 2], lambda a, x: a + x), [upper(k) for k in keys] FROM messages
SELECT json_extract('{"a": [1]}', '$.a[0]'), '{"a": 1}'::JSON ->> 'a', to_json(properties), try(CAST(topic AS INT)) FROM messages
-- kind: groups and windows
SELECT count(*), count(tags), count(DISTINCT tags), approx_count_distinct(topic) FROM messages
SELECT tags, sum(msg_size) FROM messages GROUP BY tags HAVING sum(msg_size) > 1
SELECT topic, count(*) FILTER (WHERE tags = 'A') FROM messages GROUP BY ALL ORDER BY ALL
SELECT topic, tags, grouping(tags), count(*) FROM messages GROUP BY GROUPING SETS ((topic), (topic, tags), ())
SELECT topic, tags, count(*) FROM messages GROUP BY ROLLUP (topic, tags)
SELECT topic, tags, count(*) FROM messages GROUP BY CUBE (topic, tags)
SELECT quantile_cont(msg_size, 0.5), string_agg(tags, ',' ORDER BY tags), list(tags), max_by(tags, queue_offset), mode(tags), median(msg_size), histogram(tags) FROM messages
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY msg_size) FROM messages
SELECT row_number() OVER (PARTITION BY topic ORDER BY physical_offset), lag(tags, 1) OVER w, sum(msg_size) OVER w FROM messages WINDOW w AS (ORDER BY physical_offset ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)
SELECT count(*) OVER (ORDER BY store_time RANGE BETWEEN INTERVAL 1 DAY PRECEDING AND CURRENT ROW) FROM messages
SELECT topic FROM messages QUALIFY row_number() OVER (PARTITION BY topic ORDER BY physical_offset) = 1
SELECT topic, tags, sum(count(*)) OVER () FROM messages GROUP BY topic, tags
SELECT time_bucket(INTERVAL 1 HOUR, store_time), count(*) FROM messages GROUP BY 1
-- kind: order and bounds
SELECT topic FROM messages ORDER BY store_time DESC, topic ASC NULLS LAST LIMIT 2 OFFSET 1
SELECT topic FROM messages LIMIT 50%
SELECT topic FROM messages USING SAMPLE 2 ROWS
SELECT topic FROM messages TABLESAMPLE 50%
-- kind: joins, subqueries and sets
SELECT a.topic FROM messages a JOIN messages b USING (physical_offset) LEFT JOIN messages c ON a.physical_offset = c.physical_offset
SELECT a.topic FROM messages a SEMI JOIN messages b ON a.physical_offset = b.physical_offset
SELECT a.topic FROM messages a ANTI JOIN messages b ON a.physical_offset = b.physical_offset
SELECT a.topic FROM messages a ASOF JOIN messages b ON a.queue_id = b.queue_id AND a.physical_offset >= b.physical_offset
SELECT a.topic FROM messages a POSITIONAL JOIN messages b
SELECT a.topic FROM messages a NATURAL JOIN (SELECT topic, 1 AS one FROM messages) b CROSS JOIN (SELECT 1)
SELECT topic, k FROM messages, unnest(keys) AS t(k)
SELECT topic, unnest(keys) FROM messages
SELECT m.topic, s.n FROM messages m, LATERAL (SELECT m.queue_id + 1 AS n) s
SELECT (SELECT max(physical_offset) FROM messages), topic FROM messages
SELECT topic FROM messages m WHERE EXISTS (SELECT 1 FROM messages n WHERE n.physical_offset > m.physical_offset)
SELECT topic FROM messages WHERE tags IN (SELECT tags FROM messages WHERE queue_id = 0)
SELECT topic FROM messages UNION SELECT tags FROM messages UNION ALL BY NAME SELECT 'x' AS topic
SELECT topic FROM messages EXCEPT SELECT tags FROM messages INTERSECT SELECT 'x'
WITH x AS (SELECT topic FROM messages), y AS (SELECT * FROM x) SELECT * FROM y
WITH x AS MATERIALIZED (SELECT topic FROM messages) SELECT * FROM x, x AS y
WITH messages AS (SELECT * FROM messages WHERE queue_id = 0) SELECT count(*) FROM messages
WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 5) SELECT * FROM n
FROM messages PIVOT (count(*) FOR tags IN ('A', 'B') GROUP BY topic)
FROM messages UNPIVOT (value FOR name IN (topic, tags))
SELECT * FROM range(3), generate_series(1, 2)
SELECT * FROM json_each('{"a": 1}')
-- kind: functions of Spark's
SELECT explode(keys) AS k, unix_millis(store_time), timestamp_millis(5) FROM messages
-- kind: about the table or a query
DESCRIBE messages
DESCRIBE SELECT topic FROM messages
SELECT column_name FROM (DESCRIBE messages)
SUMMARIZE messages
SUMMARIZE SELECT topic FROM messages
EXPLAIN SELECT topic FROM messages
EXPLAIN ANALYZE SELECT topic FROM messages
