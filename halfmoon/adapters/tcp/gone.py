"""What stands in place of the transport of a connection that is lost: the two would hold each other until a garbage
collection. A module of its own, since it derives from a class that is not compiled.
"""

from __future__ import annotations

import asyncio


class _Gone(asyncio.Transport):
    def is_closing(self) -> bool:
        return True

    def close(self) -> None: ...

    abort = close

    def get_write_buffer_size(self) -> int:
        return 0


GONE: asyncio.Transport = _Gone()
