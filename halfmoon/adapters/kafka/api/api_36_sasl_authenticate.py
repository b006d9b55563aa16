"""SaslAuthenticate (36): a token of a client that has begun to authenticate (KIP-152, KIP-368; see SaslHandshake).

Rule: KafkaApis.handleSaslAuthenticateRequest on a listener without SASL; else SaslServerAuthenticator (`login`).
"""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.durable import refuse
from halfmoon.adapters.kafka.protocol import SaslAuthenticateResponse
from halfmoon.adapters.kafka.registry import Context
from halfmoon.errors import BrokerError, Fault


def handle(ctx: Context, request: Any) -> object:
    login = ctx.peer.login
    if login is None:
        answer = SaslAuthenticateResponse()
        refuse(answer, BrokerError(Fault.ILLEGAL_SASL_STATE))
        return answer
    return login.authenticate(bytes(request.auth_bytes))
