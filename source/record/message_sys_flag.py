"""Bits of sysFlag (``MessageSysFlag``)."""

from __future__ import annotations

COMPRESSED_FLAG = 0x1
MULTI_TAGS_FLAG = 0x2

TRANSACTION_NOT_TYPE = 0x0
TRANSACTION_PREPARED_TYPE = 0x4
TRANSACTION_COMMIT_TYPE = 0x8
TRANSACTION_ROLLBACK_TYPE = 0xC
TRANSACTION_MASK = 0xC

BORNHOST_V6_FLAG = 0x10
STOREHOSTADDRESS_V6_FLAG = 0x20

# Defined from 4.9.4 on, used from 5.0 on; the store itself reads none of them.
NEED_UNWRAP_FLAG = 0x40  # a batch that the client has to take apart
INNER_BATCH_FLAG = 0x80  # one record that holds several messages, see INNER_NUM

COMPRESSION_TYPE_MASK = 0x700
COMPRESSION_TYPE_NAMES = {
    0x000: "zlib",  # before there was a choice
    0x100: "lz4",
    0x200: "zstd",
    0x300: "zlib",
}

TRANSACTION_TYPE_NAMES = {
    TRANSACTION_NOT_TYPE: "none",
    TRANSACTION_PREPARED_TYPE: "prepared",
    TRANSACTION_COMMIT_TYPE: "commit",
    TRANSACTION_ROLLBACK_TYPE: "rollback",
}

_FLAG_NAMES = {
    MULTI_TAGS_FLAG: "multi_tags",
    BORNHOST_V6_FLAG: "born_host_v6",
    STOREHOSTADDRESS_V6_FLAG: "store_host_v6",
    NEED_UNWRAP_FLAG: "need_unwrap",
    INNER_BATCH_FLAG: "inner_batch",
}

assert set(TRANSACTION_TYPE_NAMES) == {bits for bits in range(TRANSACTION_MASK + 1) if bits & ~TRANSACTION_MASK == 0}


def compression_type(sys_flag: int) -> str | None:
    """What the body is compressed with: ``zlib``, ``lz4`` or ``zstd``; None for a type that no broker knows.

    It says something only where `COMPRESSED_FLAG` is set (``MessageSysFlag#getCompressionType``).
    """
    return COMPRESSION_TYPE_NAMES.get(sys_flag & COMPRESSION_TYPE_MASK)


def flag_names(sys_flag: int) -> list[str]:
    """What is set in `sys_flag`, in words: the transaction's type unless it has none, the body's compression, the rest.

    Bits that no broker knows are one hexadecimal number at the end.
    """
    names = [TRANSACTION_TYPE_NAMES[transaction_type(sys_flag)]] if transaction_type(sys_flag) else []
    known = TRANSACTION_MASK
    if sys_flag & COMPRESSED_FLAG:
        kind = compression_type(sys_flag)
        known |= COMPRESSED_FLAG | (COMPRESSION_TYPE_MASK if kind else 0)
        names.append("compressed" if kind is None else f"compressed_{kind}")
    for flag, name in _FLAG_NAMES.items():
        known |= flag
        if sys_flag & flag:
            names.append(name)
    others = sys_flag & ~known & 0xFFFFFFFF
    return [*names, *([f"{others:#x}"] if others else [])]


def transaction_type(sys_flag: int) -> int:
    """The transaction bits of `sys_flag` (``MessageSysFlag#getTransactionValue``)."""
    return sys_flag & TRANSACTION_MASK


def is_queued(sys_flag: int) -> bool:
    """Whether the record gets a ConsumeQueue entry: prepared and rolled-back ones do not."""
    return transaction_type(sys_flag) in (TRANSACTION_NOT_TYPE, TRANSACTION_COMMIT_TYPE)


def is_indexed(sys_flag: int) -> bool:
    """Whether the record's keys are indexed: all but a rollback's (``IndexService#buildIndex``)."""
    return transaction_type(sys_flag) != TRANSACTION_ROLLBACK_TYPE
