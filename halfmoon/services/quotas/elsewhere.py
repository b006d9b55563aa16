"""Who uses quotas in other processes that share them: a quota is divided among the processes that have seen its client.

Each process tells the others now and then what was used there; who was not heard of for `FORGOTTEN_MS` has no part in
it any more.
"""

from __future__ import annotations

from collections.abc import Iterable

FORGOTTEN_MS = 10_000

Use = tuple[str, str | None, str | None]
"""Key of the quota, user, client id: as usage is counted."""


class UsedElsewhere:
    def __init__(self) -> None:
        self._seen: dict[Use, dict[int, int]] = {}
        """Process → when it said so last (monotonic ms)."""

    def heard(self, process: int, uses: Iterable[Use], now_ms: int) -> None:
        """A process has seen these of late."""
        for use in uses:
            self._seen.setdefault(use, {})[process] = now_ms

    def parts(self, use: Use, now_ms: int) -> int:
        """Among how many processes a quota is divided, this one included."""
        processes = self._seen.get(use)
        if processes is None:
            return 1
        return 1 + sum(now_ms - at_ms <= FORGOTTEN_MS for at_ms in processes.values())

    def forget(self, now_ms: int) -> None:
        """Let go of what nobody has used for long."""
        for use, processes in list(self._seen.items()):
            for process, at_ms in list(processes.items()):
                if now_ms - at_ms > FORGOTTEN_MS:
                    del processes[process]
            if not processes:
                del self._seen[use]
