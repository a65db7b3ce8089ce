-- Ranges that reput left out of the log: damaged, refused by the queues, or expired unread.
--
-- :broker text: only ranges of this broker's log.
-- :since time: only ranges that were found then or later.
-- :until time: only ranges that were found before then.
--
-- Reads quarantine.
--
-- A `tail` with --table and onDamage=quarantine or broker keeps these rows in TABLE-quarantine, from the moment when it
-- found them. With onDamage=stop a damaged record ends the run, and there is no row. The number of messages in an
-- expired range is unknown: `gaps` shows the queue offsets that are missing between messages before and after it.
SELECT CASE WHEN cause = 'EXPIRED' THEN 'expired unread' ELSE 'quarantined' END AS finding,
  broker, physical_offset, length AS bytes, cause, file, position, found_at, policy, head
FROM quarantine
WHERE (:broker IS NULL OR broker = :broker)
  AND (:since IS NULL OR CAST(found_at AS TIMESTAMP) >= :since)
  AND (:until IS NULL OR CAST(found_at AS TIMESTAMP) < :until)
ORDER BY broker, physical_offset
