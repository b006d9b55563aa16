"""Connections that can be made slow, cut or mute, for tests: a toxiproxy between those who connect and a server.

`go install github.com/Shopify/toxiproxy/v2/cmd/server@v2.12.0` installs it as `server`; call that toxiproxy-server.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final

from halfmoon.errors import StartError
from halfmoon.testing.ports import free_ports, ports_in_a_row

VERSION: Final = "v2.12.0"
_READY_S: Final = 10.0
DOWN, UP = "downstream", "upstream"
"""Towards the one who connects, and towards the server."""


def program() -> str | None:
    """The path of toxiproxy; None where it is not installed."""
    name = "toxiproxy-server"
    return shutil.which(name) or shutil.which(name, path=str(Path.home() / "go" / "bin"))


class Proxies:
    """A context manager: whoever enters it has a running toxiproxy without a proxy."""

    def __init__(self) -> None:
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Proxies:
        path = program()
        if path is None:
            raise StartError(
                "toxiproxy is not installed "
                f"(go install github.com/Shopify/toxiproxy/v2/cmd/server@{VERSION}, as toxiproxy-server)"
            )
        (self._port,) = free_ports(1)
        command = [path, "-host", "127.0.0.1", "-port", str(self._port)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until_s = time.monotonic() + _READY_S
        while True:
            try:
                self._ask("GET", "version")
            except StartError:
                if self._process.poll() is not None or time.monotonic() > until_s:
                    self.__exit__()
                    raise
                time.sleep(0.02)
            else:
                return self

    def __exit__(self, *_: object) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def add(self, name: str, server: int) -> int:
        """The port at which those who connect reach this port of 127.0.0.1."""
        port = ports_in_a_row("127.0.0.1", 1)
        told = {"name": name, "listen": f"127.0.0.1:{port}", "upstream": f"127.0.0.1:{server}", "enabled": True}
        self._ask("POST", "proxies", told)
        return port

    def refuse(self, name: str) -> None:
        """Connections are closed, and new ones refused."""
        self._ask("POST", f"proxies/{name}", {"enabled": False})

    def spoil(self, name: str, kind: str, stream: str, **attributes: int) -> None:
        """As toxiproxy names it: `latency` (latency, jitter: ms), `timeout` (timeout: ms until the connection is
        closed; 0: never; nothing passes), `limit_data` (bytes: then the connection is closed)."""
        toxic = {"name": f"{kind}-{stream}", "type": kind, "stream": stream, "attributes": attributes}
        self._ask("POST", f"proxies/{name}/toxics", toxic)

    def heal(self, name: str) -> None:
        """All passes again."""
        for toxic in json.loads(self._ask("GET", f"proxies/{name}"))["toxics"]:
            self._ask("DELETE", f"proxies/{name}/toxics/{toxic['name']}")
        self._ask("POST", f"proxies/{name}", {"enabled": True})

    def _ask(self, method: str, path: str, told: dict[str, Any] | None = None) -> bytes:
        data = None if told is None else json.dumps(told).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self._port}/{path}", data=data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=_READY_S) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            raise StartError(f"toxiproxy, {method} {path}: {error.read().decode()}") from error
        except OSError as error:
            raise StartError(f"toxiproxy, {method} {path}: {error}") from error
