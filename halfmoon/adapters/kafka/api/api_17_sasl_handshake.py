"""SaslHandshake (17): a client says by which mechanism it is about to authenticate (KIP-43, KIP-152).

On a listener without SASL, and where nobody has to authenticate again, it is told so. Rule:
KafkaApis.handleSaslHandshakeRequest, which is asked there; else SaslServerAuthenticator (`login`).
"""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.errors import code
from halfmoon.adapters.kafka.protocol import SaslHandshakeResponse
from halfmoon.adapters.kafka.registry import Context
from halfmoon.errors import Fault


def handle(ctx: Context, request: Any) -> object:
    login = ctx.peer.login
    if login is None:
        return SaslHandshakeResponse(error_code=code(Fault.ILLEGAL_SASL_STATE), mechanisms=[])
    return login.handshake(ctx.api_version, request.mechanism)
