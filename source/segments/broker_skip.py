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
from reput.source.segments.broker_check import BrokerRules, check_open
from reput.source.segments.resync import OpenSegment

# 4.9.3, and 5.5.0 for the records that only 5.x writes; what a delay level means moves no end.
_V4 = BrokerRules(is_v5=False, check_crc=False, verifies_property_crc=False, delays_ms=())
_V5 = BrokerRules(is_v5=True, check_crc=False, verifies_property_crc=False, delays_ms=())


def broker_goes_on_at(segment: OpenSegment, offset: int, verdict: Verdict) -> int:
    """The offset where the replay parses its next record, or the segment's end, to which it passes what it refuses."""
    file, record = segment.file, offset + segment.file.frame
    if verdict is Verdict.BAD_INNER_BATCH:  # 5.x refuses it, whichever its magic code
        return file.end
    is_v2 = segment.i32(record + fmt.MAGIC_AT) == fmt.MESSAGE_MAGIC_CODE_V2
    check = check_open(segment.descriptor, file, record, file.end, _V5 if is_v2 else _V4)
    # A size of 0 that does not fit counts as what cannot be parsed.
    return check.position if check.size > 0 else file.end
