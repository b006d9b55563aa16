"""An object store of one's own, for tests and demonstrations: a versitygw (S3 over a folder), on a free port of
127.0.0.1.

`go install github.com/versity/versitygw/cmd/versitygw@v1.8.0` installs it.
"""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from halfmoon.errors import StartError

VERSION: Final = "v1.8.0"
BUCKET: Final = "halfmoon"
_ACCESS, _SECRET = "halfmoon", "halfmoon-secret"
_READY_S: Final = 20.0


def program() -> str | None:
    """The path of versitygw; None where it is not installed."""
    return shutil.which("versitygw") or shutil.which("versitygw", path=str(Path.home() / "go" / "bin"))


class StoreServer:
    """A context manager; whoever enters it has a running server, and whoever leaves it has none."""

    def __init__(self, folder: Path, tls: Mapping[str, str] | None = None, host: str = "127.0.0.1") -> None:
        """`folder`: of its objects, which it makes. `tls`: files, the certificate `cert` and its `key`. `host`: where
        it listens."""
        self._host = host
        self.folder = folder
        self._tls = tls
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> StoreServer:
        self.folder.mkdir(parents=True)
        (self.folder / BUCKET).mkdir()  # a bucket is a folder
        with socket.socket() as free:
            free.bind((self._host, 0))
            self.port = free.getsockname()[1]
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        path = program()
        if path is None:
            raise StartError(
                f"versitygw is not installed (go install github.com/versity/versitygw/cmd/versitygw@{VERSION})"
            )
        env = {**os.environ, "ROOT_ACCESS_KEY": _ACCESS, "ROOT_SECRET_KEY": _SECRET}
        command = [path, "--port", f"{self._host}:{self.port}", "--quiet"]
        if self._tls is not None:
            command += ["--cert", self._tls["cert"], "--key", self._tls["key"]]
        command += ["posix", str(self.folder)]
        self._process = subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until = time.monotonic() + _READY_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                self.stop()
                raise StartError("versitygw does not answer")
            time.sleep(0.02)

    def _answers(self) -> bool:
        context = None if self._tls is None else ssl._create_unverified_context()
        try:
            urllib.request.urlopen(f"{self._endpoint}/", timeout=1, context=context).close()
        except urllib.error.HTTPError:
            return True  # who does not sign is refused
        except OSError:
            return False
        return True

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    @property
    def url(self) -> str:
        return f"s3://{BUCKET}"

    @property
    def _endpoint(self) -> str:
        return f"{'http' if self._tls is None else 'https'}://{self._host}:{self.port}"

    @property
    def settings(self) -> dict[str, Any]:
        """As of cluster.s3.S3.open."""
        return {
            "endpoint": self._endpoint, "region": "us-east-1",
            "access_key_id": _ACCESS, "secret_access_key": _SECRET,
        }  # fmt: skip
