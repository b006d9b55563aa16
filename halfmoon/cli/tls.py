"""`halfmoon tls`: make certificates for development, show those of a broker.yaml, have a broker read them again."""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from halfmoon.adapters.tcp.certificates import alternative_names
from halfmoon.adapters.tcp.tls import Tls
from halfmoon.auth import key_files
from halfmoon.auth.errors import AuthenticationError
from halfmoon.auth.x500 import subject
from halfmoon.cli import outcomes, output
from halfmoon.cli.asking import ask_about_security
from halfmoon.cli.brokers import Brokers
from halfmoon.cli.errors import CliError
from halfmoon.cli.option_groups import option_groups
from halfmoon.cli.options import Output, OutputOption
from halfmoon.cli.times import format_time
from halfmoon.errors import StartError
from halfmoon.services.security import ReloadTls

if TYPE_CHECKING:
    from halfmoon.config.listener_settings import ListenerSettings, TlsSettings

app = typer.Typer(help="Make, check and reload TLS certificates.", no_args_is_help=True)

CA, CA_KEY, CERT, KEY = "ca.crt", "ca.key", "broker.crt", "broker.key"
CHECKED = ("listener", "certificate", "subject", "names", "until", "result")


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write them.", show_default=False)],
    names: Annotated[
        list[str],
        typer.Option("--name", metavar="HOST", help="Another name or address of the broker. Repeatable."),
    ] = [],
    force: Annotated[bool, typer.Option("--force", help="Replace the broker's certificate that is there.")] = False,
    result: OutputOption = Output.TEXT,
) -> None:
    """Make a development CA, and a certificate of the broker's.

    The certificate is for localhost, 127.0.0.1, ::1 and the names given. An authority that DIR has already is kept, so
    clients that trust it go on. Use an authority of your own in production.
    """
    try:
        from halfmoon.auth.development import HERE, Pair, make_authority, make_server
    except ImportError:
        raise CliError("making certificates needs more libraries: pip install 'halfmoon[auth]'") from None
    now = datetime.now(UTC)
    if (folder / CERT).exists() and not force:
        raise CliError(f"{folder / CERT} is there already; --force replaces it, and keeps the authority")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (folder / CA).exists():
        if not (folder / CA_KEY).exists():
            raise CliError(f"{folder / CA} is there without its key {CA_KEY}: choose another folder")
        authority = Pair((folder / CA).read_bytes(), (folder / CA_KEY).read_bytes())
    else:
        authority = make_authority(now)
        key_files.write(folder / CA_KEY, authority.key, 0o600)
        key_files.write(folder / CA, authority.certificate, 0o644)
    try:
        made = make_server(authority, list(dict.fromkeys([*names, *HERE])), now)
    except ValueError as error:
        raise CliError(f"{folder}: {error}") from None
    key_files.write(folder / KEY, made.key, 0o600)
    key_files.write(folder / CERT, made.certificate, 0o644)
    there = folder.absolute()
    if result is Output.JSON:
        files = {"ca": CA, "ca_key": CA_KEY, "cert": CERT, "key": KEY}
        output.json_document({what: str(there / name) for what, name in files.items()})
        return
    output.line(
        f"# broker.yaml\nlisteners:\n  kafka:\n    bind: 127.0.0.1:9092\n    tls:\n      cert: {there / CERT}\n"
        f"      key: {there / KEY}\n    sasl: [SCRAM-SHA-512, SCRAM-SHA-256]\n\n"
        "# client.properties\nsecurity.protocol=SASL_SSL\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={there / CA}\nsasl.mechanism=SCRAM-SHA-512"
    )


@app.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="BROKER.YAML", show_default=False)],
    result: OutputOption = Output.TEXT,
) -> None:
    """Show the certificates of a broker.yaml, and their errors."""
    from halfmoon.config.settings import load_settings

    settings = load_settings(file, os.environ, {})
    rows = [_checked(name, tls) for name, tls in _listeners(settings.listeners)]
    if not rows:
        raise CliError(f"{file}: no listener has TLS")
    output.rows(rows, CHECKED, result)
    refused = [row for row in rows if not row["ok"]]
    if refused:
        raise CliError(f"{refused[-1]['listener']}: {refused[-1]['result']}")


@app.command()
@option_groups
def reload(*, brokers: Brokers, result: OutputOption = Output.TEXT) -> None:
    """Have the broker read its certificates and keys again.

    It also does so half a minute after the files have changed. Where it refuses the new files, the old ones stay in
    use. Existing connections keep theirs.
    """
    listeners = ask_about_security(brokers, ReloadTls()).listeners
    if listeners is None:
        raise CliError("the broker sent an unexpected response")
    if not listeners:
        raise CliError("no listener of the broker has TLS")
    rows = []
    for each in listeners:
        until = format_time(each.expires_ms)
        problem = f"the old certificate (until {until}) is still in use: {each.problem}" if each.problem else None
        rows.append(outcomes.row("listener", each.listener, problem, f"taken, until {until}", until=until))
    outcomes.report(rows, result, "listener")


def _listeners(settings: ListenerSettings) -> Iterator[tuple[str, TlsSettings]]:
    for kafka in settings.of_kafka:
        if kafka.tls is not None:
            yield kafka.name, kafka.tls
    for name, other in (("rocketmq", settings.rocketmq), ("http", settings.http)):
        if other is not None and other.tls is not None:
            yield name, other.tls


def _checked(name: str, settings: TlsSettings) -> dict[str, Any]:
    row: dict[str, Any] = {"listener": name, "certificate": settings.cert, **_read(settings.cert), "until": None}
    try:
        tls = Tls(name, settings, lambda: time.time_ns() // 1_000_000)
    except StartError as error:
        return row | {"result": str(error), "ok": False}
    row["until"] = format_time(round(tls.expiry_s * 1000))
    return row | {"result": "; ".join(["taken", *tls.warnings()]), "ok": True}


def _read(path: str) -> dict[str, Any]:
    """Of a certificate, as far as there is one: whether it is taken is said elsewhere."""
    try:
        pem = Path(path).read_text("ascii", "replace")
        end = pem.index(ssl.PEM_FOOTER) + len(ssl.PEM_FOOTER)
        certificate = ssl.PEM_cert_to_DER_cert(pem[pem.index(ssl.PEM_HEADER) : end])
        return {"subject": subject(certificate), "names": alternative_names(certificate)}
    except (OSError, ValueError, AuthenticationError):
        return {"subject": None, "names": None}
