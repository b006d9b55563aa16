"""Options that many commands share, so that they are spelt, explained and defaulted alike."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

DEFAULT_BOOTSTRAP_SERVER = "127.0.0.1:9092"


class Output(StrEnum):
    """`text` is for people and may change; `json` is for programs and does not lose fields."""

    TEXT = "text"
    JSON = "json"


OutputOption = Annotated[Output, typer.Option("-o", "--output", help="text for people, json for programs.")]

BootstrapOption = Annotated[
    str,
    typer.Option(
        "-b",
        "--bootstrap-server",
        envvar="HALFMOON_BOOTSTRAP_SERVER",
        metavar="HOST:PORT",
        help="The broker to ask first; several with commas. A Kafka works too.",
    ),
]


def key_values(pairs: list[str], what: str) -> dict[str, str]:
    """`["a=1", "b=2"]` → `{"a": "1", "b": "2"}`; a pair without `=` is refused as a wrong `what`."""
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint=what)
        found[key] = value
    return found
