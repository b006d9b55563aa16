"""A broker that is audited, and what its audit says."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from tests.clients.polling import wait_for

Line = dict[str, Any]


class Journal:
    """The audit's file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen = 0

    def settings(self, level: str = "denied", **more: Any) -> dict[str, Any]:
        """As `security:` in broker.yaml."""
        return {"super_users": ["User:root"], "audit": {"file": str(self.path), "level": level, **more}}

    def all(self) -> list[Line]:
        return [json.loads(line) for line in self.path.read_text().splitlines()]

    def new(self, count: int = 1, **said: Any) -> list[Line]:
        """The lines that have come since the last time, once so many of them say this."""
        found: list[Line] = []

        def are_there() -> bool:
            found[:] = [line for line in self.all()[self._seen :] if said.items() <= line.items()]
            return len(found) >= count

        wait_for(are_there)
        self._seen = len(self.all())
        return found

    def one(self, **said: Any) -> Line:
        (line,) = self.new(**said)
        return line

    def forget(self) -> None:
        """What was said until now."""
        time.sleep(0.1)
        self._seen = len(self.all())
