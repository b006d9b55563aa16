"""Helpers for users of Kafka's Python clients.

For kafka-python, against any Kafka, Halfmoon or not:

    sticky = halfmoon.kafka.assignor("sticky")
    consumer = KafkaConsumer("orders", group_id="billing", partition_assignment_strategy=[sticky])

For confluent-kafka, kafka-python and aiokafka, against Halfmoon:

    back = halfmoon.kafka.HandBack("billing", producer)
    back(record)  # consumed in vain: it comes again later in back.topic

    outbox = halfmoon.kafka.TransactionalOutbox("shop", producer)
    name, _ = outbox.prepare("orders", b"paid")  # delivered when it is committed
    outbox.commit(name)
"""

from __future__ import annotations

from halfmoon.kafka.assignors import AllocatorAssignor, assignor
from halfmoon.kafka.handing_back import HandBack, attempts, original_topic
from halfmoon.kafka.outbox import TransactionalOutbox

__all__ = ["AllocatorAssignor", "HandBack", "TransactionalOutbox", "assignor", "attempts", "original_topic"]
