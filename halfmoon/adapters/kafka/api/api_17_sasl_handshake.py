"""SaslHandshake (17): there is no SASL here, and a client that was told to use it is told so.

Rule: KafkaApis.handleSaslHandshakeRequest, which is asked on a listener without SASL.
"""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.errors import code
from halfmoon.adapters.kafka.protocol import SaslHandshakeResponse
from halfmoon.adapters.kafka.registry import Context, api
from halfmoon.errors import Fault


@api(17, "SaslHandshake", 0, 1)
def sasl_handshake(_ctx: Context, _request: Any) -> object:
    return SaslHandshakeResponse(error_code=code(Fault.ILLEGAL_SASL_STATE), mechanisms=[])
