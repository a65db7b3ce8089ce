-- Statements that `reput sql` must run, one a line; a line of `-- kind:` names the kind of those below it.
-- Of functions, the test takes those examples that Spark's own registry holds.
-- kind: rows and columns chosen
SELECT * FROM messages
SELECT * FROM Messages
SELECT * FROM MESSAGES AS m
SELECT * FROM `messages`
SELECT topic, tags FROM messages;
SELECT m.* FROM messages m
SELECT * EXCEPT (properties) FROM messages
SELECT DISTINCT topic FROM messages
SELECT ALL topic FROM messages
SELECT topic AS t, queue_id q FROM messages
SELECT `topic` FROM messages
SELECT messages.topic FROM messages
SELECT properties['TAGS'], keys[0], properties.TAGS FROM messages
SELECT store_time, queue_id, queue_offset, msg_id FROM messages WHERE topic = 'orders' AND array_contains(keys, '123')
SELECT topic, tags, count(*) FROM messages GROUP BY topic, tags
TABLE messages
TABLE messages ORDER BY physical_offset LIMIT 2
FROM messages SELECT topic
FROM messages SELECT topic WHERE queue_id = 0
(SELECT topic FROM messages)
((SELECT 1) UNION (SELECT 2))
VALUES (1, 'a'), (2, 'b')
SELECT * FROM VALUES (1, 'a'), (2, 'b') AS t(a, b)
SELECT * FROM (VALUES (1, upper('a'))) AS t(a, b)
SELECT 1
SELECT 'DELETE FROM messages' AS text
SELECT 'text.`/etc/passwd`', "INSERT INTO x", '${env:HOME}', '${system:user.home}', '${spark.app.name}'
SELECT topic /* ; DROP TABLE messages */ FROM messages -- ; DELETE FROM messages
SELECT 'a' 'b', "c", r'\d', X'1A', 'it''s'
SELECT 1Y, 1S, 1L, 1.5, 1.5D, 1.5F, 1.5BD, 1e3, -1, +1, true, false, NULL
SELECT DATE'2020-01-01', TIMESTAMP'2020-01-01 00:00:00', TIMESTAMP_NTZ'2020-01-01 00:00:00', TIMESTAMP_LTZ'2020-01-01 00:00:00'
SELECT INTERVAL 3 MONTHS, INTERVAL '1' DAY, INTERVAL '1-2' YEAR TO MONTH, INTERVAL '1 02:03:04' DAY TO SECOND
SELECT current_date, current_timestamp, current_user, user, session_user
-- kind: conditions
SELECT * FROM messages WHERE topic = 'TopicTest' AND queue_id >= 0 OR tags IS NULL
SELECT * FROM messages WHERE NOT queue_id = 1 AND ! (queue_id = 2)
SELECT * FROM messages WHERE tags IN ('A', 'B') AND topic NOT IN ('x')
SELECT * FROM messages WHERE queue_offset BETWEEN 0 AND 10 AND queue_id NOT BETWEEN 5 AND 6
SELECT * FROM messages WHERE tags LIKE 'A%' AND topic NOT LIKE '%x' ESCAPE '/'
SELECT * FROM messages WHERE topic ILIKE 'topic%' OR topic RLIKE '^T' OR topic REGEXP 't$'
SELECT * FROM messages WHERE tags LIKE ANY ('A', 'B') OR tags LIKE SOME ('C') OR tags LIKE ALL ('D', 'E')
SELECT * FROM messages WHERE tags NOT LIKE ALL ('A', 'B') AND tags NOT LIKE ANY ('C', 'D') AND tags ILIKE ANY ('a', 'b')
SELECT * FROM messages WHERE tags IS NOT NULL AND (queue_id = 0) IS TRUE AND (queue_id = 1) IS NOT TRUE
SELECT * FROM messages WHERE (queue_id = 0) IS NOT UNKNOWN AND (queue_id = 0) IS UNKNOWN
SELECT * FROM messages WHERE (queue_id = 0) IS FALSE AND (queue_id = 0) IS NOT FALSE
SELECT * FROM messages WHERE tags IS DISTINCT FROM 'A' AND tags IS NOT DISTINCT FROM 'B' AND tags <=> 'B'
SELECT * FROM messages WHERE queue_id <> 1 AND queue_id != 2 AND queue_id < 3 AND queue_id <= 4 AND queue_id > -1 AND queue_id == 0
SELECT * FROM messages WHERE store_time >= TIMESTAMP'2020-01-01 00:00:00' AND store_time < current_timestamp()
SELECT * FROM messages WHERE exists(keys, k -> k = '1')
SELECT * FROM messages WHERE topic = 'Ünï' COLLATE UNICODE_CI
-- kind: operators
SELECT queue_id + 1, queue_id - 1, queue_id * 2, queue_id / 2, queue_id % 2, queue_id DIV 2, -queue_id, +queue_id FROM messages
SELECT queue_id & 1, queue_id | 1, queue_id ^ 1, ~queue_id, queue_id << 1, queue_id >> 1, queue_id >>> 1 FROM messages
SELECT topic || '-' || queue_id FROM messages
SELECT CASE WHEN queue_id = 0 THEN 'a' WHEN queue_id = 1 THEN 'b' ELSE 'c' END, CASE queue_id WHEN 0 THEN 1 END FROM messages
SELECT CAST(queue_id AS STRING), queue_id::bigint, TRY_CAST(topic AS INT), CAST(keys AS ARRAY<STRING>) FROM messages
SELECT CAST(1 AS DECIMAL(10, 2)), CAST('a' AS CHAR(3)), CAST('a' AS VARCHAR(3)), CAST('1' AS TINYINT), CAST(1 AS BOOLEAN), CAST('a' AS BINARY)
SELECT CAST(named_struct('x', 1, 'y', map('a', 1.5)) AS STRUCT<x: STRING, y: MAP<STRING, DECIMAL(10, 2)>>)
SELECT CAST('1' AS INTERVAL DAY), CAST(INTERVAL '1' YEAR AS INTERVAL MONTH), CAST('2020-01-01' AS DATE), CAST(1 AS VARIANT)
SELECT EXTRACT(YEAR FROM store_time), EXTRACT(MINUTE FROM store_time) FROM messages
SELECT timestampadd(HOUR, 1, store_time), timestampdiff(DAY, born_time, store_time), dateadd(DAY, 1, store_time), datediff(DAY, born_time, store_time) FROM messages
SELECT TRIM(BOTH 'x' FROM topic), TRIM(LEADING 'T' FROM topic), TRIM(TRAILING 't' FROM topic), TRIM(topic), TRIM(LEADING FROM topic) FROM messages
SELECT SUBSTRING(topic FROM 1 FOR 2), SUBSTR(topic, 2), OVERLAY(topic PLACING 'x' FROM 1), OVERLAY(topic PLACING 'x' FROM 1 FOR 2), POSITION('T' IN topic) FROM messages
SELECT (1, 'a'), struct(topic AS t, queue_id), named_struct('a', 1).a, array(1, 2)[0], map('a', 1)['a'] FROM messages
SELECT topic COLLATE UTF8_LCASE FROM messages
SELECT parse_json('{"a": {"b": [1]}}'):a.b[0], parse_json('{"a": 1}'):a::int
SELECT transform(keys, k -> upper(k)), filter(keys, (k, i) -> i > 0), aggregate(array(1, 2), 0, (a, x) -> a + x, a -> a * 2) FROM messages
SELECT IF(queue_id = 0, 'a', 'b'), COALESCE(tags, 'none'), NULLIF(tags, 'A'), LEFT(topic, 1), RIGHT(topic, 1) FROM messages
SELECT * FROM inline(input => array(struct(1, 'a')))
-- kind: groups
SELECT count(*) FROM messages
SELECT count(*), count(tags), count(DISTINCT tags), count(DISTINCT topic, tags) FROM messages
SELECT tags, count(*) n, first(keys) keys, min(store_time) t FROM messages GROUP BY tags ORDER BY tags
SELECT tags, sum(msg_size) FROM messages GROUP BY tags HAVING sum(msg_size) > 1
SELECT count(*) FROM messages HAVING count(*) > 0
SELECT topic, count(*) FILTER (WHERE tags = 'A') FROM messages GROUP BY topic
SELECT topic, tags, grouping(tags), grouping_id(), count(*) FROM messages GROUP BY GROUPING SETS ((topic), (topic, tags), ())
SELECT topic, tags, count(*) FROM messages GROUP BY ROLLUP (topic, tags)
SELECT topic, tags, count(*) FROM messages GROUP BY CUBE (topic, tags)
SELECT topic, tags, count(*) FROM messages GROUP BY topic, tags WITH ROLLUP
SELECT topic, tags, count(*) FROM messages GROUP BY topic, tags WITH CUBE
SELECT topic, count(*) FROM messages GROUP BY 1
SELECT topic, count(*) FROM messages GROUP BY ALL
SELECT topic, count(*) FROM messages GROUP BY topic ORDER BY ALL
SELECT first(tags) IGNORE NULLS, last(tags) IGNORE NULLS, any_value(tags) IGNORE NULLS, first(tags), last(tags), any_value(tags) FROM messages
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY msg_size), percentile_disc(0.5) WITHIN GROUP (ORDER BY msg_size), listagg(tags, ',') WITHIN GROUP (ORDER BY tags) FROM messages
SELECT collect_list(DISTINCT tags), max_by(tags, queue_offset), mode(tags), median(msg_size) FROM messages
-- kind: windows
SELECT row_number() OVER (ORDER BY physical_offset) FROM messages
SELECT sum(msg_size) OVER (PARTITION BY topic ORDER BY physical_offset ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM messages
SELECT sum(msg_size) OVER (ORDER BY physical_offset RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) FROM messages
SELECT count(*) OVER (ORDER BY store_time RANGE BETWEEN INTERVAL 1 DAY PRECEDING AND CURRENT ROW) FROM messages
SELECT sum(msg_size) OVER (ORDER BY physical_offset ROWS BETWEEN UNBOUNDED PRECEDING AND 2 FOLLOWING) FROM messages
SELECT sum(msg_size) OVER (ORDER BY physical_offset ROWS UNBOUNDED PRECEDING) FROM messages
SELECT sum(msg_size) OVER () FROM messages
SELECT rank() OVER w, dense_rank() OVER w, ntile(2) OVER w, cume_dist() OVER w, percent_rank() OVER w FROM messages WINDOW w AS (ORDER BY msg_size)
SELECT lag(tags, 1) OVER w, lead(tags) OVER (w), nth_value(tags, 2) IGNORE NULLS OVER (ORDER BY physical_offset) FROM messages WINDOW w AS (ORDER BY physical_offset)
SELECT topic, physical_offset FROM messages QUALIFY row_number() OVER (PARTITION BY topic ORDER BY physical_offset) = 1
SELECT topic, tags, sum(count(*)) OVER () FROM messages GROUP BY topic, tags
SELECT window.start, count(*) FROM messages GROUP BY window(store_time, '1 hour')
SELECT session_window.end, count(*) FROM messages GROUP BY session_window(store_time, '5 minutes')
-- kind: order and bounds
SELECT * FROM messages ORDER BY store_time DESC, topic ASC NULLS LAST, tags DESC NULLS FIRST
SELECT topic FROM messages ORDER BY 1 LIMIT 2 OFFSET 1
SELECT topic FROM messages LIMIT ALL
SELECT topic FROM messages LIMIT 1 + 1
SELECT topic FROM messages OFFSET 2
SELECT topic FROM messages SORT BY topic
SELECT topic FROM messages DISTRIBUTE BY topic SORT BY topic
SELECT topic FROM messages CLUSTER BY topic
SELECT * FROM messages TABLESAMPLE (50 PERCENT) REPEATABLE (7)
SELECT * FROM messages TABLESAMPLE (2 ROWS)
SELECT * FROM messages TABLESAMPLE (BUCKET 1 OUT OF 2)
-- kind: joins and subqueries
SELECT a.topic FROM messages a JOIN messages b ON a.physical_offset = b.physical_offset
SELECT a.topic FROM messages a INNER JOIN messages b USING (physical_offset)
SELECT a.topic FROM messages a LEFT JOIN messages b ON a.physical_offset = b.physical_offset RIGHT OUTER JOIN messages c ON true
SELECT a.topic FROM messages a FULL OUTER JOIN messages b ON a.physical_offset = b.physical_offset
SELECT a.topic FROM messages a LEFT SEMI JOIN messages b ON a.physical_offset = b.physical_offset
SELECT a.topic FROM messages a LEFT ANTI JOIN messages b ON a.physical_offset = b.physical_offset
SELECT topic FROM messages a NATURAL JOIN (SELECT topic, 1 AS one FROM messages) b
SELECT a.topic FROM messages a CROSS JOIN messages b
SELECT a.topic FROM messages a, messages b WHERE a.physical_offset = b.physical_offset
SELECT a.topic FROM (messages a JOIN messages b ON a.physical_offset = b.physical_offset)
SELECT a.physical_offset, b.physical_offset FROM messages a INNER JOIN messages b APPROX NEAREST 1 BY DISTANCE abs(a.queue_offset - b.queue_offset)
SELECT a.physical_offset, b.physical_offset FROM messages a LEFT JOIN messages b APPROX NEAREST 2 BY SIMILARITY a.queue_offset - b.queue_offset
SELECT /*+ BROADCAST(b) */ a.topic FROM messages a JOIN messages b ON a.physical_offset = b.physical_offset
SELECT /*+ MERGE(b), SHUFFLE_HASH(a) */ a.topic FROM messages a JOIN messages b ON a.physical_offset = b.physical_offset
SELECT /*+ REPARTITION(2), COALESCE(1), REPARTITION_BY_RANGE(topic), REBALANCE(topic) */ topic FROM messages
SELECT topic FROM messages, LATERAL explode(keys) AS t(k)
SELECT m.topic, s.n FROM messages m, LATERAL (SELECT m.queue_id + 1 AS n) s
SELECT m.topic, s.n FROM messages m LEFT JOIN LATERAL (SELECT m.queue_id + 1 AS n) s ON true
SELECT topic, k FROM messages LATERAL VIEW explode(keys) t AS k
SELECT topic, p, k FROM messages LATERAL VIEW OUTER posexplode(keys) t AS p, k
SELECT topic, explode(keys) FROM messages
SELECT explode(properties) AS (name, value) FROM messages
SELECT inline(array(struct(1, 'a'), struct(2, 'b'))) AS (n, t)
SELECT (SELECT max(physical_offset) FROM messages), topic FROM messages
SELECT * FROM messages WHERE physical_offset = (SELECT max(physical_offset) FROM messages)
SELECT * FROM messages m WHERE EXISTS (SELECT 1 FROM messages n WHERE n.physical_offset > m.physical_offset)
SELECT * FROM messages m WHERE NOT EXISTS (SELECT 1 FROM messages n WHERE n.topic = m.tags)
SELECT * FROM messages WHERE tags IN (SELECT tags FROM messages WHERE queue_id = 0)
SELECT * FROM messages WHERE (topic, tags) IN (SELECT topic, tags FROM messages)
SELECT * FROM (SELECT topic FROM messages) AS t(a)
-- kind: sets
SELECT topic FROM messages UNION SELECT tags FROM messages
SELECT topic FROM messages UNION ALL SELECT tags FROM messages UNION DISTINCT SELECT 'x'
SELECT topic FROM messages INTERSECT SELECT topic FROM messages
SELECT topic FROM messages INTERSECT ALL SELECT topic FROM messages
SELECT topic FROM messages EXCEPT SELECT tags FROM messages
SELECT topic FROM messages MINUS ALL SELECT tags FROM messages
SELECT * FROM messages UNION ALL TABLE messages ORDER BY physical_offset LIMIT 3
-- kind: queries of WITH
WITH x AS (SELECT 1 AS a) SELECT * FROM x
WITH x AS (SELECT topic FROM messages), y (t) AS (SELECT * FROM x) SELECT * FROM y JOIN x ON t = topic
WITH X AS (SELECT 1 AS a) SELECT * FROM x
WITH messages AS (SELECT * FROM messages WHERE queue_id = 0) SELECT * FROM messages
WITH `/etc/passwd` AS (SELECT 1) SELECT * FROM `/etc/passwd`
WITH `delta.x` AS (SELECT 1) SELECT * FROM `delta.x`
WITH x AS (WITH y AS (SELECT 1 AS a) SELECT * FROM y) SELECT * FROM x
WITH x AS (SELECT 1 AS a) SELECT (SELECT max(a) FROM x), EXISTS (SELECT * FROM x)
WITH x AS (SELECT 1 AS a) SELECT * FROM (WITH y AS (SELECT * FROM x) SELECT * FROM y)
WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 5) SELECT sum(n) FROM t
WITH RECURSIVE t(n) MAX RECURSION LEVEL 10 AS (VALUES (1) UNION ALL SELECT n + 1 FROM t WHERE n < 5) SELECT * FROM t
-- kind: columns from rows, rows from columns
SELECT * FROM (SELECT topic, tags, msg_size FROM messages) PIVOT (sum(msg_size) AS size FOR tags IN ('A' AS a, 'B' AS b))
SELECT * FROM (SELECT queue_id, tags, msg_size FROM messages) PIVOT (count(*) FOR (tags, queue_id) IN (('A', 0), ('B', 1)))
SELECT * FROM (SELECT topic, queue_id, msg_size FROM messages) UNPIVOT (v FOR n IN (queue_id, msg_size))
SELECT * FROM (SELECT topic, queue_id, msg_size FROM messages) UNPIVOT INCLUDE NULLS (v FOR n IN (queue_id AS q, msg_size AS s))
SELECT * FROM (SELECT topic, queue_id, msg_size FROM messages) UNPIVOT ((a, b) FOR n IN ((queue_id, msg_size) AS x))
-- kind: pipes
FROM messages |> SELECT topic, tags |> WHERE tags = 'A'
FROM messages |> EXTEND msg_size * 2 AS twice |> SET twice = twice + 1 |> SELECT twice
FROM messages |> SELECT topic, tags |> DROP tags
FROM messages |> AGGREGATE count(*) AS n GROUP BY topic |> ORDER BY n DESC |> LIMIT 1
FROM messages |> SELECT topic |> AS q |> JOIN messages m ON q.topic = m.topic |> SELECT q.topic
FROM messages |> SELECT topic |> UNION ALL SELECT tags FROM messages
FROM messages |> SELECT queue_id, tags |> PIVOT (count(*) FOR tags IN ('A', 'B'))
FROM messages |> SELECT queue_id, msg_size |> UNPIVOT (v FOR n IN (queue_id, msg_size))
FROM messages |> TABLESAMPLE (100 PERCENT) |> SELECT topic
TABLE messages |> SELECT DISTINCT topic |> OFFSET 0
SELECT topic FROM messages |> WHERE topic IS NOT NULL
-- kind: statements that tell about the table or a query
DESCRIBE messages
DESC messages
DESCRIBE TABLE messages
DESCRIBE EXTENDED messages
DESC FORMATTED messages
DESCRIBE messages topic
DESC EXTENDED messages topic
DESCRIBE QUERY SELECT topic FROM messages
DESCRIBE SELECT topic FROM messages
DESC QUERY WITH x AS (SELECT 1 AS a) SELECT * FROM x
DESCRIBE FUNCTION abs
DESC FUNCTION EXTENDED count
SHOW COLUMNS IN messages
SHOW COLUMNS FROM messages
EXPLAIN SELECT * FROM messages
EXPLAIN EXTENDED SELECT topic FROM messages WHERE queue_id = 0
EXPLAIN FORMATTED SELECT count(*) FROM messages
EXPLAIN CODEGEN SELECT topic FROM messages
EXPLAIN COST SELECT topic FROM messages
EXPLAIN WITH x AS (SELECT 1) SELECT * FROM x
-- kind: functions of which Spark shows no example that runs
SELECT bigint(topic), int(queue_id), smallint(1), tinyint('2') FROM messages WHERE false
SELECT decimal('3.5'), double(4), float('5')
SELECT binary('six'), string(7), boolean('true')
SELECT date('2026-01-31'), timestamp('2026-01-31 12:00:00')
SELECT if(count(*) < 0, raise_error('no table has so few'), 'sound') FROM messages
