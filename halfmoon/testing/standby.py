"""A second PostgreSQL that follows the first one and may take over, for tests."""

from __future__ import annotations

import time
from typing import Final

from halfmoon.errors import StartError
from halfmoon.testing.ports import free_ports
from halfmoon.testing.postgres import PostgresServer

_FOLLOWS_S: Final = 20.0


class Standby(PostgresServer):
    """It follows a primary until it is promoted."""

    def follow(self, primary: PostgresServer, *, through: int = 0, synchronous: bool = True) -> None:
        """`through`: a port of 127.0.0.1 by which it reaches the primary; 0: the primary's own. `synchronous`: nothing
        is committed that it does not have. Returns when it follows. Raises StartError."""
        self.make_folder()
        (self.port,) = free_ports(1)
        source = f"host=127.0.0.1 port={through or primary.port} user=halfmoon"
        self.call(
            "pg_basebackup", "-D", str(self.folder), "-R", "-X", "stream", "-c", "fast", "--no-sync", "-d", source
        )  # fmt: skip
        with (self.folder / "postgresql.auto.conf").open("a") as file:
            file.write(f"port = {self.port}\n")
        self.start()
        until_s = time.monotonic() + _FOLLOWS_S
        while primary.ask("select count(*) from pg_stat_replication where state = 'streaming'") == "0":
            if time.monotonic() > until_s:
                raise StartError("the standby does not follow")
            time.sleep(0.05)
        if synchronous:
            primary.ask("alter system set synchronous_standby_names = '*'", "select pg_reload_conf()")

    def promote(self) -> None:
        """It takes over. Returns when it can be written to. Raises StartError."""
        self.call("pg_ctl", "-D", str(self.folder), "-w", "-s", "promote")
