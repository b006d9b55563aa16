"""Helpers for users of kafka-python; they work against any Kafka, Halfmoon or not.

sticky = halfmoon.kafka.assignor("sticky")
consumer = KafkaConsumer("orders", group_id="billing", partition_assignment_strategy=[sticky])
"""

from __future__ import annotations

from halfmoon.kafka.assignors import AllocatorAssignor, assignor

__all__ = ["AllocatorAssignor", "assignor"]
