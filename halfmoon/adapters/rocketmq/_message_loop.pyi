from collections.abc import Sequence
from typing import Any

from halfmoon.adapters.rocketmq.message_loop import Fixed, Read, Tails

def write(
    body: bytes,
    count: int,
    base_offset: int,
    base_ms: int,
    from_offset: int,
    rows: Sequence[int] | None,
    bounds: Sequence[int] | None,
    prepared: Sequence[int],
    fixed: Fixed,
    tails: Tails,
    partition: Any,
    read: Read,
    sizes: list[int],
    offsets: list[int],
) -> bytes: ...
