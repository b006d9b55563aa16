"""Every metric of the broker itself: name, kind, labels and meaning. docs/metrics.md describes each at more length.

The names follow Prometheus' rules: base units (seconds, bytes), `_total` for what only grows. Those that begin with
`kafka_` are kafka_exporter's (github.com/danielqsj/kafka_exporter), names and labels alike, so that its dashboards and
alerts work here. What it says about replicas is left out: a single node has none.
"""

from __future__ import annotations

from halfmoon.core.metrics import Family

_PARTITION = ("topic", "partition")
_GROUP = ("group", "topic", "partition")
_EXPORTER_GROUP = ("consumergroup", "topic", "partition")

NARROW: dict[str, Family] = {
    family.name: family
    for family in (
        Family(
            "halfmoon_info",
            "gauge",
            "Always 1; the labels identify the broker.",
            ("version", "build", "cluster_id", "node_id"),
        ),
        Family("halfmoon_healthy", "gauge", "1 while /healthz answers 200, else 0."),
        Family("halfmoon_health_problems", "gauge", "Number of reasons that /healthz gives now."),
        Family("halfmoon_health_warnings", "gauge", "Number of warnings that /healthz gives now."),
        Family("halfmoon_generation", "gauge", "Raised at every start; the leader epoch of all partitions."),
        Family("halfmoon_flush_seconds", "histogram", "Time of an fdatasync of the log, queueing included."),
        Family("halfmoon_tick_seconds", "histogram", "Time that a turn of the loop takes."),
        Family("halfmoon_loop_lag_seconds", "histogram", "How late the loop calls a timer."),
        Family(
            "halfmoon_loop_longest_turn_cpu_seconds", "gauge", "CPU time of the longest turn, by cause.", ("cause",)
        ),
        Family("halfmoon_loop_longest_turn_seconds", "gauge", "Time of the longest turn, by cause.", ("cause",)),
        Family("halfmoon_request_seconds", "histogram", "Time from a request to its answer.", ("listener", "api")),
        Family("halfmoon_log_start_position", "gauge", "Log position of the oldest byte kept."),
        Family("halfmoon_log_flushed_position", "gauge", "Log position below which everything survives power loss."),
        Family("halfmoon_log_written_position", "gauge", "Log position below which everything survives a kill."),
        Family("halfmoon_log_end_position", "gauge", "Log position of the next frame."),
        Family("halfmoon_log_gaps", "gauge", "Stretches of the log that the start found no file for."),
        Family("halfmoon_log_gap_bytes", "gauge", "Bytes of these stretches."),
        Family("halfmoon_disk_log_bytes", "gauge", "Bytes of disk that the log's segments take."),
        Family("halfmoon_disk_segments", "gauge", "Segments of the log."),
        Family(
            "halfmoon_disk_compacted_bytes",
            "gauge",
            "Bytes of disk that compacted segments take.",
            old_name="halfmoon_disk_clean_bytes",
        ),
        Family(
            "halfmoon_disk_compacted_segments", "gauge", "Compacted segments.", old_name="halfmoon_disk_clean_files"
        ),
        Family("halfmoon_disk_free_bytes", "gauge", "Free bytes on the data directory's disk."),
        Family("halfmoon_disk_low", "gauge", "1 while the broker refuses batches for lack of disk, else 0."),
        Family("halfmoon_cold_reads_total", "counter", "Reads of data outside the page cache, done in a thread."),
        Family("halfmoon_fetch_buffer_bytes", "gauge", "Bytes read from the disk for fetches and not sent yet."),
        Family("halfmoon_fetch_buffer_waits_total", "counter", "Fetches that waited for room to be read into."),
        Family("halfmoon_start_offset_moves_total", "counter", "Times that retention moved a start offset."),
        Family("halfmoon_refused_batches_total", "counter", "Produced batches that the broker refused.", ("reason",)),
        Family("halfmoon_held_requests", "gauge", "Requests held now (long polling)."),
        Family("halfmoon_holds_total", "counter", "Requests that were held."),
        Family("halfmoon_holds_ended_total", "counter", "Held requests by what ended the hold.", ("by",)),
        Family("halfmoon_requests_total", "counter", "Requests.", ("listener", "api")),
        Family("halfmoon_request_errors_total", "counter", "Requests that failed.", ("listener",)),
        Family(
            "halfmoon_malformed_requests_total",
            "counter",
            "Connections closed after a malformed request.",
            ("listener",),
        ),
        Family("halfmoon_connections", "gauge", "Open connections.", ("listener",)),
        Family("halfmoon_connections_accepted_total", "counter", "Accepted connections.", ("listener",)),
        Family("halfmoon_connections_refused_total", "counter", "Connections over the limit.", ("listener",)),
        Family(
            "halfmoon_connections_idle_closed_total", "counter", "Connections closed after inactivity.", ("listener",)
        ),
        Family(
            "halfmoon_unauthenticated_connections",
            "gauge",
            "Open connections whose client has not authenticated yet, TLS handshakes included.",
            ("listener",),
        ),
        Family(
            "halfmoon_tls_certificate_expiry_seconds",
            "gauge",
            "When the listener's certificate expires, Unix time.",
            ("listener",),
        ),
        Family("halfmoon_tls_handshakes_total", "counter", "TLS handshakes, by their result.", ("listener", "result")),
        Family(
            "halfmoon_authorizations_total",
            "counter",
            "Requests for a resource that were denied; and answers that were worked out and allow something, which are "
            "not counted when they are given again.",
            ("decision",),
        ),
        Family("halfmoon_acls", "gauge", "Access rules."),
        Family("halfmoon_audit_dropped_total", "counter", "Lines of the audit log that were not written.", ("sink",)),
        Family(
            "halfmoon_authentications_total",
            "counter",
            "Authentications, by their result.",
            ("listener", "mechanism", "result"),
        ),
        Family(
            "halfmoon_oauth_key_fetches_total",
            "counter",
            "Requests for the keys of access tokens, by their result.",
            ("result",),
        ),
        Family("halfmoon_received_bytes_total", "counter", "Bytes received.", ("listener",)),
        Family("halfmoon_sent_bytes_total", "counter", "Bytes sent.", ("listener",)),
        Family("halfmoon_rocketmq_members", "gauge", "RocketMQ clients connected.", ("group", "role")),
        Family("halfmoon_rocketmq_messages_out_total", "counter", "Messages delivered to RocketMQ clients."),
        Family("halfmoon_rocketmq_filter_errors_total", "counter", "Messages for which the filter of a pull raised."),
        Family(
            "halfmoon_rocketmq_check_backs_total",
            "counter",
            "Check-backs sent to RocketMQ producers.",
            old_name="halfmoon_rocketmq_checks_total",
        ),
        Family("halfmoon_rocketmq_locked_queues", "gauge", "Queues that consumers have locked."),
        Family(
            "halfmoon_rocketmq_subscription_conflicts_total",
            "counter",
            "Times that two members of a group subscribed to a topic differently.",
            ("group", "topic", "client", "other"),
        ),
        Family("halfmoon_topics", "gauge", "Topics, internal ones included."),
        Family("halfmoon_partitions", "gauge", "Partitions of all topics."),
        Family("halfmoon_groups", "gauge", "Groups by state.", ("state",)),
        Family("halfmoon_service_failures_total", "counter", "Times that a plugin's service failed.", ("service",)),
        Family("halfmoon_plugin_errors_total", "counter", "Times that a plugin raised.", ("plugin", "hook")),
        Family(
            "halfmoon_plugin_slow_calls_total",
            "counter",
            "Plugins' calls that held up the loop for more than 100 ms.",
            ("plugin", "hook"),
        ),
        Family("halfmoon_plugin_total", "counter", "Plugins' own counters.", ("plugin", "name")),
        Family("kafka_brokers", "gauge", "Number of brokers in the cluster."),
        Family("kafka_broker_info", "gauge", "Always 1; the labels give the broker's address.", ("id", "address")),
    )
}
"""Metrics with a handful of series each."""

OF_GROUPS = ("halfmoon_group", "kafka_consumergroup")
"""How the names begin of those that are there only with the service `groups`."""

WIDE: dict[str, Family] = {
    family.name: family
    for family in (
        Family("halfmoon_topic_bytes", "gauge", "Bytes of a topic's record batches.", ("topic",)),
        Family("halfmoon_topic_in_bytes_total", "counter", "Bytes of record batches appended to a topic.", ("topic",)),
        Family("halfmoon_topic_in_records_total", "counter", "Records appended to a topic.", ("topic",)),
        Family("halfmoon_topic_out_bytes_total", "counter", "Bytes of record batches sent to clients.", ("topic",)),
        Family("halfmoon_group_lag", "gauge", "Records between committed offset and high watermark.", _GROUP),
        Family("kafka_topic_partitions", "gauge", "Number of partitions of a topic.", ("topic",)),
        Family("kafka_topic_partition_current_offset", "gauge", "A partition's high watermark.", _PARTITION),
        Family("kafka_topic_partition_oldest_offset", "gauge", "A partition's start offset.", _PARTITION),
        Family("kafka_consumergroup_members", "gauge", "Members of a group.", ("consumergroup",)),
        Family("kafka_consumergroup_current_offset", "gauge", "Offset a group has committed.", _EXPORTER_GROUP),
        Family("kafka_consumergroup_lag", "gauge", "The same as halfmoon_group_lag.", _EXPORTER_GROUP),
        Family("kafka_consumergroup_current_offset_sum", "gauge", "Summed over the partitions.", _EXPORTER_GROUP[:2]),
        Family("kafka_consumergroup_lag_sum", "gauge", "Lag summed over the partitions.", _EXPORTER_GROUP[:2]),
    )
}
"""Metrics with a series per topic, partition or group: there may be tens of thousands."""
