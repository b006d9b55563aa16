"""`halfmoon token`: delegation tokens (KIP-48) made, shown, renewed and ended, on Halfmoon or on a Kafka.

A token's HMAC is a password: no command takes it as an argument, which others on the machine would see. `renew` and
`expire` take the token's id, and have the broker say the HMAC, which it does to those who may renew.
"""

from __future__ import annotations

import os
from base64 import b64encode
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from halfmoon.cli import acl_rules, outcomes, output
from halfmoon.cli.brokers import Brokers
from halfmoon.cli.connect import connection
from halfmoon.cli.errors import CliError, describe_code
from halfmoon.cli.kafka_connection import Connection
from halfmoon.cli.option_groups import option_groups
from halfmoon.cli.options import Output, OutputOption
from halfmoon.config.units import parse_duration
from halfmoon.kafka_wire.messages import REQUESTS
from halfmoon.securing import Security
from halfmoon.securing.clients import as_file, java
from halfmoon.securing.properties import PLAINTEXT

CREATE, RENEW, EXPIRE, DESCRIBE = 38, 39, 40, 41
OWNER_SINCE = 3
"""The version of CreateDelegationToken in which somebody may ask for another (KIP-373)."""
BY_THE_BROKER, AT_ONCE = -1, -1
COLUMNS = ("token", "owner", "requester", "renewers", "issued", "expires", "latest")

app = typer.Typer(help="Create, list, renew and end delegation tokens.", no_args_is_help=True)

TokenId = Annotated[str, typer.Argument(metavar="TOKEN", help="Its id.", show_default=False)]
PeriodOption = Annotated[
    str | None,
    typer.Option("--period", metavar="TIME", help="From now on: 12h, 30m. Default: the broker's.", show_default=False),
]


@app.command()
@option_groups
def create(
    owner: Annotated[
        str | None,
        typer.Option("--owner", metavar="PRINCIPAL", help="User:alice. Default: who logs in.", show_default=False),
    ] = None,
    renewer: Annotated[
        list[str] | None,
        typer.Option("--renewer", metavar="PRINCIPAL", help="Who may renew and end it, too. Repeatable."),
    ] = None,
    lifetime: Annotated[
        str | None,
        typer.Option("--lifetime", metavar="TIME", help="At most so long: 7d. Default: the broker's limit."),
    ] = None,
    output_file: Annotated[
        Path | None,
        typer.Option(
            "--output-file",
            metavar="FILE",
            help="Write it as a client.properties, and do not print it.",
            show_default=False,
        ),
    ] = None,
    *,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Create a delegation token.

    By it another program logs in as its owner for a while. It is shown once. The file of --output-file is readable by
    you alone, and says how to connect as --command-config does.
    """
    request = REQUESTS[CREATE]
    asked: dict[str, Any] = {"max_lifetime_ms": _period(lifetime, "--lifetime"), "renewers": []}
    for kind, name in map(_parted, renewer or ()):
        asked["renewers"].append(request.CreatableRenewers(principal_type=kind, principal_name=name))
    if owner is not None:
        asked["owner_principal_type"], asked["owner_principal_name"] = _parted(owner)
    elif isinstance(brokers.servers(local=True)[0][1], Path):
        raise typer.BadParameter("through the administrator's socket say whose it is", param_hint="--owner")
    with connection(brokers, local=True) as broker:
        if owner is not None and broker.version(CREATE) < OWNER_SINCE:
            raise CliError("the broker creates tokens only for those who log in: leave out --owner")
        made = broker.ask(CREATE, **asked)
    _check(made.error_code)
    hmac = b64encode(made.hmac).decode()
    if output_file is not None:
        _write(output_file, as_file(java(_login(brokers.security, made.token_id, hmac))))
    row = {
        "token": made.token_id, **({} if output_file else {"hmac": hmac}),
        "owner": f"{made.principal_type}:{made.principal_name}", "expires": _time(made.expiry_timestamp_ms),
        "latest": _time(made.max_timestamp_ms),
    }  # fmt: skip
    if result is Output.JSON:
        output.json_document(row | ({"file": str(output_file)} if output_file else {}))
    else:
        output.facts(row)


@app.command("list")
@option_groups
def list_tokens(
    owner: Annotated[
        list[str] | None,
        typer.Option("--owner", metavar="PRINCIPAL", help="Only of this one. Repeatable.", show_default=False),
    ] = None,
    *,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """List delegation tokens.

    Your own, those that you may renew, and others that you may Describe.
    """
    with connection(brokers, local=True) as broker:
        found = _described(broker, owner)
    rows = [_row(each) for each in sorted(found, key=lambda each: (each.issue_timestamp, each.token_id))]
    output.rows(rows, COLUMNS, result)


@app.command()
@option_groups
def renew(token: TokenId, period: PeriodOption = None, *, brokers: Brokers, result: OutputOption = Output.TEXT) -> None:
    """Let a token expire later.

    Its owner and its renewers may, up to its lifetime.
    """
    period_ms = _period(period, "--period")
    with connection(brokers) as broker:
        answer = broker.ask(RENEW, hmac=_hmac(broker, token), renew_period_ms=period_ms)
    _done(token, answer, "renewed", result)


@app.command()
@option_groups
def expire(
    token: TokenId,
    period: Annotated[
        str | None, typer.Option("--period", metavar="TIME", help="From now on. Default: at once.", show_default=False)
    ] = None,
    *,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """End a token now, or let it expire earlier.

    Its owner and its renewers may. Connections that have logged in with it end, too.
    """
    period_ms = AT_ONCE if period is None else _period(period, "--period")
    with connection(brokers) as broker:
        answer = broker.ask(EXPIRE, hmac=_hmac(broker, token), expiry_time_period_ms=period_ms)
    _done(token, answer, "ended" if period is None else "expires earlier", result)


def _described(broker: Connection, owners: list[str] | None) -> list[Any]:
    kind = REQUESTS[DESCRIBE].DescribeDelegationTokenOwner
    wanted = None
    if owners:
        wanted = [kind(principal_type=type_, principal_name=name) for type_, name in map(_parted, owners)]
    answer = broker.ask(DESCRIBE, owners=wanted)
    _check(answer.error_code)
    return list(answer.tokens)


def _hmac(broker: Connection, token: str) -> bytes:
    """Raises CliError where there is no such token for who asks."""
    for each in _described(broker, None):
        if each.token_id == token:
            found: bytes = each.hmac
            return found
    raise CliError(f"{token}: there is no such token, or it is not for you to see")


def _login(security: Security, token: str, hmac: str) -> Security:
    """How whoever gets the token logs in: as `security` connects, and always encrypted where that says nothing."""
    mechanism = security.mechanism if security.mechanism.startswith("SCRAM") else "SCRAM-SHA-512"
    protocol = "SASL_PLAINTEXT" if security.protocol == "SASL_PLAINTEXT" else "SASL_SSL"
    return Security(
        protocol, mechanism, token, hmac, is_token=True, authorities=security.authorities,
        checks_name=security is PLAINTEXT or security.checks_name,
    )  # fmt: skip


def _write(file: Path, text: str) -> None:
    """Raises OSError."""
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as opened:
        os.fchmod(opened.fileno(), 0o600)  # of one that was there
        opened.write(text)


def _done(token: str, answer: Any, done: str, result: Output) -> None:
    problem = describe_code(answer.error_code, None) if answer.error_code else None
    more = {} if problem or answer.expiry_timestamp_ms < 0 else {"expires": _time(answer.expiry_timestamp_ms)}
    outcomes.report([outcomes.row("token", token, problem, done, **more)], result, "token")


def _row(token: Any) -> dict[str, Any]:
    return {
        "token": token.token_id,
        "owner": f"{token.principal_type}:{token.principal_name}",
        "requester": f"{token.token_requester_principal_type}:{token.token_requester_principal_name}".strip(":"),
        "renewers": [f"{each.principal_type}:{each.principal_name}" for each in token.renewers],
        "issued": _time(token.issue_timestamp),
        "expires": _time(token.expiry_timestamp),
        "latest": _time(token.max_timestamp),
    }


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _period(text: str | None, option: str) -> int:
    """In ms. Raises BadParameter."""
    if text is None:
        return BY_THE_BROKER
    try:
        period_ms = parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
    if period_ms <= 0:
        raise typer.BadParameter(f"{text} is no time to live", param_hint=option)
    return period_ms


def _parted(principal: str) -> tuple[str, str]:
    """Raises BadParameter."""
    kind, _, name = acl_rules.principal(principal).partition(":")
    return kind, name


def _check(error_code: int) -> None:
    """Raises CliError."""
    if error_code:
        raise CliError(describe_code(error_code, None))
