"""Certificates and keys of all listeners: looked at every half minute and at SIGHUP, and what is to be told of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from halfmoon.adapters.tcp.tls import Tls
from halfmoon.services.security import ReadTls

logger = logging.getLogger("halfmoon.server")

LOOK_S = 30.0


class TlsFiles:
    def __init__(self, all_tls: Callable[[], Iterable[Tls]]) -> None:
        self._all = all_tls

    def look(self) -> None:
        """Take what has changed."""
        self._reload(unless_seen=True)

    def reload(self) -> tuple[ReadTls, ...]:
        """Read all of them again; what has become of each."""
        self._reload(unless_seen=False)
        return tuple(ReadTls(tls.name, round(tls.expiry_s * 1000), tls.problem) for tls in self._all())

    def _reload(self, *, unless_seen: bool) -> None:
        for tls in self._all():
            before = tls.problem
            if tls.reload(unless_seen=unless_seen):
                logger.info("event=certificate_loaded listener=%s", tls.name)
            elif tls.problem and tls.problem != before:
                logger.error("event=certificate_refused listener=%s error=%s", tls.name, tls.problem)

    def warnings(self) -> list[str]:
        """A sentence each."""
        return [warning for tls in self._all() for warning in tls.warnings()]

    def read(self, put: Callable[..., None]) -> None:
        """Metrics: `put(name, value, *labels)`."""
        for tls in self._all():
            put("halfmoon_tls_certificate_expiry_seconds", tls.expiry_s, tls.name)
            for result, count in tls.handshakes.items():
                put("halfmoon_tls_handshakes_total", count, tls.name, result)
