"""What the supervisor says to a worker process over their socket, and what it answers.

The sockets that a worker listens at come with its orders (SCM_RIGHTS, unix(7)), so a process can be there before it is
known which worker it will be.
"""

from __future__ import annotations

import os
import socket
from typing import Final

import msgspec
from msgspec.structs import replace

from halfmoon.server.workers.plan import Plan

MOST_FDS: Final = 200
"""In one message; Linux takes 253 (SCM_MAX_FD)."""


class Orders(msgspec.Struct, frozen=True):
    """A line of JSON."""

    plan: Plan
    config: str | None
    """The path of broker.yaml."""
    text: str | None
    """What stood in it when the broker was started, …"""
    reloaded: str | None
    """… and when its settings were last reloaded: a worker that is started later runs as the others do."""
    flags: dict[str, str | None]
    unset_configs: list[str]
    admin_fd: int
    """Of the administrator's socket, which listens."""
    listening: list[tuple[str, int, int]]
    """(host, port, fd) of sockets that listen at the worker's own addresses. They stay open at the supervisor: clients
    who come while there is no worker wait for the next one."""


class Report(msgspec.Struct, frozen=True):
    """The worker's answer: once it is ready, or why it cannot be."""

    failed: str = ""


def send(control: socket.socket, orders: Orders) -> None:
    """With its sockets. Raises OSError where the process is gone."""
    fds = [orders.admin_fd, *(fd for _, _, fd in orders.listening)]
    for first in range(0, len(fds), MOST_FDS):
        socket.send_fds(control, [b" "], fds[first : first + MOST_FDS])
    control.sendall(msgspec.json.encode(orders) + b"\n")


def receive(control: socket.socket) -> Orders | None:
    """With the numbers that its sockets have here. None where the supervisor is gone."""
    line, fds = b"", list[int]()
    while not line.endswith(b"\n"):
        more, found, _, _ = socket.recv_fds(control, 1 << 16, MOST_FDS)
        if not more:
            return None
        line += more
        fds += found
    for fd in fds:
        os.set_inheritable(fd, False)
    orders = msgspec.json.decode(line, type=Orders)
    admin_fd, *others = fds
    listening = [(host, port, fd) for (host, port, _), fd in zip(orders.listening, others, strict=True)]
    return replace(orders, admin_fd=admin_fd, listening=listening)
