"""Connections that have not shown yet who they are: in their TLS handshake, or before the end of SASL.

There are few of them at a time and each has little time, since nobody knows who they are. Where there are too many the
oldest one goes of the address that has the most: whoever fills the place up loses his own.

A request that logs somebody in is small, but the first one of a RocketMQ client may be a message, with its signature,
and an access token may be long. Few bytes of such requests are received at a time, of all of them together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Protocol

SMALL_BYTES = 64 << 10
"""A request that is not larger is received of each of them."""
LARGE_BYTES = 16 << 20
"""So much of larger ones, of all together: the largest one that there is (remoting.command.MAX_FRAME_BYTES)."""


class Newcomer(Protocol):
    peer_host: str

    def abort(self, reason: str) -> None: ...


class Newcomers:
    def __init__(self, mono_ms: Callable[[], int], most: int, timeout_ms: int) -> None:
        self._mono_ms = mono_ms
        self.most = most
        self.timeout_ms = timeout_ms
        self._since_ms: dict[Newcomer, int] = {}
        """The oldest first."""
        self._hosts: Counter[str] = Counter()
        self._large: dict[Newcomer, int] = {}
        """Bytes of the largest request of each that sends large ones."""
        self.large_bytes = 0
        """Of all of these."""
        self.evicted = 0
        """That had to go for another."""

    def __len__(self) -> int:
        return len(self._since_ms)

    def add(self, newcomer: Newcomer, since_ms: int | None = None) -> None:
        """`since_ms`: when it was accepted, if that was before now."""
        if len(self._since_ms) >= self.most:
            self._evict()
        self._since_ms[newcomer] = self._mono_ms() if since_ms is None else since_ms
        self._hosts[newcomer.peer_host] += 1

    def remove(self, newcomer: Newcomer) -> int | None:
        """It has shown who it is, or is gone; since when it was here (monotonic, ms)."""
        since_ms = self._since_ms.pop(newcomer, None)
        if since_ms is not None:
            host = newcomer.peer_host
            self._hosts[host] -= 1
            if not self._hosts[host]:
                del self._hosts[host]
            self.large_bytes -= self._large.pop(newcomer, 0)
        return since_ms

    def fits(self, connection: Newcomer, size: int) -> bool:
        """Whether a request of so many bytes may be received. One that fits keeps its place until its client has shown
        who it is, or is gone; those who have shown it may send any."""
        if size <= SMALL_BYTES or connection not in self._since_ms:
            return True
        more = size - self._large.get(connection, 0)
        if self.large_bytes + more > LARGE_BYTES:
            return False
        if more > 0:
            self._large[connection] = size
            self.large_bytes += more
        return True

    def _evict(self) -> None:
        ((host, _),) = self._hosts.most_common(1)
        oldest = next(newcomer for newcomer in self._since_ms if newcomer.peer_host == host)
        self.evicted += 1
        self.remove(oldest)
        oldest.abort("too many connections have not authenticated")

    def expire(self) -> None:
        """Close those whose time is over."""
        before_ms = self._mono_ms() - self.timeout_ms
        late = []
        for newcomer, since_ms in self._since_ms.items():
            if since_ms > before_ms:
                break
            late.append(newcomer)
        for newcomer in late:
            self.remove(newcomer)
            newcomer.abort("it did not authenticate in time")
