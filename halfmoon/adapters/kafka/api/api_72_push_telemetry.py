"""PushTelemetry (72): a client's metrics (KIP-714), which nobody has asked it for.

A push without metrics is taken: a client may say so that it ends. Any other belongs to a subscription that is not
there, so the client asks for its subscription anew, and is told that it has none.
"""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.errors import NONE, UNKNOWN_SUBSCRIPTION_ID, code
from halfmoon.adapters.kafka.protocol import PushTelemetryResponse
from halfmoon.adapters.kafka.registry import Context
from halfmoon.errors import Fault
from halfmoon.services.configs.client_metrics import EMPTY_SUBSCRIPTION


def handle(_ctx: Context, request: Any) -> object:
    if request.client_instance_id is None:
        error_code = code(Fault.INVALID_REQUEST)
    elif request.subscription_id != EMPTY_SUBSCRIPTION or request.metrics:
        error_code = UNKNOWN_SUBSCRIPTION_ID
    else:
        error_code = NONE
    return PushTelemetryResponse(throttle_time_ms=0, error_code=error_code)
