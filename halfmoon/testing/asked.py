"""How a test's process asks the kit's instruments in the broker's processes (`remote`)."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

TIMEOUT_S: Final = 60.0


def socket_of(folder: Path, process: int) -> Path:
    return folder / f"instrument-{process}.sock"


class Asked:
    """In the test's process: one of the broker's."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: socket.socket | None = None

    def begin(self, question: str, told: dict[str, Any]) -> None:
        """Its answer is then to be had with `end`. Raises OSError where the process is not there."""
        made = self._connection
        if made is None:
            made = self._connection = socket.socket(socket.AF_UNIX)
            made.settimeout(TIMEOUT_S)
            try:
                made.connect(str(self._path))
            except OSError:
                self.close()
                raise
        made.sendall(json.dumps({"question": question, "told": told}).encode() + b"\n")

    def end(self) -> Any:
        """Raises ValueError for what makes no sense, OSError where the process has ended."""
        assert self._connection is not None
        line = b""
        while not line.endswith(b"\n"):
            more = self._connection.recv(1 << 16)
            if not more:
                self.close()
                raise ConnectionError("the broker's process has ended")
            line += more
        answer = json.loads(line)
        if "error" in answer:
            raise ValueError(answer["error"])
        return answer["answer"]

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def ask_all(folders: Iterable[tuple[Path, int]], question: str, told: dict[str, Any]) -> list[Any]:
    """Ask processes, each by its folder and its number, at the same time; their answers. Raises ValueError, OSError."""
    asked = [Asked(socket_of(folder, number)) for folder, number in folders]
    try:
        for each in asked:
            each.begin(question, told)
        return [each.end() for each in asked]
    finally:
        for each in asked:
            each.close()
