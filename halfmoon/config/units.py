"""Durations, sizes and addresses as people write them, and as the broker counts them.

In broker.yaml a duration has a unit (`100ms`, `30s`, `15m`, `2h`, `7d`), a size may have a binary one (`64KiB`, `1GiB`,
or is a plain number of bytes). In the typed settings both are ints, in ms and in bytes. A duration without a unit is
refused: 60 would be a minute to one reader and 60 ms to the next.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from ipaddress import ip_address
from typing import Annotated, Any, NamedTuple

from msgspec import Meta

_DURATION_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZE_BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_NUMBER_WITH_UNIT = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?) ?([A-Za-z]+)")


class Address(NamedTuple):
    """A host and a port to listen on, or to tell clients. Port 0 lets the operating system choose one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it. A name other than `localhost` could mean anything: no."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_duration(text: object) -> int:
    """`"1.5s"` → 1500 (ms). Raises ValueError for everything that is not a number with a unit."""
    return _scaled(text, _DURATION_MS)


def parse_size(value: object) -> int:
    """`"64KiB"` → 65536 (bytes); an int, or a string of digits, is bytes already. Raises ValueError otherwise."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    return _scaled(value, _SIZE_BYTES)


def parse_address(value: object) -> Address:
    """`"127.0.0.1:9092"`, `"[::1]:9092"` → Address. The host is never left out. Raises ValueError otherwise."""
    if isinstance(value, Address):
        return value
    if not isinstance(value, str):
        raise ValueError("not a string")
    host, colon, port = value.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    if not colon or not host or (":" in host and not bracketed) or any(c.isspace() for c in host):
        raise ValueError("not HOST:PORT")
    if not (port.isascii() and port.isdigit() and int(port) <= 65_535):
        raise ValueError("not a port")
    return Address(host, int(port))


def format_duration(duration_ms: int) -> str:
    """The shortest exact way to write it: 90000 → `90s`, 604800000 → `7d`."""
    return _largest_unit(duration_ms, _DURATION_MS)


def format_size(size_bytes: int) -> str:
    """The shortest exact way to write it: 65536 → `64KiB`, 1000 → `1000B`."""
    return _largest_unit(size_bytes, _SIZE_BYTES)


def readable_size(size_bytes: int) -> str:
    """For people, to a tenth: 65536 → `64KiB`, 70000 → `68.4KiB`."""
    name = max(
        (name for name, factor in _SIZE_BYTES.items() if factor <= max(size_bytes, 1)), key=_SIZE_BYTES.__getitem__
    )
    return f"{size_bytes / _SIZE_BYTES[name]:.1f}".removesuffix(".0") + name


def _scaled(text: object, units: dict[str, int]) -> int:
    match = _NUMBER_WITH_UNIT.fullmatch(text) if isinstance(text, str) else None
    if match is None or match[2] not in units:
        raise ValueError("not a number with a unit")
    scaled = Decimal(match[1]) * units[match[2]]
    if scaled != int(scaled):
        raise ValueError("finer than the unit it is counted in")
    return int(scaled)


def _largest_unit(value: int, units: dict[str, int]) -> str:
    unit = max((name for name, factor in units.items() if value % factor == 0), key=lambda name: units[name])
    if value == 0:
        unit = next(iter(units))
    return f"{value // units[unit]}{unit}"


class Unit(NamedTuple):
    """How a setting is read from what a person wrote; put it into a field's type with `Meta(extra={"unit": …})`."""

    parse: Callable[[object], Any]
    """Gives the value to keep; raises ValueError."""
    expected: str
    """Ends the sentence `expected …`."""
    format: Callable[[Any], str] = str


DURATION = Unit(parse_duration, "a duration such as 100ms, 30s or 7d", format_duration)
SIZE = Unit(parse_size, "a size such as 64KiB, 1GiB or a number of bytes", format_size)
ADDRESS = Unit(parse_address, "HOST:PORT such as 127.0.0.1:9092 or [::1]:9092")

Duration = Annotated[int, Meta(ge=0, extra={"unit": DURATION})]
"""A setting that is a time, in ms. Name the field `…_ms`; broker.yaml then has it without the `_ms`."""
PositiveDuration = Annotated[int, Meta(ge=1, extra={"unit": DURATION})]
Size = Annotated[int, Meta(ge=0, extra={"unit": SIZE})]
"""A setting that is a size, in bytes. Name the field `…_bytes`, in broker.yaml too."""
PositiveSize = Annotated[int, Meta(ge=1, extra={"unit": SIZE})]
HostPort = Annotated[Address, Meta(extra={"unit": ADDRESS})]
