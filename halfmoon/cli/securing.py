"""`Security` (command_config) as those take it who connect: our own sockets and kafka-python."""

from __future__ import annotations

import os
import ssl
import tempfile
from pathlib import Path
from typing import Any

from halfmoon.cli.access_tokens import OauthLogin, source_of
from halfmoon.cli.command_config import Security
from halfmoon.cli.errors import CliError


def context(security: Security) -> ssl.SSLContext:
    """Raises CliError."""
    try:
        # With authorities of its own alone: the machine's would let in whoever has a certificate of any of them.
        made = ssl.create_default_context(cadata=security.authorities or None)
        made.check_hostname = security.checks_name
        if security.chain:
            _load_chain(made, security)
    except ssl.SSLError as error:
        raise CliError(f"--command-config: a certificate or its key: {said(error)}") from None
    except (TypeError, ValueError) as error:
        raise CliError(f"--command-config: a certificate or its key is no PEM: {error}") from None
    return made


def kafka_python(security: Security) -> dict[str, Any]:
    """Arguments of KafkaConsumer and KafkaProducer. Raises CliError."""
    if security.is_token:
        raise CliError("kafka-python cannot log in with a delegation token; use a user's password for this command")
    settings: dict[str, Any] = {"security_protocol": security.protocol}
    if security.encrypts:
        settings["ssl_context"] = context(security)
    if security.oauth is not None:
        settings |= {
            "sasl_mechanism": security.mechanism,
            "sasl_oauth_token_provider": _token_provider(security.oauth),
        }
    elif security.mechanism:
        settings |= {
            "sasl_mechanism": security.mechanism,
            "sasl_plain_username": security.username,
            "sasl_plain_password": security.password,
        }
    return settings


def _token_provider(login: OauthLogin) -> Any:
    try:
        from kafka.net.sasl.oauth import AbstractTokenProvider
    except ImportError:  # kafka-python 2
        from kafka.sasl.oauth import AbstractTokenProvider

    source = source_of(login)

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return source.token()

        def extensions(self) -> dict[str, str]:
            return dict(source.extensions)

    return Provider()


def said(error: OSError) -> str:
    """What is wrong, in words, of TLS too."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the broker's certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {(error.reason or str(error)).lower().replace('_', ' ')}"
    return error.strerror or str(error)


def _load_chain(made: ssl.SSLContext, security: Security) -> None:
    """The module ssl reads these from a file only. Nobody else may read this one, and it goes at once."""
    descriptor, path = tempfile.mkstemp(prefix="halfmoon-", suffix=".pem")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{security.key}\n{security.chain}\n")
        made.load_cert_chain(path, password=security.key_password or _no_password)
    finally:
        Path(path).unlink()


def _no_password() -> str:
    """OpenSSL would ask at the terminal."""
    raise CliError("--command-config: the key has a password: ssl.key.password")
