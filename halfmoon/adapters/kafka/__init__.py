"""The Kafka protocol server."""

from halfmoon.adapters.kafka.deferred_package import defer

# Before any module here imports `kafka.protocol`.
defer("kafka")
defer("kafka.protocol.admin")
