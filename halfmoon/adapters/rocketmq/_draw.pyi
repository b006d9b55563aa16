from halfmoon.adapters.rocketmq.drawing import Reader

def draw(
    data: bytes, at: int, index: int, most: int, more: bytes, more_count: int, read: Reader
) -> tuple[bytes, int, int]: ...
