"""A PostgreSQL of one's own, for tests and demonstrations: a server in a folder, on a free port of 127.0.0.1."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

from halfmoon.errors import StartError

_DEBIAN = Path("/usr/lib/postgresql")
_USER = "postgres"
"""Who runs the server where this process is root, which it refuses to be."""


def programs() -> Path | None:
    """The folder of `initdb` and `pg_ctl`; None where PostgreSQL is not installed."""
    found = shutil.which("pg_ctl")
    if found is not None:
        return Path(found).resolve().parent
    versions = sorted(_DEBIAN.glob("*/bin/pg_ctl"), key=lambda path: int(path.parts[-3]))
    return versions[-1].parent if versions else None


class PostgresServer:
    """A context manager; whoever enters it has a running server, and whoever leaves it has none."""

    def __init__(self, folder: Path, *, durable: bool = True, more: str = "", host: str = "127.0.0.1") -> None:
        """`folder`: of its data, which it makes. `durable`: False where a test has no power cut to survive. `more`:
        lines of postgresql.conf. `host`: where it listens; whoever is in that network of 256 may connect."""
        self.host = host
        self.folder = folder
        self._durable = durable
        self._more = more
        self._programs = programs()
        self.port = 0

    def __enter__(self) -> PostgresServer:
        if self._programs is None:
            raise StartError("PostgreSQL is not installed (Debian: apt-get install postgresql)")
        self.make_folder()
        self._call("initdb", "-A", "trust", "-U", "halfmoon", "--no-sync")
        with socket.socket() as free:
            free.bind((self.host, 0))
            self.port = free.getsockname()[1]
        settings = [
            f"port = {self.port}", f"listen_addresses = '{self.host}'", "unix_socket_directories = ''",
            f"fsync = {'on' if self._durable else 'off'}", self._more,
        ]  # fmt: skip
        with (self.folder / "postgresql.conf").open("a") as file:
            file.write("\n".join(settings) + "\n")
        with (self.folder / "pg_hba.conf").open("a") as file:
            file.write(f"host all all {self.host}/24 trust\n")
        self.start()
        return self

    def make_folder(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True)
        if os.geteuid() == 0:
            user = pwd.getpwnam(_USER)
            os.chown(self.folder, user.pw_uid, user.pw_gid)

    def __exit__(self, *_: object) -> None:
        if self.is_running:
            self.stop()

    @property
    def is_running(self) -> bool:
        return (self.folder / "postmaster.pid").exists()

    def start(self) -> None:
        self._call("pg_ctl", "-w", "-s", "-l", str(self.folder / "log"), "start")

    def stop(self, how: str = "immediate") -> None:
        """`immediate`: as if it had crashed; its next start recovers."""
        self._call("pg_ctl", "-w", "-s", "-m", how, "stop")

    def secure(self, tls: Mapping[str, str], password: str) -> None:
        """From now on it takes connections over TLS only, with this password. `tls`: files, the certificate `cert` and
        its `key`."""
        statement = f"alter user halfmoon password '{password}'"
        self.call("psql", "-q", "-h", "127.0.0.1", "-p", str(self.port), "-U", "halfmoon", "-c", statement, "postgres")
        for name, source in (("server.crt", tls["cert"]), ("server.key", tls["key"])):
            path = self.folder / name
            path.touch(0o600)
            path.write_bytes(Path(source).read_bytes())
            if os.geteuid() == 0:
                user = pwd.getpwnam(_USER)
                os.chown(path, user.pw_uid, user.pw_gid)
        with (self.folder / "postgresql.conf").open("a") as file:
            file.write("ssl = on\n")
        (self.folder / "pg_hba.conf").write_text("hostssl all all 127.0.0.1/32 scram-sha-256\n")
        self.stop("fast")
        self.start()

    def dsn(self, database: str = "postgres") -> str:
        return f"postgresql://halfmoon@{self.host}:{self.port}/{database}"

    def replace_by(self, copy: Path, more: str) -> None:
        """While it is stopped: have a copy of its data (pg_basebackup) in its place, which recovers as these lines of
        postgresql.conf say."""
        self.call("find", str(self.folder), "-mindepth", "1", "-delete")
        self.call("cp", "-a", f"{copy}/.", str(self.folder))
        with (self.folder / "postgresql.conf").open("a") as file:
            file.write(f"{more}\n")
        self.call("touch", str(self.folder / "recovery.signal"))

    def _call(self, program: str, *arguments: str) -> None:
        self.call(program, "-D", str(self.folder), *arguments)

    def ask(self, *statements: str) -> str:
        """What the last of these comes to, as psql prints it. Raises StartError."""
        commands = [part for statement in statements for part in ("-c", statement)]
        return self.call("psql", "-X", "-A", "-t", "-d", self.dsn(), *commands).strip()

    def call(self, program: str, *arguments: str) -> str:
        """Run a program of PostgreSQL's, or another one, as the server's user; what it prints. Raises StartError."""
        assert self._programs is not None
        path = self._programs / program
        command = [str(path) if path.exists() else program, *arguments]
        if os.geteuid() == 0:
            command = ["runuser", "-u", _USER, "--", *command]
        done = subprocess.run(
            command, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise StartError(f"{program} failed: {done.stdout[-2000:]}")
        return done.stdout
