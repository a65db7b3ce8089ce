"""The two columns that a table has for bodies, if it is to have them: texts, and what is no text."""

from __future__ import annotations

import pyarrow as pa

BODY_SCHEMA = pa.schema([pa.field("body", pa.string()), pa.field("body_bytes", pa.binary())])
