from collections.abc import Sequence

from halfmoon.adapters.rocketmq.message_loop import Fixed, Read, Tails
from halfmoon.core.catalog.topics import Partition

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
    partition: Partition,
    read: Read,
    sizes: list[int],
    offsets: list[int],
) -> bytes: ...
