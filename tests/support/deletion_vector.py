"""Deletion vectors as a table's log has them."""

from __future__ import annotations

import base64
import struct
from typing import Any

import numpy as np

from reput.sinks.table import data_file


def deletion_vector(rows: list[int]) -> dict[str, Any]:
    """A deletion vector in the log, of less than 4096 rows."""
    data = struct.pack("<IqIIIHHI", 1681511377, 1, 0, 12346, 1, 0, len(rows) - 1, 0) + np.array(rows, "<u2").tobytes()
    data += bytes(-len(data) % 4)
    text = base64.b85encode(data).translate(bytes.maketrans(data_file._B85, data_file._Z85)).decode()
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(data), "cardinality": len(rows)}
