-- Statements that `reput sql` must refuse without Spark, one a line; a line of `-- ` names the kind of those below it.
-- {FILE} is a path in a directory that must stay empty, {TABLE} the table's, {PART} that of a file of it.
-- kind: rows written, changed or removed
INSERT INTO messages SELECT * FROM messages
INSERT INTO messages VALUES (1)
INSERT INTO messages BY NAME SELECT 'a' AS topic
INSERT OR REPLACE INTO messages SELECT * FROM messages
INSERT INTO messages SELECT * FROM messages RETURNING topic
WITH x AS (SELECT 1) INSERT INTO messages SELECT * FROM x
DELETE FROM messages
DELETE FROM messages WHERE topic = 'a'
DELETE FROM messages USING (SELECT 1) RETURNING *
UPDATE messages SET topic = 'a'
MERGE INTO messages USING messages s ON false WHEN NOT MATCHED THEN INSERT *
TRUNCATE messages
TRUNCATE TABLE messages
-- kind: files written
COPY messages TO '{FILE}'
COPY messages TO '{PART}'
COPY (SELECT 1) TO '{PART}' (FORMAT parquet)
COPY (SELECT * FROM messages) TO '{FILE}' (FORMAT parquet)
COPY (SELECT 1) TO '{FILE}' (FORMAT csv, HEADER)
COPY (SELECT 1) TO '/dev/stdout'
COPY messages FROM '{FILE}'
COPY messages FROM '/etc/passwd'
COPY FROM DATABASE memory TO temp
EXPORT DATABASE '{FILE}'
IMPORT DATABASE '{FILE}'
ATTACH '{FILE}'
ATTACH '{FILE}' AS x (TYPE duckdb)
ATTACH ':memory:' AS x
ATTACH 'http://127.0.0.1/x' AS x
DETACH memory
USE memory
USE system
CHECKPOINT
FORCE CHECKPOINT
VACUUM
VACUUM ANALYZE
ANALYZE
-- kind: tables, views and other things defined or changed
CREATE TABLE t AS SELECT * FROM messages
CREATE TABLE t (a INT)
CREATE OR REPLACE TABLE t AS FROM messages
CREATE TEMP TABLE t AS SELECT 1
CREATE VIEW v AS SELECT 1
CREATE OR REPLACE VIEW messages AS SELECT 1
CREATE TEMP VIEW messages AS SELECT 1
CREATE SCHEMA s
CREATE SEQUENCE q
CREATE TYPE y AS ENUM ('a')
CREATE INDEX i ON messages (topic)
CREATE MACRO m(a) AS a + 1
CREATE FUNCTION m(a) AS TABLE SELECT a
CREATE TEMP MACRO list_contains(a, b) AS true
CREATE SECRET (TYPE s3, KEY_ID 'a', SECRET 'b')
CREATE PERSISTENT SECRET x (TYPE http, BEARER_TOKEN 'a')
ALTER TABLE messages ADD COLUMN x INT
ALTER VIEW messages RENAME TO x
ALTER TABLE messages RENAME TO x
COMMENT ON VIEW messages IS 'x'
COMMENT ON COLUMN messages.topic IS 'x'
DROP VIEW messages
DROP VIEW IF EXISTS messages
DROP TABLE reput_removed
DROP SCHEMA main CASCADE
DROP SECRET x
-- kind: settings, extensions and transactions
SET threads = 1
SET memory_limit = '100GB'
SET temp_directory = '{FILE}'
SET enable_external_access = true
SET GLOBAL lock_configuration = false
SET SESSION lock_configuration = false
SET allowed_directories = ['/']
SET allowed_paths = ['/etc/passwd']
SET home_directory = '{FILE}'
SET custom_extension_repository = 'http://127.0.0.1'
SET autoload_known_extensions = true
SET python_enable_replacements = true
SET log_query_path = '{FILE}'
SET profiling_output = '{FILE}'
SET search_path = 'system'
SET SCHEMA 'system'
SET VARIABLE x = 1
RESET threads
RESET VARIABLE x
PRAGMA threads = 1
PRAGMA enable_profiling = 'json'
PRAGMA profiling_output = '{FILE}'
PRAGMA database_list
PRAGMA show_tables
PRAGMA table_info('messages')
PRAGMA storage_info('messages')
PRAGMA version
PRAGMA platform
PRAGMA enable_verification
PRAGMA import_database('{FILE}')
PRAGMA copy_database(memory, temp)
INSTALL httpfs
INSTALL httpfs FROM 'http://127.0.0.1'
FORCE INSTALL httpfs
INSTALL '{FILE}'
LOAD httpfs
LOAD '{FILE}'
UPDATE EXTENSIONS
BEGIN
BEGIN TRANSACTION
COMMIT
ROLLBACK
ABORT
-- kind: text that is run, and more than one statement
PREPARE p AS SELECT 1
EXECUTE p
EXECUTE p(1)
DEALLOCATE p
CALL pragma_version()
CALL range(3)
CALL query('SELECT 1')
SELECT 1; SELECT 2
SELECT 1; DROP VIEW messages
SELECT 1; COPY messages TO '{FILE}'
SELECT 1; SET threads = 1; SELECT 2
; ; SELECT 1; SELECT 2
SELECT * FROM query('SELECT 1')
SELECT * FROM query('COPY messages TO ''{FILE}''')
SELECT * FROM query_table('messages')
SELECT * FROM query_table(['messages', 'duckdb_settings'])
FROM json_execute_serialized_sql(json_serialize_sql('SELECT 1'))
SELECT json_serialize_sql('SELECT 1')
SELECT json_deserialize_sql(json_serialize_sql('SELECT 1'))
SELECT json_serialize_plan('SELECT 1')
PRAGMA json_execute_serialized_sql('{}')
SELECT $1
SELECT ?
SELECT $name
EXPLAIN INSERT INTO messages VALUES (1)
EXPLAIN ANALYZE COPY (SELECT 1) TO '{FILE}'
EXPLAIN ANALYZE CREATE TABLE t AS SELECT 1
EXPLAIN SET threads = 1
EXPLAIN (FORMAT json) SELECT * FROM '/etc/passwd'
EXPLAIN SELECT * FROM read_text('/etc/passwd')
EXPLAIN ANALYZE SELECT * FROM read_csv('/etc/passwd')
EXPLAIN EXPLAIN SELECT 1
-- kind: other tables and files
SELECT * FROM '/etc/passwd'
SELECT * FROM "/etc/passwd"
SELECT * FROM '{PART}'
SELECT * FROM '{TABLE}/*.parquet'
SELECT * FROM 'http://127.0.0.1/x.parquet'
SELECT * FROM 's3://bucket/x.parquet'
FROM '/etc/passwd'
TABLE "/etc/passwd"
SELECT * FROM messages, '/etc/passwd'
SELECT * FROM messages JOIN '/etc/passwd' ON true
SELECT (SELECT content FROM read_text('/etc/passwd'))
SELECT * FROM messages WHERE topic IN (SELECT content FROM read_text('/etc/passwd'))
SELECT EXISTS (FROM read_text('/etc/passwd'))
WITH x AS (SELECT * FROM read_text('/etc/passwd')) SELECT * FROM x
WITH x AS MATERIALIZED (SELECT * FROM read_text('/etc/passwd')) SELECT * FROM x
WITH RECURSIVE x AS (SELECT content FROM read_text('/etc/passwd') UNION SELECT * FROM x) SELECT * FROM x
SELECT 1 UNION SELECT content FROM read_text('/etc/passwd')
SELECT * FROM (VALUES ((SELECT content FROM read_text('/etc/passwd'))))
SELECT row_number() OVER (ORDER BY (SELECT content FROM read_text('/etc/passwd')))
SELECT 1 ORDER BY (SELECT content FROM read_text('/etc/passwd'))
SELECT 1 LIMIT (SELECT count(*) FROM read_text('/etc/passwd'))
SELECT 1 GROUP BY (SELECT content FROM read_text('/etc/passwd'))
SELECT count(*) FROM messages HAVING (SELECT true FROM read_text('/etc/passwd'))
SELECT topic FROM messages QUALIFY (SELECT true FROM read_text('/etc/passwd'))
SELECT CASE WHEN true THEN (SELECT content FROM read_text('/etc/passwd')) END
SELECT count(*) FILTER (WHERE (SELECT true FROM read_text('/etc/passwd'))) FROM messages
SELECT list_transform([1], x -> (SELECT 1 FROM read_text('/etc/passwd')))
SELECT * REPLACE ((SELECT content FROM read_text('/etc/passwd')) AS topic) FROM messages
SELECT COLUMNS(c -> (SELECT true FROM read_text('/etc/passwd'))) FROM messages
SELECT * FROM messages TABLESAMPLE 10%, read_text('/etc/passwd')
SELECT * FROM messages m, LATERAL (SELECT * FROM read_text('/etc/passwd'))
PIVOT messages ON topic
PIVOT messages ON topic USING count(*)
FROM messages PIVOT (count(*) FOR topic IN (SELECT content FROM read_text('/etc/passwd')))
FROM read_text('/etc/passwd') PIVOT (count(*) FOR content IN ('a'))
DESCRIBE '/etc/passwd'
DESCRIBE SELECT * FROM read_text('/etc/passwd')
SUMMARIZE '/etc/passwd'
SUMMARIZE SELECT * FROM read_csv('/etc/passwd')
SELECT * FROM (DESCRIBE '/etc/passwd')
SHOW TABLES
SHOW ALL TABLES
SHOW DATABASES
SHOW '/etc/passwd'
DESCRIBE
DESCRIBE duckdb_settings
SUMMARIZE duckdb_settings
SELECT * FROM main.messages
SELECT * FROM memory.main.messages
SELECT * FROM memory.messages
SELECT * FROM messages AT (VERSION => 1)
SELECT * FROM duckdb_settings
SELECT * FROM duckdb_tables
SELECT * FROM duckdb_views
SELECT * FROM information_schema.tables
SELECT * FROM pg_catalog.pg_class
SELECT * FROM pg_class
SELECT * FROM sqlite_master
SELECT * FROM pragma_database_list
SELECT * FROM reput_removed
SELECT * FROM reput_files
SELECT * FROM con
SELECT * FROM paths
WITH x AS (SELECT * FROM y), y AS (SELECT 1) SELECT * FROM x
WITH duckdb_settings AS (SELECT * FROM duckdb_settings) SELECT * FROM duckdb_settings
SELECT * FROM (WITH duckdb_settings AS (SELECT 1) SELECT 1), duckdb_settings
SELECT * FROM ( WITH pg_class AS (SELECT 1) FROM pg_class), (FROM pg_class)
-- kind: functions that read files, memory or DuckDB's own state
SELECT * FROM read_text('/etc/passwd')
SELECT * FROM read_blob('/etc/passwd')
SELECT * FROM READ_TEXT('/etc/passwd')
SELECT * FROM "read_text"('/etc/passwd')
SELECT * FROM main.read_text('/etc/passwd')
SELECT * FROM system.main.read_text('/etc/passwd')
SELECT * FROM read_csv('/etc/passwd')
SELECT * FROM read_csv_auto('/etc/passwd')
SELECT * FROM sniff_csv('/etc/passwd')
SELECT * FROM read_json('/etc/passwd')
SELECT * FROM read_json_auto('/etc/passwd')
SELECT * FROM read_json_objects('/etc/passwd')
SELECT * FROM read_json_objects_auto('/etc/passwd')
SELECT * FROM read_ndjson('/etc/passwd')
SELECT * FROM read_ndjson_auto('/etc/passwd')
SELECT * FROM read_ndjson_objects('/etc/passwd')
SELECT * FROM read_parquet('{PART}')
SELECT * FROM parquet_scan('{PART}')
SELECT * FROM parquet_metadata('{PART}')
SELECT * FROM parquet_file_metadata('{PART}')
SELECT * FROM parquet_kv_metadata('{PART}')
SELECT * FROM parquet_schema('{PART}')
SELECT * FROM parquet_bloom_probe('{PART}', 'topic', 'a')
SELECT * FROM read_duckdb('{FILE}')
SELECT * FROM glob('/etc/*')
SELECT * FROM delta_scan('{TABLE}')
SELECT * FROM iceberg_scan('{TABLE}')
SELECT * FROM sqlite_scan('{FILE}', 't')
SELECT * FROM postgres_scan('host=127.0.0.1', 'public', 't')
SELECT * FROM arrow_scan(0, 0, 0)
SELECT * FROM arrow_scan_dumb(0, 0, 0)
SELECT * FROM python_arrow_scan(0)
SELECT * FROM pandas_scan(0)
SELECT * FROM python_map_function(0)
SELECT * FROM seq_scan()
SELECT * FROM repeat_row(1, num_rows = 1)
SELECT * FROM summary((SELECT 1))
SELECT * FROM test_all_types()
SELECT * FROM test_vector_types(NULL)
SELECT * FROM checkpoint()
SELECT * FROM force_checkpoint()
SELECT * FROM duckdb_settings()
SELECT * FROM duckdb_secrets()
SELECT * FROM duckdb_functions()
SELECT * FROM duckdb_extensions()
SELECT * FROM duckdb_logs()
SELECT * FROM duckdb_temporary_files()
SELECT * FROM duckdb_memory()
SELECT * FROM duckdb_variables()
SELECT * FROM which_secret('s3://x', 's3')
SELECT * FROM pragma_version()
SELECT * FROM pragma_table_info('messages')
SELECT * FROM pragma_storage_info('messages')
SELECT * FROM pragma_database_size()
SELECT * FROM pragma_user_agent()
SELECT * FROM pg_timezone_names()
SELECT * FROM icu_calendar_names()
SELECT * FROM enable_logging()
SELECT * FROM disable_logging()
SELECT * FROM enable_profiling()
SELECT * FROM truncate_duckdb_logs()
SELECT * FROM histogram_values(messages, topic)
SELECT current_setting('home_directory')
SELECT getenv('HOME')
SELECT getvariable('x')
SELECT nextval('q')
SELECT currval('q')
SELECT setval('q', 1)
SELECT setseed(0.5)
SELECT write_log('x')
SELECT sleep_ms(100000)
SELECT pg_sleep(100000)
SELECT txid_current()
SELECT current_query()
SELECT current_database()
SELECT current_schemas(true)
SELECT in_search_path('main', 'main')
SELECT parse_duckdb_log_message('a', 'b')
SELECT stats(topic) FROM messages
SELECT inet_server_addr()
SELECT has_table_privilege('messages', 'select')
SELECT create_sort_key(topic, 'ASC') FROM messages
SELECT system.main.current_setting('threads')
SELECT list_transform(['threads'], x -> current_setting(x))
SELECT topic.current_setting() FROM messages
SELECT 'threads'.current_setting()
SELECT no_such_function(1)
SELECT * FROM no_such_function(1)
SELECT other.list_contains([1], 1)
