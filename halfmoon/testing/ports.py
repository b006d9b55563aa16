"""Ports that nobody listens at."""

from __future__ import annotations

import random
import socket
from collections import deque
from typing import Any

from halfmoon.config.units import Address

PORTS = range(16_000, 32_000)
"""Ours are among these, which the system gives to nobody who asks for any port: they are free again after a restart."""

REMEMBERED = 1_000
_lately: set[int] = set()
_order: deque[int] = deque()


def free_ports(count: int) -> list[int]:
    """Of 127.0.0.1, any."""
    held = [socket.socket() for _ in range(count)]
    for each in held:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


def ports_in_a_row(host: str, count: int) -> int:
    """The first of so many. None that was returned lately: whoever is to listen there may not do so yet."""
    while True:
        first = random.randrange(PORTS.start, PORTS.stop - count)
        row = range(first, first + count)
        if not _lately.intersection(row) and all(is_free(host, port) for port in row):
            _lately.update(row)
            _order.extend(row)
            while len(_order) > REMEMBERED:
                _lately.discard(_order.popleft())
            return first


def is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def choose(section: dict[str, Any], key: str, count: int) -> None:
    """A port in the place of 0 in `HOST:0`, which so many free ones begin with."""
    if key not in section:
        return
    host, _, port = str(section[key]).rpartition(":")
    if port == "0":
        section[key] = str(Address(host.strip("[]"), ports_in_a_row(host.strip("[]"), count)))
