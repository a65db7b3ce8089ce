"""Where a broker's replay goes on behind a record that it does not dispatch, in a segment that is complete.

``DefaultMessageStore.ReputMessageService#doReput`` with ``CommitLog#checkMessageAndReturnSize`` of 4.9.3, of a master;
``DLedgerCommitLog#checkMessageAndReturnSize`` under DLedger. Two things are not copied. The broker dispatches a
record that names another physical offset, or that has no topic: here it is left out, and the log goes on behind it, as
it does there. And after a record whose sizes differ, the broker's own position is wrong by the difference, and by the
record's size for what it skips later in the same read: it then loses records of the next segments, too, and how many
depends on how much was readable at that instant.
"""

from __future__ import annotations

from reput.source.record import message_format as fmt
from reput.source.record.message_decoder import Verdict
from reput.source.record.message_sys_flag import BORNHOST_V6_FLAG, STOREHOSTADDRESS_V6_FLAG
from reput.source.segments.resync import OpenSegment

# Records that the broker cannot parse: it throws, and skips all that it could read.
_THROWS = (Verdict.BAD_DELAY, Verdict.BAD_INNER_BATCH)


def broker_goes_on_at(segment: OpenSegment, offset: int, verdict: Verdict) -> int:
    """The offset where the replay parses its next record, or the segment's end."""
    end = segment.file.end
    record = offset + segment.file.frame
    magic = segment.i32(record + fmt.MAGIC_AT)
    if verdict in _THROWS or magic not in (fmt.MESSAGE_MAGIC_CODE, fmt.MESSAGE_MAGIC_CODE_V2):
        return end
    total_size, length = segment.i32(record), _parsed_length(segment, record, is_v2=magic == fmt.MESSAGE_MAGIC_CODE_V2)
    # A size of 0 that does not fit counts as what cannot be parsed.
    if length is None or total_size <= 0 or record + length > end:
        return end
    return record + length


def _parsed_length(segment: OpenSegment, record: int, *, is_v2: bool) -> int | None:
    """The size of the record as the broker's parser computes it; None where the parser throws."""
    total_size = segment.i32(record)
    sys_flag = segment.i32(record + fmt.SYS_FLAG_AT)
    hosts = [
        fmt.HOST_V6_SIZE if sys_flag & flag else fmt.HOST_V4_SIZE
        for flag in (BORNHOST_V6_FLAG, STOREHOSTADDRESS_V6_FLAG)
    ]
    extra = sum(hosts) - 2 * fmt.HOST_V4_SIZE
    body_length = segment.i32(record + fmt.BODY_LENGTH_AT + extra)
    width = fmt.TOPIC_LENGTH_V2_SIZE if is_v2 else fmt.TOPIC_LENGTH_SIZE
    topic = record + fmt.BODY_AT + extra + max(0, body_length)
    if topic + width > segment.file.end:
        return None
    topic_length = segment.integer(topic, width)
    properties = topic + width + topic_length
    if topic_length < 0 or properties + fmt.PROPERTIES_LENGTH_SIZE > segment.file.end:
        return None
    properties_length = segment.integer(properties, fmt.PROPERTIES_LENGTH_SIZE)
    # It copies each into an array of the record's total size, which must have room.
    if max(*hosts, topic_length, properties_length) > total_size:
        return None
    return fmt.calc_msg_length(extra, body_length, topic_length, properties_length, width)
