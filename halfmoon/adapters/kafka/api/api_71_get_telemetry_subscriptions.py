"""GetTelemetrySubscriptions (71): which of its metrics a client shall push (KIP-714). None.

A client asks once it is connected, and then at every interval. The answer gives it the id by which it knows itself
(`clientInstanceId()` of Kafka's clients). Kafka offers this API only with a plugin that takes telemetry.
"""

from __future__ import annotations

import uuid
from typing import Any

from halfmoon.adapters.kafka.protocol import GetTelemetrySubscriptionsResponse
from halfmoon.adapters.kafka.registry import Context
from halfmoon.services.configs.client_metrics import ASK_AGAIN_MS, EMPTY_SUBSCRIPTION


def handle(_ctx: Context, request: Any) -> object:
    return GetTelemetrySubscriptionsResponse(
        throttle_time_ms=0,
        error_code=0,
        client_instance_id=request.client_instance_id or uuid.uuid4(),
        subscription_id=EMPTY_SUBSCRIPTION,
        accepted_compression_types=[],
        push_interval_ms=ASK_AGAIN_MS,
        telemetry_max_bytes=0,
        delta_temporality=True,
        requested_metrics=[],
    )
