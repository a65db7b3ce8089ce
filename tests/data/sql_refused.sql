-- Statements that `reput sql` must refuse, one a line; a line of `-- ` names the kind of those below it.
-- They are refused by what they are made of. {FILE} is a path in a directory that must stay empty, {TABLE} the table's.
-- kind: rows written, changed or removed
INSERT INTO messages SELECT * FROM messages
INSERT INTO messages VALUES (1)
INSERT INTO TABLE messages (topic) VALUES ('a')
INSERT INTO messages BY NAME SELECT 'a' AS topic
INSERT INTO messages TABLE messages
INSERT INTO delta.`{TABLE}` SELECT * FROM messages
INSERT INTO messages REPLACE WHERE topic = 'a' SELECT * FROM messages
INSERT INTO messages REPLACE USING (topic) SELECT * FROM messages
INSERT INTO messages REPLACE ON topic = 'a' SELECT * FROM messages
INSERT OVERWRITE messages SELECT * FROM messages
INSERT OVERWRITE TABLE delta.`{TABLE}` SELECT * FROM messages WHERE false
INSERT OVERWRITE TABLE messages PARTITION (topic = 'a') SELECT 1
WITH x AS (SELECT * FROM messages) INSERT INTO delta.`{TABLE}` SELECT * FROM x
WITH x AS (SELECT * FROM messages) INSERT OVERWRITE delta.`{TABLE}` SELECT * FROM x
WITH x AS (SELECT 1), y AS (SELECT 2) DELETE FROM delta.`{TABLE}`
WITH x AS (SELECT 1) UPDATE delta.`{TABLE}` SET topic = 'a'
FROM messages INSERT INTO delta.`{TABLE}` SELECT *
FROM messages INSERT INTO delta.`{TABLE}` SELECT * INSERT INTO delta.`{FILE}` SELECT *
FROM messages INSERT OVERWRITE DIRECTORY '{FILE}' USING csv SELECT topic
DELETE FROM messages
DELETE FROM messages WHERE topic = 'a'
DELETE FROM delta.`{TABLE}`
DELETE FROM delta.`{TABLE}` AS t WHERE EXISTS (SELECT 1 FROM messages)
UPDATE messages SET topic = 'a'
UPDATE delta.`{TABLE}` SET topic = 'a' WHERE queue_id = 1
MERGE INTO messages USING messages s ON false WHEN NOT MATCHED THEN INSERT *
MERGE INTO delta.`{TABLE}` t USING messages s ON t.topic = s.topic WHEN MATCHED THEN DELETE
MERGE INTO delta.`{TABLE}` t USING (SELECT * FROM messages) s ON t.topic = s.topic WHEN MATCHED THEN UPDATE SET *
MERGE WITH SCHEMA EVOLUTION INTO delta.`{TABLE}` t USING messages s ON false WHEN NOT MATCHED BY SOURCE THEN DELETE
TRUNCATE TABLE messages
TRUNCATE TABLE delta.`{TABLE}` PARTITION (topic = 'a')
LOAD DATA INPATH '{FILE}' INTO TABLE messages
LOAD DATA LOCAL INPATH '/etc/passwd' OVERWRITE INTO TABLE messages PARTITION (topic = 'a')
-- kind: files written
INSERT OVERWRITE DIRECTORY '{FILE}' USING csv SELECT topic FROM messages
INSERT OVERWRITE DIRECTORY USING parquet OPTIONS ('path' '{FILE}') SELECT * FROM messages
INSERT OVERWRITE LOCAL DIRECTORY '{FILE}' USING json SELECT topic FROM messages
INSERT OVERWRITE LOCAL DIRECTORY '{FILE}' ROW FORMAT DELIMITED FIELDS TERMINATED BY ',' SELECT topic FROM messages
INSERT OVERWRITE DIRECTORY '{FILE}' STORED AS textfile SELECT topic FROM messages
WITH x AS (SELECT topic FROM messages) INSERT OVERWRITE DIRECTORY '{FILE}' USING csv SELECT * FROM x
CREATE TABLE t USING csv LOCATION '{FILE}' AS SELECT topic FROM messages
CREATE TABLE t AS SELECT * FROM messages
CREATE TABLE t (a INT) USING delta
CREATE TABLE IF NOT EXISTS t (a INT NOT NULL DEFAULT 1 COMMENT 'c') USING parquet PARTITIONED BY (a)
CREATE TABLE t (a INT, b INT GENERATED ALWAYS AS (a + 1)) USING delta
CREATE TABLE t (a BIGINT GENERATED ALWAYS AS IDENTITY) USING delta
CREATE TABLE t (a INT, CONSTRAINT c PRIMARY KEY (a)) USING delta
CREATE TABLE t (a INT) USING delta CLUSTER BY (a)
CREATE OR REPLACE TABLE t USING delta CLUSTER BY (a) AS SELECT 1 AS a
CREATE EXTERNAL TABLE t (a INT) STORED AS textfile LOCATION '{FILE}'
CREATE TABLE t (a STRING) ROW FORMAT SERDE 'org.apache.hadoop.hive.serde2.RegexSerDe'
CREATE TABLE t (a STRING) CLUSTERED BY (a) INTO 2 BUCKETS
CREATE TABLE delta.`{FILE}` (a INT) USING delta
CREATE TABLE delta.`{FILE}` AS SELECT * FROM messages
CREATE OR REPLACE TABLE delta.`{FILE}` AS SELECT 1 AS a
REPLACE TABLE delta.`{TABLE}` (a INT) USING delta
REPLACE TABLE delta.`{TABLE}` USING delta AS SELECT 1 AS a
CREATE TABLE t LIKE messages
CREATE TABLE t LIKE messages USING delta LOCATION '{FILE}'
CREATE TABLE t SHALLOW CLONE delta.`{TABLE}`
CREATE TABLE delta.`{FILE}` SHALLOW CLONE delta.`{TABLE}` VERSION AS OF 0
REPLACE TABLE t SHALLOW CLONE delta.`{TABLE}` TBLPROPERTIES ('a' = 'b')
CONVERT TO DELTA parquet.`{FILE}`
CONVERT TO DELTA parquet.`{FILE}` NO STATISTICS PARTITIONED BY (a INT)
GENERATE symlink_format_manifest FOR TABLE delta.`{TABLE}`
CACHE TABLE messages
CACHE LAZY TABLE t OPTIONS ('storageLevel' 'DISK_ONLY') AS SELECT * FROM messages
UNCACHE TABLE messages
UNCACHE TABLE IF EXISTS t
CLEAR CACHE
-- kind: the table's own history and layout
RESTORE TABLE delta.`{TABLE}` TO VERSION AS OF 0
RESTORE TABLE delta.`{TABLE}` VERSION AS OF 0
RESTORE delta.`{TABLE}` TO TIMESTAMP AS OF '2020-01-01'
VACUUM delta.`{TABLE}`
VACUUM '{TABLE}' RETAIN 0 HOURS
VACUUM '{TABLE}' RETAIN 0 HOURS DRY RUN
VACUUM delta.`{TABLE}` LITE
VACUUM delta.`{TABLE}` FULL
VACUUM delta.`{TABLE}` USING INVENTORY (SELECT 'a' path, 1L length, false isDir, 1L modificationTime)
OPTIMIZE delta.`{TABLE}`
OPTIMIZE '{TABLE}' WHERE topic = 'a'
OPTIMIZE delta.`{TABLE}` FULL
OPTIMIZE delta.`{TABLE}` ZORDER BY (queue_offset)
REORG TABLE delta.`{TABLE}` APPLY (PURGE)
REORG TABLE delta.`{TABLE}` WHERE topic = 'a' APPLY (PURGE)
REORG TABLE delta.`{TABLE}` APPLY (UPGRADE UNIFORM (ICEBERG_COMPAT_VERSION = 2))
DESCRIBE HISTORY delta.`{TABLE}`
DESC HISTORY '{TABLE}' LIMIT 1
DESCRIBE HISTORY messages
DESCRIBE DETAIL delta.`{TABLE}`
DESC DETAIL '{TABLE}'
DESCRIBE DETAIL messages
ALTER TABLE delta.`{TABLE}` ADD CONSTRAINT c CHECK (queue_id >= 0)
ALTER TABLE delta.`{TABLE}` DROP CONSTRAINT c
ALTER TABLE delta.`{TABLE}` DROP CONSTRAINT IF EXISTS c CASCADE
ALTER TABLE delta.`{TABLE}` DROP FEATURE deletionVectors
ALTER TABLE delta.`{TABLE}` DROP FEATURE deletionVectors TRUNCATE HISTORY
ALTER TABLE delta.`{TABLE}` CLUSTER BY (topic)
ALTER TABLE delta.`{TABLE}` CLUSTER BY NONE
ALTER TABLE delta.`{TABLE}` ALTER COLUMN queue_id SYNC IDENTITY
-- kind: definitions of tables changed
ALTER TABLE delta.`{TABLE}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')
ALTER TABLE delta.`{TABLE}` UNSET TBLPROPERTIES IF EXISTS ('a')
ALTER VIEW messages SET TBLPROPERTIES ('a' = 'b')
ALTER TABLE delta.`{TABLE}` ADD COLUMN x INT
ALTER TABLE delta.`{TABLE}` ADD COLUMNS (x INT, y STRING AFTER topic)
ALTER TABLE delta.`{TABLE}` RENAME COLUMN topic TO t
ALTER TABLE delta.`{TABLE}` DROP COLUMN topic
ALTER TABLE delta.`{TABLE}` DROP COLUMNS IF EXISTS (topic, tags)
ALTER TABLE delta.`{TABLE}` ALTER COLUMN topic COMMENT 'c'
ALTER TABLE delta.`{TABLE}` ALTER COLUMN queue_id TYPE BIGINT
ALTER TABLE delta.`{TABLE}` ALTER COLUMN topic DROP NOT NULL
ALTER TABLE delta.`{TABLE}` CHANGE COLUMN topic topic STRING COMMENT 'c'
ALTER TABLE delta.`{TABLE}` REPLACE COLUMNS (x INT)
ALTER TABLE delta.`{TABLE}` DEFAULT COLLATION UTF8_LCASE
ALTER TABLE t SET SERDE 'x' WITH SERDEPROPERTIES ('a' = 'b')
ALTER TABLE t SET SERDEPROPERTIES ('a' = 'b')
ALTER TABLE t ADD IF NOT EXISTS PARTITION (a = 1) LOCATION '{FILE}'
ALTER TABLE t PARTITION (a = 1) RENAME TO PARTITION (a = 2)
ALTER TABLE t DROP IF EXISTS PARTITION (a = 1) PURGE
ALTER TABLE t SET LOCATION '{FILE}'
ALTER TABLE t PARTITION (a = 1) SET LOCATION '{FILE}'
ALTER TABLE t RECOVER PARTITIONS
ALTER TABLE t RENAME TO u
ALTER VIEW messages RENAME TO u
ALTER VIEW messages AS SELECT 1
ALTER VIEW messages WITH SCHEMA BINDING
MSCK REPAIR TABLE t
REPAIR TABLE t SYNC PARTITIONS
ANALYZE TABLE delta.`{TABLE}` COMPUTE STATISTICS
ANALYZE TABLE delta.`{TABLE}` COMPUTE STATISTICS FOR ALL COLUMNS
ANALYZE TABLE messages COMPUTE STATISTICS FOR COLUMNS topic
ANALYZE TABLES COMPUTE STATISTICS NOSCAN
DROP TABLE delta.`{TABLE}`
DROP TABLE IF EXISTS t PURGE
DROP TABLE messages
DROP VIEW messages
DROP VIEW IF EXISTS messages
COMMENT ON TABLE delta.`{TABLE}` IS 'c'
COMMENT ON DATABASE default IS 'c'
COMMENT ON SCHEMA default IS NULL
CREATE INDEX i ON TABLE t USING bloom (a) OPTIONS ('a' = 'b')
CREATE INDEX IF NOT EXISTS i ON t (a)
DROP INDEX IF EXISTS i ON t
REFRESH TABLE messages
REFRESH '{FILE}'
REFRESH FUNCTION abs
-- kind: views, variables, functions and namespaces made or changed
CREATE VIEW v AS SELECT * FROM messages
CREATE OR REPLACE TEMPORARY VIEW messages AS SELECT 1
CREATE GLOBAL TEMPORARY VIEW v AS SELECT 1
CREATE OR REPLACE VIEW v (a COMMENT 'c') TBLPROPERTIES ('a' = 'b') AS SELECT 1
CREATE VIEW v WITH METRICS LANGUAGE YAML AS $$version: 0.1$$
CREATE TEMPORARY VIEW passwd USING text OPTIONS (path '/etc/passwd')
CREATE OR REPLACE TEMPORARY VIEW messages USING csv OPTIONS ('path' '/etc/passwd')
CREATE MATERIALIZED VIEW v AS SELECT 1
CREATE STREAMING TABLE t AS SELECT * FROM STREAM messages
CREATE FLOW f AS INSERT INTO messages BY NAME SELECT * FROM messages
CREATE FUNCTION f AS 'java.lang.Runtime'
CREATE OR REPLACE TEMPORARY FUNCTION abs AS 'org.apache.hadoop.hive.ql.udf.UDFConv' USING JAR '{FILE}'
CREATE FUNCTION f(x INT) RETURNS INT RETURN x + 1
CREATE OR REPLACE TEMPORARY FUNCTION f() RETURNS TABLE (a INT) RETURN SELECT 1
DROP FUNCTION f
DROP TEMPORARY FUNCTION IF EXISTS f
DECLARE VARIABLE x INT DEFAULT 1
DECLARE OR REPLACE x = 5
SET VARIABLE x = 1
SET VAR (x) = (SELECT count(*) FROM messages)
DROP TEMPORARY VARIABLE IF EXISTS x
CREATE DATABASE d
CREATE SCHEMA IF NOT EXISTS d LOCATION '{FILE}'
CREATE NAMESPACE d WITH PROPERTIES ('a' = 'b')
ALTER DATABASE default SET DBPROPERTIES ('a' = 'b')
ALTER DATABASE default UNSET DBPROPERTIES ('a')
ALTER NAMESPACE default SET LOCATION '{FILE}'
DROP DATABASE IF EXISTS d CASCADE
DROP SCHEMA d RESTRICT
USE default
USE DATABASE default
USE spark_catalog.default
SET CATALOG spark_catalog
SET CATALOG 'x'
-- kind: settings of the session
SET
SET -v
SET spark.sql.ansi.enabled = false
SET spark.sql.variable.substitute=true
SET `spark.sql.shuffle.partitions` = `3`
SET spark.sql.shuffle.partitions
SET TIME ZONE 'Asia/Shanghai'
SET TIME ZONE INTERVAL 8 HOURS
SET TIME ZONE LOCAL
SET PATH = system.builtin
RESET
RESET spark.sql.ansi.enabled
RESET `spark.sql.ansi.enabled`
-- kind: files and jars added
ADD JAR '{FILE}'
ADD FILE '/etc/passwd'
ADD ARCHIVE {FILE}
LIST JARS
LIST FILES
-- kind: text that is run, and scripts
EXECUTE IMMEDIATE 'SELECT 1'
EXECUTE IMMEDIATE 'DELETE FROM delta.`{TABLE}`'
EXECUTE IMMEDIATE 'SELECT ?' USING 1
EXECUTE IMMEDIATE 'SELECT :a' INTO x USING 1 AS a
CALL system.proc()
CALL spark_catalog.default.p(1, a => 2)
BEGIN SELECT 1; END
BEGIN DELETE FROM delta.`{TABLE}`; END
BEGIN DECLARE x INT DEFAULT 1; SET x = 2; SELECT x; END
BEGIN IF true THEN DELETE FROM delta.`{TABLE}`; ELSE SELECT 1; END IF; END
BEGIN WHILE false DO SELECT 1; END WHILE; END
BEGIN l: LOOP LEAVE l; END LOOP; END
BEGIN l: LOOP ITERATE l; END LOOP; END
BEGIN REPEAT SELECT 1; UNTIL true END REPEAT; END
BEGIN FOR r AS SELECT * FROM messages DO SELECT r.topic; END FOR; END
BEGIN CASE WHEN true THEN SELECT 1; END CASE; END
BEGIN CASE 1 WHEN 1 THEN SELECT 1; ELSE SELECT 2; END CASE; END
BEGIN DECLARE c CONDITION FOR SQLSTATE '12345'; SELECT 1; END
BEGIN DECLARE EXIT HANDLER FOR DIVIDE_BY_ZERO BEGIN SELECT 0; END; SELECT 1 / 0; END
-- kind: programs and Java called
SELECT TRANSFORM (topic) USING 'touch {FILE}' AS (x STRING) FROM messages
SELECT TRANSFORM (topic) ROW FORMAT DELIMITED FIELDS TERMINATED BY ',' USING 'cat' AS (x) FROM messages
FROM messages SELECT TRANSFORM (topic) USING 'touch {FILE}'
MAP topic USING 'touch {FILE}' AS x FROM messages
FROM messages REDUCE topic USING 'touch {FILE}' AS (x, y)
SELECT * FROM (SELECT TRANSFORM (topic) USING 'touch {FILE}' AS (x) FROM messages)
WITH x AS (SELECT TRANSFORM (topic) USING 'touch {FILE}' AS (x) FROM messages) SELECT 1
SELECT java_method('java.lang.System', 'getProperty', 'user.home')
SELECT reflect('java.lang.Runtime', 'getRuntime')
SELECT try_reflect('java.lang.System', 'exit', 0)
SELECT JAVA_METHOD('java.lang.System', 'getenv', 'HOME')
SELECT `reflect`('java.lang.System', 'getenv', 'HOME')
SELECT topic FROM messages WHERE reflect('java.lang.System', 'getenv', topic) IS NULL
SELECT count(*) FROM messages GROUP BY java_method('java.lang.System', 'getenv', topic)
SELECT 1 FROM messages ORDER BY reflect('java.lang.System', 'getenv', topic)
SELECT count(*) FROM messages HAVING reflect('java.lang.System', 'getenv', 'x') IS NULL
SELECT sum(queue_id) OVER (PARTITION BY reflect('java.lang.System', 'getenv', topic)) FROM messages
SELECT row_number() OVER w FROM messages WINDOW w AS (ORDER BY reflect('java.lang.System', 'getenv', topic))
SELECT transform(keys, k -> reflect('java.lang.System', 'getenv', k)) FROM messages
SELECT count(*) FILTER (WHERE reflect('java.lang.System', 'getenv', topic) IS NULL) FROM messages
SELECT listagg(topic) WITHIN GROUP (ORDER BY reflect('java.lang.System', 'getenv', topic)) FROM messages
SELECT CASE WHEN true THEN 1 ELSE reflect('java.lang.System', 'getenv', 'x') END
SELECT (SELECT reflect('java.lang.System', 'getenv', 'x'))
SELECT EXISTS (SELECT 1 FROM messages WHERE reflect('java.lang.System', 'getenv', topic) = 'a')
SELECT 1 WHERE 'a' IN (SELECT reflect('java.lang.System', 'getenv', 'x'))
SELECT * FROM messages m JOIN messages n ON reflect('java.lang.System', 'getenv', m.topic) = n.topic
SELECT * FROM messages, LATERAL (SELECT reflect('java.lang.System', 'getenv', topic))
SELECT * FROM messages LATERAL VIEW explode(array(reflect('java.lang.System', 'getenv', topic))) t AS x
SELECT * FROM messages PIVOT (max(reflect('java.lang.System', 'getenv', topic)) FOR queue_id IN (1, 2))
VALUES (reflect('java.lang.System', 'getenv', 'HOME'))
SELECT * FROM VALUES (1), (reflect('java.lang.System', 'getenv', 'HOME')) AS t(a)
SELECT * FROM range(reflect('java.lang.Math', 'abs', -5))
SELECT * FROM explode(array(reflect('java.lang.System', 'getenv', 'HOME')))
SELECT 1 LIMIT length(reflect('java.lang.System', 'getenv', 'HOME'))
SELECT 1 OFFSET length(reflect('java.lang.System', 'getenv', 'HOME'))
SELECT 1 UNION ALL SELECT reflect('java.lang.System', 'getenv', 'HOME')
WITH x AS (SELECT reflect('java.lang.System', 'getenv', 'HOME')) SELECT 1
WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT length(reflect('java.lang.System', 'getenv', 'HOME')) FROM x) SELECT 1
FROM messages |> SELECT reflect('java.lang.System', 'getenv', topic)
FROM messages |> EXTEND java_method('java.lang.System', 'getenv', topic) AS x
FROM messages |> WHERE reflect('java.lang.System', 'getenv', topic) IS NULL
FROM messages |> AGGREGATE max(reflect('java.lang.System', 'getenv', topic))
FROM messages |> SET topic = reflect('java.lang.System', 'getenv', topic)
SELECT /*+ REPARTITION(reflect('java.lang.System', 'getenv', 'x')) */ * FROM messages
SELECT struct(reflect('java.lang.System', 'getenv', 'x')).col1
SELECT map('a', reflect('java.lang.System', 'getenv', 'x'))['a']
SELECT CAST(reflect('java.lang.System', 'getenv', 'x') AS STRING)
SELECT reflect('java.lang.System', 'getenv', 'x') COLLATE UTF8_LCASE
SELECT -length(reflect('java.lang.System', 'getenv', 'x'))
EXPLAIN SELECT reflect('java.lang.System', 'getenv', 'HOME')
DESCRIBE QUERY SELECT reflect('java.lang.System', 'getenv', 'HOME')
DESCRIBE FUNCTION reflect
DESCRIBE FUNCTION EXTENDED java_method
SELECT system.builtin.reflect('java.lang.System', 'getenv', 'HOME')
SELECT builtin.java_method('java.lang.System', 'getenv', 'HOME')
SELECT IDENTIFIER('reflect')('java.lang.System', 'getenv', 'HOME')
SELECT from_avro(X'02', '"int"')
SELECT to_avro(1)
SELECT schema_of_avro('"int"')
SELECT from_protobuf(X'02', 'M', '/etc/passwd')
SELECT to_protobuf(struct(1), 'M', '/etc/passwd')
SELECT from_xml('<a/>', 'a STRING', map('rowValidationXSDPath', '/etc/passwd'))
SELECT schema_of_xml('<a/>')
SELECT to_xml(struct(1 AS a))
SELECT xpath('<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>', 'a/text()')
SELECT xpath_boolean('<a/>', 'a'), xpath_double('<a/>', 'a'), xpath_float('<a/>', 'a')
SELECT xpath_int('<a/>', 'a'), xpath_long('<a/>', 'a'), xpath_number('<a/>', 'a')
SELECT xpath_short('<a/>', 'a')
SELECT xpath_string('<a/>', 'a')
SELECT measure(topic) FROM messages
SELECT my_function(topic) FROM messages
SELECT default.my_function(topic) FROM messages
SELECT ai_query('model', topic) FROM messages
SELECT http_request('http://127.0.0.1/')
SELECT * FROM my_udtf(TABLE(SELECT * FROM messages) PARTITION BY topic)
-- kind: functions of the type TIME, which Spark has switched off
SELECT make_time(1, 2, 3)
SELECT time('12:00:00')
SELECT current_time()
SELECT time_diff('HOUR', '01:00:00', '02:00:00')
SELECT time_from_micros(1)
SELECT time_from_millis(1)
SELECT time_from_seconds(1)
SELECT time_to_micros('12:00:00')
SELECT time_to_millis('12:00:00')
SELECT time_to_seconds('12:00:00')
SELECT time_trunc('HOUR', '12:00:00')
SELECT to_time('12:00:00')
SELECT try_to_time('12:00:00')
-- kind: other tables, files and versions
SELECT * FROM text.`/etc/passwd`
SELECT * FROM csv.`/etc/passwd`
SELECT * FROM json.`/etc/passwd`
SELECT * FROM binaryFile.`/etc/passwd`
SELECT * FROM parquet.`{TABLE}`
SELECT * FROM orc.`{TABLE}`
SELECT * FROM avro.`{TABLE}`
SELECT * FROM xml.`/etc/passwd`
SELECT * FROM delta.`{TABLE}`
SELECT * FROM delta.`{TABLE}@v0`
SELECT * FROM `delta`.`{TABLE}` VERSION AS OF 0
SELECT * FROM messages VERSION AS OF 0
SELECT * FROM messages FOR SYSTEM_VERSION AS OF 0
SELECT * FROM messages TIMESTAMP AS OF current_timestamp()
SELECT * FROM messages FOR SYSTEM_TIME AS OF '2020-01-01'
SELECT * FROM messages CHANGES FROM VERSION 0
SELECT * FROM messages CHANGES FROM VERSION 0 TO VERSION 1
SELECT * FROM STREAM messages
SELECT * FROM STREAM(messages)
SELECT * FROM messages WITH ('readChangeFeed' = 'true')
SELECT * FROM other
SELECT * FROM spark_catalog.default.messages
SELECT * FROM default.messages
SELECT * FROM global_temp.messages
SELECT * FROM session.messages
SELECT * FROM system.session.messages
SELECT * FROM `/etc/passwd`
SELECT * FROM `delta.{TABLE}`
SELECT * FROM `messages.x`
SELECT * FROM ` messages`
SELECT * FROM IDENTIFIER('text.`/etc/passwd`')
SELECT * FROM IDENTIFIER('mess' || 'ages')
SELECT IDENTIFIER('top' || 'ic') FROM messages
SELECT * FROM table_changes('messages', 0)
SELECT * FROM table_changes_by_path('{TABLE}', 0)
SELECT * FROM python_worker_logs()
SELECT * FROM read_files('/etc/passwd')
SELECT * FROM cloud_files('/etc', 'text')
SELECT * FROM system.builtin.range(3)
SELECT (SELECT max(value) FROM text.`/etc/passwd`)
SELECT * FROM messages WHERE topic IN (SELECT value FROM text.`/etc/passwd`)
SELECT * FROM messages WHERE EXISTS (SELECT 1 FROM text.`/etc/passwd`)
SELECT * FROM messages JOIN text.`/etc/passwd` ON true
SELECT * FROM messages, LATERAL (SELECT * FROM text.`/etc/passwd`)
SELECT topic FROM messages UNION SELECT value FROM text.`/etc/passwd`
WITH x AS (SELECT * FROM text.`/etc/passwd`) SELECT 1
WITH x AS (SELECT 1) SELECT * FROM (SELECT * FROM text.`/etc/passwd`), x
WITH x AS (WITH y AS (SELECT 1) SELECT * FROM y) SELECT * FROM y
WITH x AS (SELECT * FROM y), y AS (SELECT 1) SELECT * FROM x
WITH x AS (SELECT * FROM x) SELECT * FROM x
SELECT * FROM (WITH x AS (SELECT 1) SELECT * FROM x) JOIN x
WITH text AS (SELECT 1) SELECT * FROM text.`/etc/passwd`
WITH `/etc/passwd` AS (SELECT 1) SELECT * FROM text.`/etc/passwd`
TABLE text.`/etc/passwd`
TABLE other
FROM text.`/etc/passwd` |> SELECT *
FROM messages |> JOIN text.`/etc/passwd` ON true
FROM messages |> UNION ALL TABLE other
SELECT transform(keys, k -> (SELECT max(value) FROM text.`/etc/passwd`)) FROM messages
SELECT CASE WHEN (SELECT count(*) FROM other) = 1 THEN 1 END
SELECT * FROM messages ORDER BY (SELECT max(value) FROM text.`/etc/passwd`)
SELECT * FROM messages LIMIT (SELECT count(*) FROM other)
EXPLAIN SELECT * FROM text.`/etc/passwd`
EXPLAIN DELETE FROM delta.`{TABLE}`
EXPLAIN EXTENDED INSERT INTO delta.`{TABLE}` SELECT * FROM messages
EXPLAIN EXPLAIN SELECT 1
EXPLAIN DESCRIBE messages
EXPLAIN CREATE TABLE t AS SELECT 1
DESCRIBE QUERY SELECT * FROM text.`/etc/passwd`
DESCRIBE other
DESCRIBE delta.`{TABLE}`
DESCRIBE TABLE EXTENDED text.`/etc/passwd`
DESCRIBE default.messages
SHOW COLUMNS IN other
SHOW COLUMNS IN delta.`{TABLE}`
SHOW COLUMNS IN messages IN default
SELECT :name
SELECT ?
SELECT * FROM messages WHERE topic = :topic
SELECT session_variable_function(1)
-- kind: statements about Spark and its catalogs
SHOW TABLES
SHOW TABLES IN default LIKE 'a*'
SHOW TABLE EXTENDED LIKE '*'
SHOW VIEWS
SHOW DATABASES
SHOW NAMESPACES IN spark_catalog
SHOW CATALOGS
SHOW COLLATIONS
SHOW CURRENT NAMESPACE
SHOW FUNCTIONS
SHOW USER FUNCTIONS LIKE 'a*'
SHOW PROCEDURES
SHOW PARTITIONS messages
SHOW CREATE TABLE messages
SHOW CREATE TABLE delta.`{TABLE}` AS SERDE
SHOW TBLPROPERTIES delta.`{TABLE}`
SHOW TBLPROPERTIES messages ('a')
DESCRIBE DATABASE default
DESC NAMESPACE EXTENDED default
DESCRIBE PROCEDURE p
-- kind: what Spark's parser refuses itself
CREATE OR REPLACE TABLE t DEEP CLONE delta.`{TABLE}` LOCATION '{FILE}'
ALTER SCHEMA default DEFAULT COLLATION UTF8_LCASE
SET ROLE admin
BEGIN DECLARE c CURSOR FOR SELECT 1; OPEN c; CLOSE c; END
BEGIN DECLARE x INT; DECLARE c CURSOR FOR SELECT 1; OPEN c; FETCH c INTO x; CLOSE c; END
SELECT 1; DELETE FROM delta.`{TABLE}`
SELECT 1; SELECT 2
SELECT * FROM my_udtf(TABLE messages)
SELECT * FROM meſſages
DESCRIBE QUERY DELETE FROM messages
SHOW ROLES
SHOW GRANT
SHOW PRINCIPALS
SHOW TRANSACTIONS
SHOW COMPACTIONS
SHOW LOCKS
SHOW INDEXES
GRANT SELECT ON messages TO x
REVOKE SELECT ON messages FROM x
CREATE ROLE x
DROP ROLE x
EXPORT TABLE messages TO '{FILE}'
IMPORT TABLE t FROM '{FILE}'
LOCK TABLE messages SHARED
UNLOCK TABLE messages
LOCK DATABASE default
UNLOCK DATABASE default
CREATE TEMPORARY MACRO m(x INT) x + 1
DROP TEMPORARY MACRO m
START TRANSACTION
COMMIT
ROLLBACK
DFS -ls /
ALTER INDEX i ON t REBUILD
ALTER TABLE t NOT CLUSTERED
ALTER TABLE t CLUSTERED BY (a) INTO 2 BUCKETS
ALTER TABLE t NOT SORTED
ALTER TABLE t SKEWED BY (a) ON (1)
ALTER TABLE t NOT SKEWED
ALTER TABLE t NOT STORED AS DIRECTORIES
ALTER TABLE t SET SKEWED LOCATION (a = '{FILE}')
ALTER TABLE t EXCHANGE PARTITION (a = 1) WITH TABLE u
ALTER TABLE t ARCHIVE PARTITION (a = 1)
ALTER TABLE t UNARCHIVE PARTITION (a = 1)
ALTER TABLE t TOUCH
ALTER TABLE t COMPACT 'major'
ALTER TABLE t CONCATENATE
ALTER TABLE t SET FILEFORMAT orc
