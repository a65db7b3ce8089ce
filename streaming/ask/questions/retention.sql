-- When the log's oldest segment expires: also when the log is as large as it may be, and which topics drive it.
--
-- :reserved_hours integer = 72: the broker's fileReservedTime.
-- :log_bytes_max integer: the largest allowed size of the log in bytes, for example half of the disk.
-- :broker text: only messages of this broker.
-- :now time = now: the time from which the forecasts count.
-- :since time: only messages stored then or later.
-- :until time: only messages stored before then.
--
-- Reads log_segments.
--
-- There is one row for each topic with messages in the period, the largest first: the 24 hours before `now`, or from
-- `since` to `until`, scaled to a day. `share` is its part of the period's bytes. The forecasts are the same in each row. `oldest_expires` is when the oldest segment has not changed
-- for fileReservedTime; the broker removes the segment in the next hour deleteWhen (4 in the morning, by its clock), or
-- earlier when its disk is fuller than diskMaxUsedSpaceRatio. `log_full` is when the segments reach log_bytes_max at
-- that rate if nothing is removed before; it is NULL without log_bytes_max. Queues, index and other files on the
-- disk are not counted.
WITH log AS (
  SELECT min(physical_offset) AS begin_offset, sum(bytes) AS bytes FROM log_segments
), day AS (
  SELECT topic, count(*) AS messages, sum(msg_size) AS bytes
  FROM messages
  WHERE (:broker IS NULL OR broker = :broker)
    AND (:since IS NULL OR store_time >= :since) AND (:until IS NULL OR store_time < :until)
    AND (:until IS NOT NULL OR store_time <= :now)
    AND (:since IS NOT NULL OR store_time > timestamp_millis(unix_millis(coalesce(:until, :now)) - 86400000))
  GROUP BY topic
), period AS (
  SELECT unix_millis(coalesce(:until, :now))
    - coalesce(unix_millis(:since), unix_millis(coalesce(:until, :now)) - 86400000) AS ms
), whole AS (SELECT sum(bytes) AS bytes, max(period.ms) AS ms FROM day CROSS JOIN period)
SELECT day.topic, CAST(floor(CAST(day.messages AS DOUBLE) * 86400000 / whole.ms) AS BIGINT) AS messages_a_day,
  CAST(floor(CAST(day.bytes AS DOUBLE) * 86400000 / whole.ms) AS BIGINT) AS bytes_a_day,
  round(CAST(day.bytes AS DOUBLE) / whole.bytes, 4) AS share, log.bytes AS log_bytes,
  timestamp_millis(unix_millis(log_segments.modified_time) + :reserved_hours * 3600000) AS oldest_expires,
  timestamp_millis(unix_millis(:now)
    + CAST(floor(CAST(:log_bytes_max - log.bytes AS DOUBLE) * whole.ms / whole.bytes) AS BIGINT)) AS log_full
FROM day CROSS JOIN whole CROSS JOIN log
JOIN log_segments ON log_segments.physical_offset = log.begin_offset
ORDER BY bytes_a_day DESC, day.topic
