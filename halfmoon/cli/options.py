"""Options that many commands share, so that they are spelt, explained and defaulted alike."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import Annotated

import typer

from halfmoon.cli.output import Output as Output
from halfmoon.cli.times import parse_time

DEFAULT_BOOTSTRAP_SERVER = "127.0.0.1:9092"
DEFAULT_NAMESRV = "127.0.0.1:9876"


class Protocol(StrEnum):
    """What a command speaks with the broker."""

    KAFKA = "kafka"
    ROCKETMQ = "rocketmq"


OutputOption = Annotated[
    Output, typer.Option("-o", "--output", help="Output format: text for people, json for programs.")
]

BootstrapOption = Annotated[
    str,
    typer.Option(
        "-b",
        "--bootstrap-server",
        envvar="HALFMOON_BOOTSTRAP_SERVER",
        metavar="HOST:PORT",
        help="Bootstrap brokers, separated by commas. Apache Kafka works too.",
    ),
]

TagOption = Annotated[
    str | None,
    typer.Option(
        "--tag",
        metavar="TAGS",
        help="Only records with this tag (header TAGS): 'paid || refunded'.",
        show_default=False,
    ),
]
SqlOption = Annotated[
    str | None,
    typer.Option(
        "--sql", metavar="SQL92", help="Only matching headers, JSON fields: 'a = 1 OR value.b > 5'.", show_default=False
    ),
]

ProtocolOption = Annotated[Protocol, typer.Option("--protocol", help="Client protocol. rocketmq uses a name server.")]

NamesrvOption = Annotated[
    str,
    typer.Option(
        "--namesrv",
        envvar=["HALFMOON_NAMESRV", "NAMESRV_ADDR"],
        metavar="HOST:PORT",
        help="Name servers for --protocol rocketmq, separated by semicolons. Apache RocketMQ works too.",
    ),
]


def refuse_address_of_another(protocol: Protocol, context: typer.Context) -> None:
    """Raise BadParameter for an address that the protocol does not go to.

    Only one that the command line gives: the environment may well name both.
    """
    name, option = (
        ("namesrv", "--namesrv") if protocol is Protocol.KAFKA else ("bootstrap_server", "--bootstrap-server")
    )
    source = context.get_parameter_source(name)
    if source is not None and source.name == "COMMANDLINE":
        raise typer.BadParameter(f"{option} is not supported with --protocol {protocol}")


def time_ms(text: str, option: str) -> int:
    """A point in time in ms since 1970. What is none is refused as a wrong `option`."""
    try:
        return parse_time(text, time.time_ns() // 1_000_000)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def key_values(pairs: list[str], what: str) -> dict[str, str]:
    """`["a=1", "b=2"]` → `{"a": "1", "b": "2"}`; a pair without `=` is refused as a wrong `what`."""
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint=what)
        found[key] = value
    return found
