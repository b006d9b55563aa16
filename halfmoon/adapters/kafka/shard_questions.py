"""HalfmoonShards (18505): what processes that share topics ask each other (cluster/receiving.py).

Offered only where a broker is several processes, and not advertised, as 18502. Version 0, request header 1, response
header 0; both bodies are msgpack. It is answered on sockets of the file system alone, where the kernel says who asks.
"""

from __future__ import annotations

import msgspec

from halfmoon.adapters.kafka.identity import LOCAL
from halfmoon.adapters.kafka.registry import Api, Close, Context, Deferred
from halfmoon.adapters.kafka.routes import SHARDS
from halfmoon.cluster.receiving import Receiver


def api(receiver: Receiver) -> Api:
    def handle(ctx: Context, body: memoryview) -> object:
        if ctx.peer.mechanism != LOCAL:
            return Close("processes ask each other through sockets of the file system")
        deferred = Deferred()

        def done(answer: bytes | None) -> None:
            deferred.complete(Close("there is a newer connection of this process") if answer is None else answer)

        try:
            receiver.take(ctx.peer.owner, bytes(body), done)
        except msgspec.DecodeError as error:
            return Close(f"a question that makes no sense: {error}")
        return deferred

    return Api(SHARDS, "HalfmoonShards", 0, 0, handle, raw=True, own=True)
