"""Clients' use of quotas, told from process to process, so that a quota holds for all of them together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from halfmoon.cluster.asking import nobody
from halfmoon.cluster.messages import Done, QuotasUsed
from halfmoon.services.quotas.elsewhere import FORGOTTEN_MS, UsedElsewhere

if TYPE_CHECKING:
    from halfmoon.cluster.asking import Answers, Told
    from halfmoon.core.clock import Clock
    from halfmoon.server.workers.links import Links
    from halfmoon.services.quotas.service import Quotas

EVERY_S = 2.0
MOST = 10_000
"""Uses that are told at once: those of the last moments."""


class QuotaNews:
    def __init__(self, quotas: Quotas, links: Links, clock: Clock, me: int) -> None:
        """`me`: the number of this process."""
        self._quotas = quotas
        self._links = links
        self._clock = clock
        self._me = me
        self._elsewhere = quotas.elsewhere = UsedElsewhere()

    def turn(self) -> None:
        """Every EVERY_S."""
        quotas = self._quotas
        self._elsewhere.forget(self._clock.mono_ms())
        if not quotas.enabled and not quotas.connections_limited:
            return
        used = quotas.in_use(FORGOTTEN_MS)[:MOST]
        if used:
            for process, is_up in self._links.others().items():
                if is_up:
                    self._links.ask_process(process, QuotasUsed(self._me, used), nobody)

    def answers(self) -> Answers:
        """What other processes tell this one."""
        return {QuotasUsed: self._heard}

    def _heard(self, question: QuotasUsed, told: Told) -> None:
        self._elsewhere.heard(question.process, question.uses, self._clock.mono_ms())
        told(Done())
