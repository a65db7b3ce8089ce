-- Statements that `reput sql` must run, one a line; a line of `-- kind:` names the kind of those below it.
-- Those of functions follow the examples in Spark's own documentation of each function (Apache License 2.0).
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
-- kind: functions in the place of a table
SELECT * FROM range(5)
SELECT * FROM range(0, 10, 2) AS t(n)
SELECT * FROM range(0, 10, 2, 2)
SELECT * FROM explode(array(1, 2)) AS t(x)
SELECT * FROM explode_outer(array(1, 2))
SELECT * FROM explode(collection => array(1, 2))
SELECT * FROM posexplode(array(1, 2))
SELECT * FROM posexplode_outer(map('a', 1))
SELECT * FROM inline(array(struct(1, 'a')))
SELECT * FROM inline_outer(array(struct(1, 'a')))
SELECT * FROM stack(2, 1, 2, 3)
SELECT * FROM json_tuple('{"a": 1}', 'a')
SELECT * FROM variant_explode(parse_json('[1, 2]'))
SELECT * FROM variant_explode_outer(parse_json('{"a": 1}'))
SELECT * FROM sql_keywords()
SELECT * FROM collations() WHERE NAME = 'UTF8_BINARY'
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
-- kind: functions: aggregates
SELECT any(col) FROM VALUES (true), (false), (false) AS tab(col)
SELECT any_value(col) FROM VALUES (10), (5), (20) AS tab(col)
SELECT approx_count_distinct(col1) FROM VALUES (1), (1), (2), (2), (3) tab(col1)
SELECT approx_percentile(col, array(0.5, 0.4, 0.1), 100) FROM VALUES (0), (1), (2), (10) AS tab(col)
SELECT approx_top_k(expr) FROM VALUES (0), (0), (1), (1), (2), (3), (4), (4) AS tab(expr)
SELECT approx_top_k_estimate(approx_top_k_accumulate(expr)) FROM VALUES (0), (0), (1), (1), (2), (3), (4), (4) AS tab(expr)
SELECT approx_top_k_estimate(approx_top_k_combine(sketch, 10000), 5) FROM (SELECT approx_top_k_accumulate(expr) AS sketch FROM VALUES (0), (0), (1), (1) AS tab(expr) UNION ALL SELECT approx_top_k_accumulate(expr) AS sketch FROM VALUES (2), (3), (4), (4) AS tab(expr))
SELECT array_agg(col) FROM VALUES (1), (2), (1) AS tab(col)
SELECT avg(col) FROM VALUES (1), (2), (3) AS tab(col)
SELECT bit_and(col) FROM VALUES (3), (5) AS tab(col)
SELECT bit_or(col) FROM VALUES (3), (5) AS tab(col)
SELECT bit_xor(col) FROM VALUES (3), (5) AS tab(col)
SELECT substring(hex(bitmap_and_agg(col)), 0, 6) FROM VALUES (X 'F0'), (X '70'), (X '30') AS tab(col)
SELECT substring(hex(bitmap_construct_agg(bitmap_bit_position(col))), 0, 6) FROM VALUES (1), (2), (3) AS tab(col)
SELECT substring(hex(bitmap_or_agg(col)), 0, 6) FROM VALUES (X '10'), (X '20'), (X '40') AS tab(col)
SELECT bool_and(col) FROM VALUES (true), (true), (true) AS tab(col)
SELECT bool_or(col) FROM VALUES (true), (false), (false) AS tab(col)
SELECT collect_list(col) FROM VALUES (1), (2), (1) AS tab(col)
SELECT collect_set(col) FROM VALUES (1), (2), (1) AS tab(col)
SELECT corr(c1, c2) FROM VALUES (3, 2), (3, 3), (6, 4) as tab(c1, c2)
SELECT count(*) FROM VALUES (NULL), (5), (5), (20) AS tab(col)
SELECT count_if(col % 2 = 0) FROM VALUES (NULL), (0), (1), (2), (3) AS tab(col)
SELECT hex(count_min_sketch(col, 0.5d, 0.5d, 1)) FROM VALUES (1), (2), (1) AS tab(col)
SELECT covar_pop(c1, c2) FROM VALUES (1,1), (2,2), (3,3) AS tab(c1, c2)
SELECT covar_samp(c1, c2) FROM VALUES (1,1), (2,2), (3,3) AS tab(c1, c2)
SELECT every(col) FROM VALUES (true), (true), (true) AS tab(col)
SELECT first(col) FROM VALUES (10), (5), (20) AS tab(col)
SELECT first_value(col) FROM VALUES (10), (5), (20) AS tab(col)
SELECT name, grouping(name), sum(age) FROM VALUES (2, 'Alice'), (5, 'Bob') people(age, name) GROUP BY cube(name)
SELECT name, grouping_id(), sum(age), avg(height) FROM VALUES (2, 'Alice', 165), (5, 'Bob', 180) people(age, name, height) GROUP BY cube(name, height)
SELECT histogram_numeric(col, 5) FROM VALUES (0), (1), (2), (10) AS tab(col)
SELECT hll_sketch_estimate(hll_sketch_agg(col, 12)) FROM VALUES (1), (1), (2), (2), (3) tab(col)
SELECT hll_sketch_estimate(hll_union_agg(sketch, true)) FROM (SELECT hll_sketch_agg(col) as sketch FROM VALUES (1) tab(col) UNION ALL SELECT hll_sketch_agg(col, 20) as sketch FROM VALUES (1) tab(col))
SELECT kll_sketch_get_n_bigint(kll_merge_agg_bigint(sketch)) FROM (SELECT kll_sketch_agg_bigint(col) as sketch FROM VALUES (1), (2), (3) tab(col) UNION ALL SELECT kll_sketch_agg_bigint(col) as sketch FROM VALUES (4), (5), (6) tab(col)) t
SELECT kll_sketch_get_n_double(kll_merge_agg_double(sketch)) FROM (SELECT kll_sketch_agg_double(col) as sketch FROM VALUES (CAST(1.0 AS DOUBLE)), (CAST(2.0 AS DOUBLE)), (CAST(3.0 AS DOUBLE)) tab(col) UNION ALL SELECT kll_sketch_agg_double(col) as sketch FROM VALUES (CAST(4.0 AS DOUBLE)), (CAST(5.0 AS DOUBLE)), (CAST(6.0 AS DOUBLE)) tab(col)) t
SELECT kll_sketch_get_n_float(kll_merge_agg_float(sketch)) FROM (SELECT kll_sketch_agg_float(col) as sketch FROM VALUES (CAST(1.0 AS FLOAT)), (CAST(2.0 AS FLOAT)), (CAST(3.0 AS FLOAT)) tab(col) UNION ALL SELECT kll_sketch_agg_float(col) as sketch FROM VALUES (CAST(4.0 AS FLOAT)), (CAST(5.0 AS FLOAT)), (CAST(6.0 AS FLOAT)) tab(col)) t
SELECT LENGTH(kll_sketch_to_string_bigint(kll_sketch_agg_bigint(col))) > 0 FROM VALUES (1), (2), (3), (4), (5) tab(col)
SELECT LENGTH(kll_sketch_to_string_double(kll_sketch_agg_double(col))) > 0 FROM VALUES (CAST(1.0 AS DOUBLE)), (CAST(2.0 AS DOUBLE)), (CAST(3.0 AS DOUBLE)), (CAST(4.0 AS DOUBLE)), (CAST(5.0 AS DOUBLE)) tab(col)
SELECT LENGTH(kll_sketch_to_string_float(kll_sketch_agg_float(col))) > 0 FROM VALUES (CAST(1.0 AS FLOAT)), (CAST(2.0 AS FLOAT)), (CAST(3.0 AS FLOAT)), (CAST(4.0 AS FLOAT)), (CAST(5.0 AS FLOAT)) tab(col)
SELECT kurtosis(col) FROM VALUES (-10), (-20), (100), (1000) AS tab(col)
SELECT last(col) FROM VALUES (10), (5), (20) AS tab(col)
SELECT last_value(col) FROM VALUES (10), (5), (20) AS tab(col)
SELECT listagg(col) FROM VALUES ('a'), ('b'), ('c') AS tab(col)
SELECT max(col) FROM VALUES (10), (50), (20) AS tab(col)
SELECT max_by(x, y) FROM VALUES ('a', 10), ('b', 50), ('c', 20) AS tab(x, y)
SELECT mean(col) FROM VALUES (1), (2), (3) AS tab(col)
SELECT median(col) FROM VALUES (0), (10) AS tab(col)
SELECT min(col) FROM VALUES (10), (-1), (20) AS tab(col)
SELECT min_by(x, y) FROM VALUES ('a', 10), ('b', 50), ('c', 20) AS tab(x, y)
SELECT mode(col) FROM VALUES (0), (10), (10) AS tab(col)
SELECT percentile(col, 0.3) FROM VALUES (0), (10) AS tab(col)
SELECT percentile_approx(col, array(0.5, 0.4, 0.1), 100) FROM VALUES (0), (1), (2), (10) AS tab(col)
SELECT percentile_cont(0.25) WITHIN GROUP (ORDER BY col) FROM VALUES (0), (10) AS tab(col)
SELECT percentile_disc(0.25) WITHIN GROUP (ORDER BY col) FROM VALUES (0), (10) AS tab(col)
SELECT regr_avgx(y, x) FROM VALUES (1, 2), (2, 2), (2, 3), (2, 4) AS tab(y, x)
SELECT regr_avgy(y, x) FROM VALUES (1, 2), (2, 2), (2, 3), (2, 4) AS tab(y, x)
SELECT regr_count(y, x) FROM VALUES (1, 2), (2, 2), (2, 3), (2, 4) AS tab(y, x)
SELECT regr_intercept(y, x) FROM VALUES (1, 1), (2, 2), (3, 3), (4, 4) AS tab(y, x)
SELECT regr_r2(y, x) FROM VALUES (1, 2), (2, 2), (2, 3), (2, 4) AS tab(y, x)
SELECT regr_slope(y, x) FROM VALUES (1, 1), (2, 2), (3, 3), (4, 4) AS tab(y, x)
SELECT regr_sxx(y, x) FROM VALUES (1, 2), (2, 2), (2, 3), (2, 4) AS tab(y, x)
SELECT regr_sxy(y, x) FROM VALUES (1, 2), (2, 2), (2, 3), (2, 4) AS tab(y, x)
SELECT regr_syy(y, x) FROM VALUES (1, 2), (2, 2), (2, 3), (2, 4) AS tab(y, x)
SELECT schema_of_variant_agg(parse_json(j)) FROM VALUES ('1'), ('2'), ('3') AS tab(j)
SELECT skewness(col) FROM VALUES (-10), (-20), (100), (1000) AS tab(col)
SELECT some(col) FROM VALUES (true), (false), (false) AS tab(col)
SELECT std(col) FROM VALUES (1), (2), (3) AS tab(col)
SELECT stddev(col) FROM VALUES (1), (2), (3) AS tab(col)
SELECT stddev_pop(col) FROM VALUES (1), (2), (3) AS tab(col)
SELECT stddev_samp(col) FROM VALUES (1), (2), (3) AS tab(col)
SELECT string_agg(col) FROM VALUES ('a'), ('b'), ('c') AS tab(col)
SELECT sum(col) FROM VALUES (5), (10), (15) AS tab(col)
SELECT theta_sketch_estimate(theta_intersection_agg(sketch)) FROM (SELECT theta_sketch_agg(col) as sketch FROM VALUES (1) tab(col) UNION ALL SELECT theta_sketch_agg(col, 20) as sketch FROM VALUES (1) tab(col))
SELECT theta_sketch_estimate(theta_sketch_agg(col, 12)) FROM VALUES (1), (1), (2), (2), (3) tab(col)
SELECT theta_sketch_estimate(theta_union_agg(sketch)) FROM (SELECT theta_sketch_agg(col) as sketch FROM VALUES (1) tab(col) UNION ALL SELECT theta_sketch_agg(col, 20) as sketch FROM VALUES (1) tab(col))
SELECT try_avg(col) FROM VALUES (1), (2), (3) AS tab(col)
SELECT try_sum(col) FROM VALUES (5), (10), (15) AS tab(col)
SELECT tuple_sketch_estimate_double(tuple_intersection_agg_double(sketch)) FROM (SELECT tuple_sketch_agg_double(key, summary) as sketch FROM VALUES (1, 5.0D), (2, 10.0D), (3, 15.0D) tab(key, summary) UNION ALL SELECT tuple_sketch_agg_double(key, summary) as sketch FROM VALUES (2, 3.0D), (3, 7.0D), (4, 12.0D) tab(key, summary))
SELECT tuple_sketch_estimate_integer(tuple_intersection_agg_integer(sketch)) FROM (SELECT tuple_sketch_agg_integer(key, summary) as sketch FROM VALUES (1, 1), (2, 2), (3, 3) tab(key, summary) UNION ALL SELECT tuple_sketch_agg_integer(key, summary) as sketch FROM VALUES (2, 2), (3, 3), (4, 4) tab(key, summary))
SELECT tuple_sketch_estimate_double(tuple_sketch_agg_double(key, summary, 12, 'sum')) FROM VALUES (1, 5.0D), (1, 1.0D), (2, 2.0D), (2, 3.0D), (3, 2.2D) tab(key, summary)
SELECT tuple_sketch_estimate_integer(tuple_sketch_agg_integer(key, summary, 12, 'sum')) FROM VALUES (1, 5), (1, 1), (2, 2), (2, 3), (3, 2) tab(key, summary)
SELECT tuple_sketch_estimate_double(tuple_union_agg_double(sketch)) FROM (SELECT tuple_sketch_agg_double(key, summary) as sketch FROM VALUES (1, 5.0D), (2, 10.0D) tab(key, summary) UNION ALL SELECT tuple_sketch_agg_double(key, summary) as sketch FROM VALUES (2, 3.0D), (3, 7.0D) tab(key, summary))
SELECT tuple_sketch_estimate_integer(tuple_union_agg_integer(sketch)) FROM (SELECT tuple_sketch_agg_integer(key, summary) as sketch FROM VALUES (1, 5), (2, 10) tab(key, summary) UNION ALL SELECT tuple_sketch_agg_integer(key, summary) as sketch FROM VALUES (2, 3), (3, 7) tab(key, summary))
SELECT var_pop(col) FROM VALUES (1), (2), (3) AS tab(col)
SELECT var_samp(col) FROM VALUES (1), (2), (3) AS tab(col)
SELECT variance(col) FROM VALUES (1), (2), (3) AS tab(col)
-- kind: functions: arrays, maps and structs
SELECT array(1, 2, 3), array_append(array('b', 'd', 'c', 'a'), 'd'), array_compact(array(1, 2, 3, null))
SELECT array_contains(array(1, 2, 3), 2), array_distinct(array(1, 2, 3, null, 3)), array_except(array(1, 2, 3), array(1, 3, 5))
SELECT array_insert(array(1, 2, 3, 4), 5, 5), array_intersect(array(1, 2, 3), array(1, 3, 5)), array_join(array('hello', 'world'), ' ')
SELECT array_max(array(1, 20, null, 3)), array_min(array(1, 20, null, 3)), array_position(array(312, 773, 708, 708), 708)
SELECT array_prepend(array('b', 'd', 'c', 'a'), 'd'), array_remove(array(1, 2, 3, null, 3), 3), array_repeat('123', 2)
SELECT array_size(array('b', 'd', 'c', 'a')), array_union(array(1, 2, 3), array(1, 3, 5)), arrays_overlap(array(1, 2, 3), array(3, 4, 5))
SELECT arrays_zip(array(1, 2, 3), array(2, 3, 4)), cardinality(array('b', 'd', 'c', 'a')), concat('Spark', 'SQL')
SELECT element_at(array(1, 2, 3), 2), flatten(array(array(1, 2), array(3, 4))), get(array(1, 2, 3), 0)
SELECT map(1.0, '2', 3.0, '4'), map_concat(map(1, 'a', 2, 'b'), map(3, 'c')), map_contains_key(map(1, 'a', 2, 'b'), 1)
SELECT map_entries(map(1, 'a', 2, 'b')), map_from_arrays(array(1.0, 3.0), array('2', '4')), map_from_entries(array(struct(1, 'a'), struct(2, 'b')))
SELECT map_keys(map(1, 'a', 2, 'b')), map_values(map(1, 'a', 2, 'b')), named_struct("a", 1, "b", 2, "c", 3)
SELECT reverse('Spark SQL'), sequence(1, 5), shuffle(array(1, 20, 3, 5))
SELECT size(array('b', 'd', 'c', 'a')), slice(array(1, 2, 3, 4), 2, 2), sort_array(array('b', 'd', null, 'c', 'a'), true)
SELECT str_to_map('a:1,b:2,c:3', ',', ':'), struct(1, 2, 3), try_element_at(array(1, 2, 3), 2)
-- kind: functions: bits
SELECT 3 & 5, shiftleft(2, 1), shiftright(4, 1)
SELECT shiftrightunsigned(4, 1), 3 ^ 5, bit_count(0)
SELECT bit_get(11, 0), getbit(11, 0), 3 | 5
SELECT ~ 0
-- kind: functions: bitmaps
SELECT bitmap_bit_position(1), bitmap_bucket_number(123), bitmap_count(X '1010')
-- kind: functions: conditions
SELECT 0.5 between 0.1 AND 1.0, coalesce(NULL, 1, NULL), if(1 < 2, 'a', 'b')
SELECT ifnull(NULL, array('2')), nanvl(cast('NaN' as double), 123), nullif(2, 2)
SELECT nullifzero(0), nvl(NULL, array('2')), nvl2(NULL, 2, 1)
SELECT CASE WHEN 1 > 0 THEN 1 WHEN 2 > 0 THEN 2.0 ELSE 1.2 END, zeroifnull(NULL)
-- kind: functions: conversions
SELECT bigint('1'), binary('1'), boolean('true')
SELECT cast('10' as int), date('2020-01-01'), decimal('1')
SELECT double('1'), float('1'), int('1')
SELECT smallint('1'), string('1'), timestamp('2020-01-01 00:00:00')
SELECT tinyint('1')
-- kind: functions: csv and json
SELECT from_csv('1, 0.8', 'a INT, b DOUBLE'), from_json('{"a":1, "b":0.8}', 'a INT, b DOUBLE'), get_json_object('{"a":"b"}', '$.a')
SELECT json_tuple('{"a":1, "b":2}', 'a', 'b')
SELECT json_array_length('[1,2,3,4]'), json_object_keys('{}'), schema_of_csv('1,abc')
SELECT schema_of_json('[{"col":0}]'), to_csv(named_struct('a', 1, 'b', 2)), to_json(named_struct('a', 1, 'b', 2))
-- kind: functions: dates and times
SELECT add_months('2016-08-31', 1), convert_timezone('Europe/Brussels', 'America/Los_Angeles', timestamp_ntz'2021-12-06 00:00:00'), curdate()
SELECT current_date(), current_timestamp(), current_timezone()
SELECT date_add('2016-07-30', 1), date_diff('2009-07-31', '2009-07-30'), date_format('2016-04-08', 'y')
SELECT date_from_unix_date(1), date_part('YEAR', TIMESTAMP '2019-08-12 01:00:00.123456'), date_sub('2016-07-30', 1)
SELECT date_trunc('YEAR', '2015-03-05T09:32:05.359'), dateadd('2016-07-30', 1), datediff('2009-07-31', '2009-07-30')
SELECT datepart('YEAR', TIMESTAMP '2019-08-12 01:00:00.123456'), day('2009-07-30'), dayname(DATE('2008-02-20'))
SELECT dayofmonth('2009-07-30'), dayofweek('2009-07-30'), dayofyear('2016-04-09')
SELECT extract(YEAR FROM TIMESTAMP '2019-08-12 01:00:00.123456')
SELECT from_unixtime(0, 'yyyy-MM-dd HH:mm:ss'), from_utc_timestamp('2016-08-31', 'Asia/Seoul'), hour('2018-02-14 12:58:59')
SELECT last_day('2009-01-12'), localtimestamp(), make_date(2013, 7, 15)
SELECT make_dt_interval(1, 12, 30, 01.001001), make_interval(100, 11, 1, 1, 12, 30, 01.001001), make_timestamp(2014, 12, 28, 6, 30, 45.887)
SELECT make_timestamp_ltz(2014, 12, 28, 6, 30, 45.887), make_timestamp_ntz(2014, 12, 28, 6, 30, 45.887), make_ym_interval(1, 2)
SELECT minute('2009-07-30 12:58:59'), month('2016-07-30'), monthname('2008-02-20')
SELECT months_between('1997-02-28 10:30:00', '1996-10-30'), next_day('2015-01-14', 'TU'), now()
SELECT a, session_window.start, session_window.end, count(*) as cnt FROM VALUES ('A1', '2021-01-01 00:00:00'), ('A1', '2021-01-01 00:04:30'), ('A1', '2021-01-01 00:10:00'), ('A2', '2021-01-01 00:01:00') AS tab(a, b) GROUP by a, session_window(b, '5 minutes') ORDER BY a, start
SELECT quarter('2016-08-31'), second('2018-02-14 12:58:59'), time_bucket(INTERVAL '15' MINUTE, TIMESTAMP '2024-01-01 11:27:00', TIMESTAMP '1970-01-01 00:00:00')
SELECT timestamp_micros(1230219000123123), timestamp_millis(1230219000123), timestamp_seconds(1230219000)
SELECT to_date('2009-07-30 04:17:52'), to_timestamp('2016-12-31 00:12:00'), to_timestamp_ltz('2016-12-31 00:12:00')
SELECT to_timestamp_ntz('2016-12-31 00:12:00'), to_unix_timestamp('2016-04-08', 'yyyy-MM-dd'), to_utc_timestamp('2016-08-31', 'Asia/Seoul')
SELECT trunc('2019-08-04', 'week'), try_make_interval(100, 11, 1, 1, 12, 30, 01.001001), try_make_timestamp(2014, 12, 28, 6, 30, 45.887)
SELECT try_make_timestamp_ltz(2014, 12, 28, 6, 30, 45.887), try_make_timestamp_ntz(2014, 12, 28, 6, 30, 45.887), try_to_date('2016-12-31')
SELECT try_to_timestamp('2016-12-31 00:12:00'), unix_date(DATE("1970-01-02")), unix_micros(TIMESTAMP('1970-01-01 00:00:01Z'))
SELECT unix_millis(TIMESTAMP('1970-01-01 00:00:01Z')), unix_seconds(TIMESTAMP('1970-01-01 00:00:01Z')), unix_timestamp()
SELECT a, window.start, window.end, count(*) as cnt FROM VALUES ('A1', '2021-01-01 00:00:00'), ('A1', '2021-01-01 00:04:30'), ('A1', '2021-01-01 00:06:00'), ('A2', '2021-01-01 00:01:00') AS tab(a, b) GROUP by a, window(b, '5 minutes') ORDER BY a, start
SELECT a, window.start as start, window.end as end, window_time(window), cnt FROM (SELECT a, window, count(*) as cnt FROM VALUES ('A1', '2021-01-01 00:00:00'), ('A1', '2021-01-01 00:04:30'), ('A1', '2021-01-01 00:06:00'), ('A2', '2021-01-01 00:01:00') AS tab(a, b) GROUP by a, window(b, '5 minutes') ORDER BY a, window.start)
SELECT weekday('2009-07-30'), weekofyear('2008-02-20'), year('2016-07-30')
-- kind: functions: encryption with a given key
SELECT aes_decrypt(unhex('83F16B2AA704794132802D248E6BFD4E380078182D1544813898AC97E709B28A94'), '0000111122223333'), hex(aes_encrypt('Spark', '0000111122223333')), try_aes_decrypt(unhex('6E7CA17BBB468D3084B5744BCA729FB7B2B7BCB8E4472847D02670489D95FA97DBBA7D3210'), '0000111122223333', 'GCM')
-- kind: functions: errors on purpose
SELECT assert_true(0 < 1), if(false, raise_error('custom error message'), 1)
-- kind: functions: functions of functions
SELECT aggregate(array(1, 2, 3), 0, (acc, x) -> acc + x), array_sort(array(5, 6, 1), (left, right) -> case when left < right then -1 when left > right then 1 else 0 end), exists(array(1, 2, 3), x -> x % 2 == 0)
SELECT filter(array(1, 2, 3), x -> x % 2 == 1), forall(array(1, 2, 3), x -> x % 2 == 0), map_filter(map(1, 0, 2, 2, 3, -1), (k, v) -> k > v)
SELECT map_zip_with(map(1, 'a', 2, 'b'), map(1, 'x', 2, 'y'), (k, v1, v2) -> concat(v1, v2)), reduce(array(1, 2, 3), 0, (acc, x) -> acc + x), transform(array(1, 2, 3), x -> x + 1)
SELECT transform_keys(map_from_arrays(array(1, 2, 3), array(1, 2, 3)), (k, v) -> k + 1), transform_values(map_from_arrays(array(1, 2, 3), array(1, 2, 3)), (k, v) -> v + 1), zip_with(array(1, 2, 3), array('a', 'b', 'c'), (x, y) -> (y, x))
-- kind: functions: geography
SELECT hex(st_asbinary(st_geogfromwkb(X'0101000000000000000000F03F0000000000000040'))), hex(st_asbinary(st_geomfromwkb(X'0101000000000000000000F03F0000000000000040'))), st_srid(st_setsrid(ST_GeogFromWKB(X'0101000000000000000000F03F0000000000000040'), 4326))
SELECT st_srid(st_geogfromwkb(X'0101000000000000000000F03F0000000000000040'))
-- kind: functions: hashes
SELECT crc32('Spark'), hash('Spark', array(123), 2), md5('Spark')
SELECT sha('Spark'), sha1('Spark'), sha2('Spark', 256)
SELECT xxhash64('Spark', array(123), 2)
-- kind: functions: mathematics
SELECT 2 % 1.8, 2 * 3, 1 + 2
SELECT 2 - 1, 3 / 2, abs(-1)
SELECT acos(1), acosh(1), asin(0)
SELECT asinh(0), atan(0), atan2(0, 0)
SELECT atanh(0), bin(13), bround(2.5, 0)
SELECT cbrt(27.0), ceil(-0.1), ceiling(-0.1)
SELECT conv('100', 2, 10), cos(0), cosh(0)
SELECT cot(1), csc(1), degrees(3.141592653589793)
SELECT 3 div 2, e(), exp(0)
SELECT expm1(0), factorial(5), floor(-0.1)
SELECT greatest(10, 9, 2, 4, 3), hex(17), hypot(3, 4)
SELECT least(10, 9, 2, 4, 3), ln(1), log(10, 100)
SELECT log10(10), log1p(0), log2(2)
SELECT negative(1), pi(), pmod(10, 3)
SELECT positive(1), pow(2, 3), power(2, 3)
SELECT radians(180), rand(), randn()
SELECT random(), rint(12.3456), round(2.5, 0)
SELECT sec(0), sign(40), signum(40)
SELECT sin(0), sinh(0), sqrt(4)
SELECT tan(0), tanh(0), try_add(1, 2)
SELECT try_divide(3, 2), try_mod(3, 2), try_multiply(2, 3)
SELECT uniform(10, 20, 0) > 0 AS result
SELECT try_subtract(2, 1), decode(unhex('537061726B2053514C'), 'UTF-8'), width_bucket(5.3, 0.2, 10.6, 5)
-- kind: functions: predicates
SELECT ! true, 1 < 2, 2 <= 2
SELECT 2 <=> 2, 2 = 2, 2 == 2
SELECT 2 > 1, 2 >= 1, true and true
SELECT equal_null(3, 3), ilike('Spark', '_Park'), 1 in(1, 2, 3)
SELECT isnan(cast('NaN' as double)), isnotnull(1), isnull(1)
SELECT like('Spark', '_park'), not true, true or false
SELECT regexp('orders', '^o.*'), regexp_like('orders', 's$'), rlike('orders', '[a-z]+')
-- kind: functions: rows to several
SELECT explode(array(10, 20))
SELECT explode_outer(array(10, 20))
SELECT inline(array(struct(1, 'a'), struct(2, 'b')))
SELECT inline_outer(array(struct(1, 'a'), struct(2, 'b')))
SELECT posexplode(array(10,20))
SELECT posexplode_outer(array(10,20))
SELECT stack(2, 1, 2, 3)
-- kind: functions: sketches
SELECT hll_sketch_estimate(hll_sketch_agg(col)) FROM VALUES (1), (1), (2), (2), (3) tab(col)
SELECT hll_sketch_estimate(hll_union(hll_sketch_agg(col1), hll_sketch_agg(col2))) FROM VALUES (1, 4), (1, 4), (2, 5), (2, 5), (3, 6) tab(col1, col2)
SELECT kll_sketch_get_n_bigint(kll_sketch_agg_bigint(col)) FROM VALUES (1), (2), (3), (4), (5) tab(col)
SELECT kll_sketch_get_n_double(kll_sketch_agg_double(col)) FROM VALUES (CAST(1.0 AS DOUBLE)), (CAST(2.0 AS DOUBLE)), (CAST(3.0 AS DOUBLE)), (CAST(4.0 AS DOUBLE)), (CAST(5.0 AS DOUBLE)) tab(col)
SELECT kll_sketch_get_n_float(kll_sketch_agg_float(col)) FROM VALUES (CAST(1.0 AS FLOAT)), (CAST(2.0 AS FLOAT)), (CAST(3.0 AS FLOAT)), (CAST(4.0 AS FLOAT)), (CAST(5.0 AS FLOAT)) tab(col)
SELECT kll_sketch_get_quantile_bigint(kll_sketch_agg_bigint(col), 0.5) > 1 FROM VALUES (1), (2), (3), (4), (5) tab(col)
SELECT kll_sketch_get_quantile_double(kll_sketch_agg_double(col), 0.5) > 1 FROM VALUES (CAST(1.0 AS DOUBLE)), (CAST(2.0 AS DOUBLE)), (CAST(3.0 AS DOUBLE)), (CAST(4.0 AS DOUBLE)), (CAST(5.0 AS DOUBLE)) tab(col)
SELECT kll_sketch_get_quantile_float(kll_sketch_agg_float(col), 0.5) > 1 FROM VALUES (CAST(1.0 AS FLOAT)), (CAST(2.0 AS FLOAT)), (CAST(3.0 AS FLOAT)), (CAST(4.0 AS FLOAT)), (CAST(5.0 AS FLOAT)) tab(col)
SELECT kll_sketch_get_rank_bigint(kll_sketch_agg_bigint(col), 3) > 0.3 FROM VALUES (1), (2), (3), (4), (5) tab(col)
SELECT kll_sketch_get_rank_double(kll_sketch_agg_double(col), 3.0) > 0.3 FROM VALUES (CAST(1.0 AS DOUBLE)), (CAST(2.0 AS DOUBLE)), (CAST(3.0 AS DOUBLE)), (CAST(4.0 AS DOUBLE)), (CAST(5.0 AS DOUBLE)) tab(col)
SELECT kll_sketch_get_rank_float(kll_sketch_agg_float(col), 3.0) > 0.3 FROM VALUES (CAST(1.0 AS FLOAT)), (CAST(2.0 AS FLOAT)), (CAST(3.0 AS FLOAT)), (CAST(4.0 AS FLOAT)), (CAST(5.0 AS FLOAT)) tab(col)
SELECT LENGTH(kll_sketch_to_string_bigint(kll_sketch_merge_bigint(kll_sketch_agg_bigint(col), kll_sketch_agg_bigint(col)))) > 0 FROM VALUES (1), (2), (3), (4), (5) tab(col)
SELECT LENGTH(kll_sketch_to_string_double(kll_sketch_merge_double(kll_sketch_agg_double(col), kll_sketch_agg_double(col)))) > 0 FROM VALUES (CAST(1.0 AS DOUBLE)), (CAST(2.0 AS DOUBLE)), (CAST(3.0 AS DOUBLE)), (CAST(4.0 AS DOUBLE)), (CAST(5.0 AS DOUBLE)) tab(col)
SELECT LENGTH(kll_sketch_to_string_float(kll_sketch_merge_float(kll_sketch_agg_float(col), kll_sketch_agg_float(col)))) > 0 FROM VALUES (CAST(1.0 AS FLOAT)), (CAST(2.0 AS FLOAT)), (CAST(3.0 AS FLOAT)), (CAST(4.0 AS FLOAT)), (CAST(5.0 AS FLOAT)) tab(col)
SELECT theta_sketch_estimate(theta_difference(theta_sketch_agg(col1), theta_sketch_agg(col2))) FROM VALUES (5, 4), (1, 4), (2, 5), (2, 5), (3, 1) tab(col1, col2)
SELECT theta_sketch_estimate(theta_intersection(theta_sketch_agg(col1), theta_sketch_agg(col2))) FROM VALUES (5, 4), (1, 4), (2, 5), (2, 5), (3, 1) tab(col1, col2)
SELECT theta_sketch_estimate(theta_sketch_agg(col)) FROM VALUES (1), (1), (2), (2), (3) tab(col)
SELECT theta_sketch_estimate(theta_union(theta_sketch_agg(col1), theta_sketch_agg(col2))) FROM VALUES (1, 4), (1, 4), (2, 5), (2, 5), (3, 6) tab(col1, col2)
SELECT tuple_sketch_estimate_double(tuple_difference_double(tuple_sketch_agg_double(col1, val1), tuple_sketch_agg_double(col2, val2))) FROM VALUES (5, 5.0D, 4, 4.0D), (1, 1.0D, 4, 4.0D), (2, 2.0D, 5, 5.0D), (3, 3.0D, 1, 1.0D) tab(col1, val1, col2, val2)
SELECT tuple_sketch_estimate_integer(tuple_difference_integer(tuple_sketch_agg_integer(col1, val1), tuple_sketch_agg_integer(col2, val2))) FROM VALUES (5, 5, 4, 4), (1, 1, 4, 4), (2, 2, 5, 5), (3, 3, 1, 1) tab(col1, val1, col2, val2)
SELECT tuple_sketch_estimate_double(tuple_difference_theta_double(tuple_sketch_agg_double(col1, val1), theta_sketch_agg(col2))) FROM VALUES (5, 5.0D, 4), (1, 1.0D, 4), (2, 2.0D, 5), (3, 3.0D, 1) tab(col1, val1, col2)
SELECT tuple_sketch_estimate_integer(tuple_difference_theta_integer(tuple_sketch_agg_integer(col1, val1), theta_sketch_agg(col2))) FROM VALUES (5, 5, 4), (1, 1, 4), (2, 2, 5), (3, 3, 1) tab(col1, val1, col2)
SELECT tuple_sketch_estimate_double(tuple_intersection_double(tuple_sketch_agg_double(col1, val1), tuple_sketch_agg_double(col2, val2))) FROM VALUES (1, 1.0D, 1, 4.0D), (2, 2.0D, 2, 5.0D), (3, 3.0D, 4, 6.0D) tab(col1, val1, col2, val2)
SELECT tuple_sketch_estimate_integer(tuple_intersection_integer(tuple_sketch_agg_integer(col1, val1), tuple_sketch_agg_integer(col2, val2))) FROM VALUES (1, 1, 1, 4), (2, 2, 2, 5), (3, 3, 4, 6) tab(col1, val1, col2, val2)
SELECT tuple_sketch_estimate_double(tuple_intersection_theta_double(tuple_sketch_agg_double(col1, val1), theta_sketch_agg(col2))) FROM VALUES (1, 1.0D, 1), (2, 2.0D, 2), (3, 3.0D, 4) tab(col1, val1, col2)
SELECT tuple_sketch_estimate_integer(tuple_intersection_theta_integer(tuple_sketch_agg_integer(col1, val1), theta_sketch_agg(col2))) FROM VALUES (1, 1, 1), (2, 2, 2), (3, 3, 4) tab(col1, val1, col2)
SELECT tuple_sketch_estimate_double(tuple_sketch_agg_double(key, summary)) FROM VALUES (1, 1.0D), (1, 2.0D), (2, 3.0D) tab(key, summary)
SELECT tuple_sketch_estimate_integer(tuple_sketch_agg_integer(key, summary)) FROM VALUES (1, 1), (1, 2), (2, 3) tab(key, summary)
SELECT tuple_sketch_summary_double(tuple_sketch_agg_double(key, summary)) FROM VALUES (1, 1.0D), (1, 2.0D), (2, 3.0D) tab(key, summary)
SELECT tuple_sketch_summary_integer(tuple_sketch_agg_integer(key, summary)) FROM VALUES (1, 1), (1, 2), (2, 3) tab(key, summary)
SELECT tuple_sketch_theta_double(tuple_sketch_agg_double(key, summary)) FROM VALUES (1, 1.0D), (2, 2.0D), (3, 3.0D) tab(key, summary)
SELECT tuple_sketch_theta_integer(tuple_sketch_agg_integer(key, summary)) FROM VALUES (1, 1), (2, 2), (3, 3) tab(key, summary)
SELECT tuple_sketch_estimate_double(tuple_union_double(tuple_sketch_agg_double(col1, val1), tuple_sketch_agg_double(col2, val2))) FROM VALUES (1, 1.0D, 4, 4.0D), (2, 2.0D, 5, 5.0D), (3, 3.0D, 6, 6.0D) tab(col1, val1, col2, val2)
SELECT tuple_sketch_estimate_integer(tuple_union_integer(tuple_sketch_agg_integer(col1, val1), tuple_sketch_agg_integer(col2, val2))) FROM VALUES (1, 1, 4, 4), (2, 2, 5, 5), (3, 3, 6, 6) tab(col1, val1, col2, val2)
SELECT tuple_sketch_estimate_double(tuple_union_theta_double(tuple_sketch_agg_double(col1, val1), theta_sketch_agg(col2))) FROM VALUES (1, 1.0D, 4), (2, 2.0D, 5), (3, 3.0D, 6) tab(col1, val1, col2)
SELECT tuple_sketch_estimate_integer(tuple_union_theta_integer(tuple_sketch_agg_integer(col1, val1), theta_sketch_agg(col2))) FROM VALUES (1, 1, 4), (2, 2, 5), (3, 3, 6) tab(col1, val1, col2)
-- kind: functions: strings
SELECT ascii('222'), base64('Spark SQL'), bit_length('Spark SQL')
SELECT btrim(' SparkSQL '), char(65), char_length('Spark SQL ')
SELECT character_length('Spark SQL '), chr(65), COLLATION('Spark SQL' collate UTF8_LCASE)
SELECT collation('Spark SQL'), concat_ws(' ', 'Spark', 'SQL'), contains('Spark SQL', 'Spark')
SELECT decode(encode('abc', 'utf-8'), 'utf-8'), elt(1, 'scala', 'java'), encode('abc', 'utf-8')
SELECT endswith('Spark SQL', 'SQL'), find_in_set('ab','abc,b,ab,c,def'), format_number(12332.123456, 4)
SELECT format_string("Hello World %d %s", 100, "days"), initcap('sPark sql'), instr('SparkSQL', 'SQL')
SELECT is_valid_utf8('Spark'), lcase('SparkSql'), left('Spark SQL', 3)
SELECT len('Spark SQL '), length('Spark SQL '), levenshtein('kitten', 'sitting')
SELECT locate('bar', 'foobarbar'), lower('SparkSql'), lpad('hi', 5, '??')
SELECT ltrim(' SparkSQL '), luhn_check('8112189876'), make_valid_utf8('Spark')
SELECT overlay('Spark SQL' PLACING '_' FROM 6)
SELECT mask('abcd-EFGH-8765-4321'), octet_length('Spark SQL'), position('bar', 'foobarbar')
SELECT randstr(3, 0) AS result
SELECT printf("Hello World %d %s", 100, "days"), quote('Don\'t'), regexp_count('Steven Jones and Stephen Smith are the best players', 'Ste(v|ph)en')
SELECT regexp_extract('100-200', '(\\d+)-(\\d+)', 1), regexp_extract_all('100-200, 300-400', '(\\d+)-(\\d+)', 1), regexp_instr(r"\abc", r"^\\abc$")
SELECT regexp_replace('100-200', '(\\d+)', 'num'), regexp_substr('Steven Jones and Stephen Smith are the best players', 'Ste(v|ph)en'), repeat('123', 2)
SELECT replace('ABCabc', 'abc', 'DEF'), right('Spark SQL', 3), rpad('hi', 5, '??')
SELECT rtrim(' SparkSQL '), sentences('Hi there! Good morning.'), soundex('Miller')
SELECT concat(space(2), '1'), split('oneAtwoBthreeC', '[ABC]'), split_part('11.12.13', '.', 3)
SELECT startswith('Spark SQL', 'Spark'), substr('Spark SQL', 5), substring('Spark SQL', 5)
SELECT substring_index('www.apache.org', '.', 2), to_binary('abc', 'utf-8'), to_char(454, '999')
SELECT to_number('454', '999'), to_varchar(454, '999'), translate('AaBbCc', 'abc', '123')
SELECT trim(' SparkSQL '), try_to_binary('abc', 'utf-8'), try_to_number('454', '999')
SELECT try_validate_utf8('Spark'), ucase('SparkSql'), unbase64('U3BhcmsgU1FM')
SELECT upper('SparkSql'), validate_utf8('Spark')
-- kind: functions: urls, taken apart and never opened
SELECT parse_url('http://spark.apache.org/path?query=1', 'HOST'), try_parse_url('http://spark.apache.org/path?query=1', 'HOST'), try_url_decode('https%3A%2F%2Fspark.apache.org')
SELECT url_decode('https%3A%2F%2Fspark.apache.org'), url_encode('https://spark.apache.org')
-- kind: functions: variants
SELECT is_valid_variant(parse_json('null')), is_variant_null(parse_json('null')), parse_json('{"a":1,"b":0.8}')
SELECT schema_of_variant(parse_json('null')), to_variant_object(named_struct('a', 1, 'b', 2)), try_parse_json('{"a":1,"b":0.8}')
SELECT try_variant_get(parse_json('{"a": 1}'), '$.a', 'int'), variant_get(parse_json('{"a": 1}'), '$.a', 'int')
-- kind: functions: vectors
SELECT vector_avg(col) FROM VALUES (array(1.0F, 2.0F)), (array(3.0F, 4.0F)) AS tab(col)
SELECT vector_cosine_similarity(array(1.0F, 2.0F, 3.0F), array(4.0F, 5.0F, 6.0F)), vector_inner_product(array(1.0F, 2.0F, 3.0F), array(4.0F, 5.0F, 6.0F)), vector_l2_distance(array(1.0F, 2.0F, 3.0F), array(4.0F, 5.0F, 6.0F))
SELECT vector_sum(col) FROM VALUES (array(1.0F, 2.0F)), (array(3.0F, 4.0F)) AS tab(col)
SELECT vector_norm(array(3.0F, 4.0F), 2.0F), vector_normalize(array(3.0F, 4.0F), 2.0F)
-- kind: functions: windows
SELECT a, b, cume_dist() OVER (PARTITION BY a ORDER BY b) FROM VALUES ('A1', 2), ('A1', 1), ('A2', 3), ('A1', 1) tab(a, b)
SELECT a, b, dense_rank(b) OVER (PARTITION BY a ORDER BY b) FROM VALUES ('A1', 2), ('A1', 1), ('A2', 3), ('A1', 1) tab(a, b)
SELECT a, b, lag(b) OVER (PARTITION BY a ORDER BY b) FROM VALUES ('A1', 2), ('A1', 1), ('A2', 3), ('A1', 1) tab(a, b)
SELECT a, b, lead(b) OVER (PARTITION BY a ORDER BY b) FROM VALUES ('A1', 2), ('A1', 1), ('A2', 3), ('A1', 1) tab(a, b)
SELECT a, b, nth_value(b, 2) OVER (PARTITION BY a ORDER BY b) FROM VALUES ('A1', 2), ('A1', 1), ('A2', 3), ('A1', 1) tab(a, b)
SELECT a, b, ntile(2) OVER (PARTITION BY a ORDER BY b) FROM VALUES ('A1', 2), ('A1', 1), ('A2', 3), ('A1', 1) tab(a, b)
SELECT a, b, percent_rank(b) OVER (PARTITION BY a ORDER BY b) FROM VALUES ('A1', 2), ('A1', 1), ('A2', 3), ('A1', 1) tab(a, b)
SELECT a, b, rank(b) OVER (PARTITION BY a ORDER BY b) FROM VALUES ('A1', 2), ('A1', 1), ('A2', 3), ('A1', 1) tab(a, b)
SELECT a, b, row_number() OVER (PARTITION BY a ORDER BY b) FROM VALUES ('A1', 2), ('A1', 1), ('A2', 3), ('A1', 1) tab(a, b)
-- kind: functions: about the query itself, its session and the files of the table
SELECT current_catalog(), current_database(), current_path()
SELECT current_schema(), current_user(), input_file_block_length()
SELECT input_file_block_start(), input_file_name(), monotonically_increasing_id()
SELECT session_user(), spark_partition_id(), typeof(1)
SELECT user(), uuid(), version()
