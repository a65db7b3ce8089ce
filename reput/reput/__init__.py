"""reput: RocketMQ's ReputMessageService outside the broker, on Spark.

The commitlog is the truth; ConsumeQueue, IndexFile and a Delta table of message metadata are kept from it.
"""

from __future__ import annotations

__version__ = "1.0.0"
