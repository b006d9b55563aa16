"""Machines of a network of their own: network namespaces behind a bridge. Their links can be taken down, and nft drops
or refuses in them what a test says. Needs root.

Everyone else (the database, the store, clients) is at the bridge.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from halfmoon.errors import StartError


def why_not() -> str:
    """Why there can be none here; empty: there can."""
    if os.geteuid() != 0:
        return "network namespaces are root's"
    missing = [name for name in ("ip", "nft") if shutil.which(name) is None]
    if missing:
        return f"{' and '.join(missing)} not installed (Debian: apt-get install iproute2 nftables)"
    try:
        _run("ip", "netns", "add", f"hm-try-{os.getpid()}")
        _run("ip", "netns", "delete", f"hm-try-{os.getpid()}")
    except StartError as error:
        return f"no network namespaces can be made here: {error}"
    return ""


class Network:
    """A context manager."""

    def __init__(self, machines: int) -> None:
        self._machines = range(1, machines + 1)
        self._name = f"hm{os.getpid() % 100_000}"
        self._net = f"10.77.{os.getpid() % 250 + 1}"
        self.bridge = f"{self._net}.254"

    def address(self, machine: int) -> str:
        return f"{self._net}.{machine}"

    def _space(self, machine: int) -> str:
        return f"{self._name}-{machine}"

    def _link(self, machine: int) -> str:
        """Its end at the bridge; at most 15 characters."""
        return f"{self._name}v{machine}"

    def __enter__(self) -> Network:
        try:
            _run("ip", "link", "add", self._name, "type", "bridge")
            _run("ip", "address", "add", f"{self.bridge}/24", "dev", self._name)
            _run("ip", "link", "set", self._name, "up")
            for machine in self._machines:
                space, link = self._space(machine), self._link(machine)
                _run("ip", "netns", "add", space)
                _run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", space)
                _run("ip", "link", "set", link, "master", self._name)
                _run("ip", "link", "set", link, "up")
                self._in(machine, "ip", "address", "add", f"{self.address(machine)}/24", "dev", "eth0")
                for name in ("eth0", "lo"):
                    self._in(machine, "ip", "link", "set", name, "up")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for machine in self._machines:
            if Path(f"/run/netns/{self._space(machine)}").exists():
                _run("ip", "netns", "delete", self._space(machine))  # its link goes with it
        if Path(f"/sys/class/net/{self._name}").exists():
            _run("ip", "link", "delete", self._name)

    def _in(self, machine: int, *command: str) -> None:
        _run(*self.prefix(machine), *command)

    def prefix(self, machine: int) -> Sequence[str]:
        """What stands before a command that is to run there."""
        return "ip", "netns", "exec", self._space(machine)

    def unplug(self, machine: int) -> None:
        _run("ip", "link", "set", self._link(machine), "down")

    def filter(self, machine: int, *rules: str) -> None:
        """Of nft, each behind `input` or `output`, as that machine sees it."""
        self._in(machine, "nft", "add", "table", "inet", "cut")
        for hook in ("input", "output"):
            self._in(machine, "nft", f"add chain inet cut {hook} {{ type filter hook {hook} priority 0; }}")
        for rule in rules:
            self._in(machine, "nft", f"add rule inet cut {rule}")

    def heal(self, machine: int) -> None:
        _run("ip", "link", "set", self._link(machine), "up")
        self._in(machine, "nft", "flush", "ruleset")


def _run(*command: str) -> None:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        raise StartError(f"{' '.join(command)}: {done.stdout.strip()}")
