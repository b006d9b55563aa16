"""Which brokers a command asks, and how it connects: two options that go together."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

import typer

from halfmoon.cli import output
from halfmoon.cli.errors import CliError
from halfmoon.cli.options import DEFAULT_BOOTSTRAP_SERVER, BootstrapOption
from halfmoon.errors import StartError
from halfmoon.securing.properties import PLAINTEXT, Security, read

KAFKA_PORT = 9092
UNIX = "unix:"

Address = tuple[str, int] | Path
"""Host and port, or a socket of the file system."""
Server = tuple[str, Address]
"""As it was written, and where that is."""

CommandConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        envvar="HALFMOON_COMMAND_CONFIG",
        metavar="FILE",
        help="Properties of Kafka's clients with security.protocol, sasl.…, ssl.…: TLS, user, password.",
        show_default=False,
    ),
]


@dataclass(frozen=True)
class Brokers:
    """Options of every command that speaks Kafka's protocol."""

    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP_SERVER
    command_config: CommandConfigOption = None

    @cached_property
    def security(self) -> Security:
        """Raises SecurityError, OSError."""
        return PLAINTEXT if self.command_config is None else read(self.command_config, _note)

    def servers(self, *, local: bool = False) -> list[Server]:
        """Raises CliError. `local`: where nothing was said, an administrator's socket here comes first."""
        path = admin_socket() if local and self == Brokers() else None
        if path is not None:
            return [(str(path), path)]
        if self.bootstrap_server.startswith(UNIX):
            given = Path(self.bootstrap_server.removeprefix(UNIX))
            if self.command_config is not None:
                raise CliError(f"{given} needs no --command-config: the machine says who you are")
            return [(str(given), given)]
        return [*addresses(self.bootstrap_server)]

    def tcp_servers(self) -> list[tuple[str, tuple[str, int]]]:
        """As `servers`, for a client that knows no other. Raises CliError."""
        if self.bootstrap_server.startswith(UNIX):
            raise CliError("this command cannot use a socket of the file system: -b HOST:PORT")
        return addresses(self.bootstrap_server)


def _note(said: str) -> None:
    output.note(f"halfmoon: {said}")


def admin_socket() -> Path | None:
    """Of the broker whose data directory is the default one here, where it has one. Raises CliError."""
    from halfmoon.server.admin_socket import path_of

    folder = Path(os.environ.get("HALFMOON_NODE_DATA_DIR") or "./data")
    try:
        path = path_of(folder) if folder.is_dir() else None
    except StartError as error:
        raise CliError(str(error)) from error
    return path if path is not None and path.is_socket() else None


def addresses(
    option: str, what: str = "bootstrap server", default_port: int = KAFKA_PORT
) -> list[tuple[str, tuple[str, int]]]:
    """Each server as it was written, and its host and port. Raises CliError."""
    servers = [server.strip() for server in option.split(",") if server.strip()]
    if not servers:
        raise CliError(f"no {what} given")
    return [(server, _host_and_port(server, default_port)) for server in servers]


def _host_and_port(server: str, default_port: int) -> tuple[str, int]:
    host, colon, port = server.rpartition(":")
    if not colon or not host or (":" in host and not host.startswith("[")):
        host, port = server, str(default_port)
    if not (port.isascii() and port.isdigit() and 0 < int(port) <= 65_535):
        raise CliError(f"{server!r} is not HOST:PORT")
    return host.strip("[]"), int(port)
