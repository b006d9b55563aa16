"""What both shells need to make a client: its id, its clock, its name servers, its producer and consumer."""

from __future__ import annotations

import itertools
import os
import random
import socket
import time
from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from halfmoon.client.engine.concurrent import ConcurrentService
from halfmoon.client.engine.consumer_settings import ConsumerSettings
from halfmoon.client.engine.consuming import PushConsuming
from halfmoon.client.engine.driver import Driver
from halfmoon.client.engine.instance import Instance
from halfmoon.client.engine.kernel import Kernel
from halfmoon.client.engine.listening import Listener
from halfmoon.client.engine.offsets import BrokerOffsets, FileOffsets
from halfmoon.client.engine.ordered import OrderedService
from halfmoon.client.engine.producer_settings import ProducerSettings
from halfmoon.client.engine.producing import Producing
from halfmoon.client.engine.unique_keys import UniqueKeys
from halfmoon.client.errors import ConfigError
from halfmoon.client.offset_file import JsonOffsetFile
from halfmoon.plugin import AnyAllocator
from halfmoon.plugins.allocate import find_allocator

DEFAULT_NAMESRV = "127.0.0.1:9876"
INNER_GROUP = "CLIENT_INNER_PRODUCER"
"""Of messages that a consumer sends back itself (MixAll.CLIENT_INNER_PRODUCER_GROUP)."""
MAX_GROUP_CHARACTERS = 255

BROADCASTING_NAME = "DEFAULT"
"""Of who broadcasts and has no instance name: the next start continues where this one ended
(DefaultMQPushConsumerImpl.start, which gives a name of its own to each member of a clustering group alone)."""

_GROUP = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%|_-")
_numbers = itertools.count()

S = TypeVar("S", bound=msgspec.Struct)


def now_ms() -> float:
    """Monotonic."""
    return time.monotonic() * 1e3


def wall_ms() -> int:
    """Unix ms."""
    return time.time_ns() // 1_000_000


def parse_namesrv(namesrv: str | Sequence[str] | None) -> list[str]:
    """`HOST:PORT`s, in a list or with `;` or `,` between; None: NAMESRV_ADDR, else 127.0.0.1:9876. Raises
    ConfigError."""
    if namesrv is None:
        namesrv = os.environ.get("NAMESRV_ADDR") or DEFAULT_NAMESRV
    parts = namesrv.replace(",", ";").split(";") if isinstance(namesrv, str) else list(namesrv)
    addresses = [part.strip().removeprefix("http://") for part in parts if part.strip()]
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
            raise ConfigError(f"namesrv: {address!r} is no HOST:PORT")
    if not addresses:
        raise ConfigError("namesrv: no address")
    return addresses


def check_group(group: str) -> str:
    """Raises ConfigError (org.apache.rocketmq.client.Validators.checkGroup)."""
    if not group or len(group) > MAX_GROUP_CHARACTERS or not _GROUP.issuperset(group):
        raise ConfigError(f"group {group[:300]!r}: expected 1 to {MAX_GROUP_CHARACTERS} letters, digits, %, |, - and _")
    return group


def settings_of(kind: type[S], options: Mapping[str, object]) -> S:
    """Raises ConfigError: an option that is not known, or has a wrong type."""
    known = {field.name for field in msgspec.structs.fields(kind)}
    strange = sorted(set(options) - known)
    if strange:
        raise ConfigError(f"unknown option {strange[0]!r}; there are {', '.join(sorted(known))}")
    try:
        return msgspec.convert(dict(options), kind, strict=True)
    except msgspec.ValidationError as error:
        raise ConfigError(str(error)) from None


def local_address(towards: str) -> str:
    """Ours, as seen from there; nothing is sent."""
    host, _, port = towards.rpartition(":")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((host.strip("[]"), int(port)))
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"


class Making:
    """The parts of one client."""

    def __init__(
        self, driver: Driver, namesrv: str | Sequence[str] | None, instance_name: str | None, machine_room: str | None
    ) -> None:
        addresses = parse_namesrv(namesrv)
        self.kernel = Kernel(now_ms(), wall_ms)
        own = local_address(addresses[0])
        # Different for each client, as RocketMQ's instance name becomes PID#NANOTIME.
        name = instance_name or f"{os.getpid()}#{time.time_ns():x}{next(_numbers):x}"
        room = "" if machine_room is None else f"{machine_room}-"
        self._file_name = instance_name or BROADCASTING_NAME
        self.instance = Instance(self.kernel, driver, f"{room}{own}@{name}", addresses)
        packed = socket.inet_aton(own) if own.count(".") == 3 else socket.inet_pton(socket.AF_INET6, own)
        self._keys = UniqueKeys(packed, os.getpid(), wall_ms, random.SystemRandom())

    def producing(self, group: str, settings: ProducerSettings) -> Producing:
        return Producing(self.instance, group, settings, self._keys)

    def store(
        self, group: str, *, is_broadcasting: bool, offset_dir: str | os.PathLike[str] | None
    ) -> BrokerOffsets | FileOffsets:
        """Where progress is kept."""
        if is_broadcasting:
            return FileOffsets(JsonOffsetFile(offset_dir, self._file_name, group))
        return BrokerOffsets(self.instance, group)

    @staticmethod
    def allocator(strategy: str) -> AnyAllocator:
        """Raises ConfigError where nobody offers it."""
        try:
            return find_allocator(strategy)
        except Exception as error:
            raise ConfigError(f"strategy: {error}") from error

    def consuming(
        self, group: str, settings: ConsumerSettings, listener: Listener, *, ordered: bool,
        allocator: AnyAllocator | None, offset_dir: str | os.PathLike[str] | None,
    ) -> PushConsuming:  # fmt: skip
        """Raises ConfigError."""
        store = self.store(group, is_broadcasting=settings.is_broadcasting, offset_dir=offset_dir)
        if allocator is not None:
            settings = msgspec.structs.replace(settings, strategy="")
        chosen = allocator or self.allocator(settings.strategy)
        consuming = PushConsuming(self.instance, group, settings, chosen, store)
        producing = self.producing(INNER_GROUP, ProducerSettings())
        if ordered:
            consuming.service = OrderedService(consuming, producing, listener)
        else:
            consuming.service = ConcurrentService(consuming, producing, listener)
        return consuming


def chosen_delay(level: int | None, seconds: float | None, at: float | None) -> dict[str, int]:
    """The fields of a message that is delayed so. Raises ConfigError unless one is given."""
    given = [name for name, value in (("level", level), ("seconds", seconds), ("at", at)) if value is not None]
    if len(given) != 1:
        raise ConfigError(f"expected one of level, seconds and at; got {', '.join(given) or 'none'}")
    if level is not None:
        if level < 1:
            raise ConfigError(f"level is {level}, expected 1 to 18")
        return {"delay_level": level}
    if seconds is not None:
        return {"delay_ms": max(1, round(seconds * 1e3))}
    assert at is not None
    return {"deliver_at_ms": max(1, round(at * 1e3))}
