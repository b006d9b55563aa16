"""Which listeners other machines can reach, and what these have to have for it.

Whoever reaches a listener without authentication may do anything, and without encryption anybody on the way can read
and change what is said. So a listener that is not on loopback has both, or says that it shall do without.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from halfmoon.config.listener_settings import ListenerSettings, TlsSettings
from halfmoon.config.sections import SettingError
from halfmoon.config.units import Address

MOST_LISTENERS = 8


class Exposed(NamedTuple):
    """An address that the broker listens at."""

    path: str
    """Of the listener, in broker.yaml's names."""
    setting: str
    """Of the address, below it."""
    bind: Address
    lacks: str
    """What it has not of TLS and authentication: words; empty where it has both."""
    allowed: bool


def exposed(listeners: ListenerSettings) -> Iterator[Exposed]:
    """All addresses that other machines can reach."""
    for each in _addresses(listeners):
        if not each.bind.is_loopback:
            yield each


def _addresses(listeners: ListenerSettings) -> Iterator[Exposed]:
    for path, kafka in zip(kafka_paths(listeners), listeners.of_kafka, strict=True):
        yield Exposed(path, "bind", kafka.bind, _lacks(kafka.tls, sasl=bool(kafka.sasl)), kafka.allow_insecure)
    http, rocketmq = listeners.http, listeners.rocketmq
    if http is not None:
        yield Exposed(
            "$.listeners.http", "bind", http.bind, _lacks(http.tls, sasl=bool(http.auth)), http.allow_insecure
        )
    if rocketmq is not None:
        encrypted = rocketmq.tls if rocketmq.tls is not None and rocketmq.tls.mode == "enforcing" else None
        for setting, bind in (("bind", rocketmq.bind), ("namesrv", rocketmq.namesrv)):
            lacks = _lacks(encrypted, sasl=rocketmq.auth)
            yield Exposed("$.listeners.rocketmq", setting, bind, lacks, rocketmq.allow_insecure)


def kafka_paths(listeners: ListenerSettings) -> list[str]:
    """Where each of Kafka's listeners stands."""
    if not listeners.kafka_others:
        return ["$.listeners.kafka"]
    return [f"$.listeners.kafka[{index}]" for index in range(len(listeners.of_kafka))]


def _lacks(tls: TlsSettings | None, *, sasl: bool = False) -> str:
    missing = []
    if tls is None:
        missing.append("encryption")
    if not sasl and (tls is None or tls.client_auth != "require"):
        missing.append("authentication")
    return " and ".join(missing)


def _authentication(path: str) -> str:
    """The setting of it besides client_auth."""
    return "sasl" if path.startswith("$.listeners.kafka") else "auth"


def check_listeners(listeners: ListenerSettings) -> None:
    """Raise SettingError where one is open to other machines and does not say that it shall be, and where two have one
    name, or clients would be told an address that none can connect to."""
    rocketmq = listeners.rocketmq
    for each in exposed(listeners):
        if each.lacks and not each.allowed:
            if rocketmq is not None and rocketmq.auth and each.path == "$.listeners.rocketmq":
                raise SettingError(
                    f"{each.path}.tls.mode",
                    f"{each.bind} can be reached from other machines, and signatures alone do not keep a request from "
                    "being sent again or changed on the way; set tls with mode: enforcing, bind to 127.0.0.1, or set "
                    "allow_insecure: true beside it",
                )
            lacks = each.lacks.replace("and", "and no")
            raise SettingError(
                f"{each.path}.{each.setting}",
                f"{each.bind} can be reached from other machines, and there is no {lacks}; "
                f"bind to 127.0.0.1, set tls and {_authentication(each.path)}, or client_auth: require, or set "
                "allow_insecure: true beside it",
            )
    paths = kafka_paths(listeners)
    names: dict[str, str] = {}
    for path, kafka in zip(paths, listeners.of_kafka, strict=True):
        if kafka.name in names:
            raise SettingError(f"{path}.name", f"{names[kafka.name]} is called '{kafka.name}', too")
        names[kafka.name] = path
    advertised = dict(zip(paths, (kafka.advertise for kafka in listeners.of_kafka), strict=True))
    if rocketmq is not None:
        advertised["$.listeners.rocketmq"] = rocketmq.advertise
    for path, advertise in advertised.items():
        if advertise is not None and (advertise.port == 0 or advertise.host in ("0.0.0.0", "::")):
            raise SettingError(f"{path}.advertise", f"got {advertise}, expected an address to connect to")
