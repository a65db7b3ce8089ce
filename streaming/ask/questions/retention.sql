-- When the log's oldest segment expires: also when the log is as large as it may be, and which topics drive it.
--
-- :reserved_hours integer = 72: the broker's fileReservedTime.
-- :log_bytes_max integer: the largest allowed size of the log in bytes, for example half of the disk.
-- :broker text: only messages of this broker.
-- :now time = now: the end of the day whose rate counts.
--
-- Reads log_segments.
--
-- There is one row for each topic with messages in the 24 hours before `now`, the largest first. `share` is its part of
-- that day's bytes. The forecasts are the same in each row. `oldest_expires` is when the oldest segment has not changed
-- for fileReservedTime; the broker removes the segment in the next hour deleteWhen (4 in the morning, by its clock), or
-- earlier when its disk is fuller than diskMaxUsedSpaceRatio. `log_full` is when the segments reach log_bytes_max at
-- that day's rate if nothing is removed before; it is NULL without log_bytes_max. Queues, index and other files on the
-- disk are not counted.
WITH log AS (
  SELECT min(physical_offset) AS begin_offset, sum(bytes) AS bytes FROM log_segments
), day AS (
  SELECT topic, count(*) AS messages, sum(msg_size) AS bytes
  FROM messages
  WHERE (:broker IS NULL OR broker = :broker) AND store_time <= :now
    AND store_time > timestamp_millis(unix_millis(:now) - 86400000)
  GROUP BY topic
), whole AS (SELECT sum(bytes) AS bytes FROM day)
SELECT day.topic, day.messages AS messages_a_day, day.bytes AS bytes_a_day,
  round(CAST(day.bytes AS DOUBLE) / whole.bytes, 4) AS share, log.bytes AS log_bytes,
  timestamp_millis(unix_millis(log_segments.modified_time) + :reserved_hours * 3600000) AS oldest_expires,
  timestamp_millis(unix_millis(:now)
    + CAST(floor(CAST(:log_bytes_max - log.bytes AS DOUBLE) * 86400000 / whole.bytes) AS BIGINT)) AS log_full
FROM day CROSS JOIN whole CROSS JOIN log
JOIN log_segments ON log_segments.physical_offset = log.begin_offset
ORDER BY bytes_a_day DESC, day.topic
