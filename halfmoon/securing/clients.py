"""`Security` as those take it who connect: sockets and asyncio, kafka-python and aiokafka, librdkafka, Java and Spark,
halfmoon.client.

Certificates and keys go along as texts: whoever gets a configuration needs no file, on another machine either.
"""

from __future__ import annotations

import os
import re
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from halfmoon.securing.access_tokens import ENDPOINT, OauthLogin, source_of
from halfmoon.securing.errors import SecurityError
from halfmoon.securing.properties import ACCESS_KEY, HANDLER, SECRET_KEY, Security, login_module

_BLOCK = "-----BEGIN {0}-----.*?-----END {0}-----"
_CERTIFICATE = re.compile(_BLOCK.format("CERTIFICATE"), re.DOTALL)
_KEY = re.compile("-----BEGIN ([A-Z0-9 ]*)PRIVATE KEY-----.*?-----END \\1PRIVATE KEY-----", re.DOTALL)
_TOKENS_OF_JAVA = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
_JAAS_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r"})
_FILE_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\f": r"\f"})


def context(security: Security) -> ssl.SSLContext:
    """Raises SecurityError."""
    try:
        # With authorities of its own alone: the machine's would let in whoever has a certificate of any of them.
        made = ssl.create_default_context(cadata=security.authorities or None)
        made.check_hostname = security.checks_name
        if security.chain:
            _load_chain(made, security)
    except ssl.SSLError as error:
        raise SecurityError(f"client.properties: a certificate or its key: {said(error)}") from None
    except (TypeError, ValueError) as error:
        raise SecurityError(f"client.properties: a certificate or its key is no PEM: {error}") from None
    return made


def kafka_python(security: Security) -> dict[str, Any]:
    """Arguments of kafka-python's and aiokafka's clients. Raises SecurityError."""
    _refuse_token(security, "kafka-python")
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


def librdkafka(security: Security) -> dict[str, Any]:
    """A part of the configuration of confluent-kafka's clients, and of whatever else is built on librdkafka. Empty
    where there is nothing to say. Raises SecurityError."""
    _refuse_token(security, "librdkafka")
    settings: dict[str, Any] = {}
    if security.protocol != "PLAINTEXT":
        settings["security.protocol"] = security.protocol
    if security.oauth is not None:
        settings |= _librdkafkas_oidc(security.oauth)
    elif security.mechanism:
        settings |= {
            "sasl.mechanism": security.mechanism,
            "sasl.username": security.username,
            "sasl.password": security.password,
        }
    if security.authorities:
        settings["ssl.ca.pem"] = _certificates(security.authorities)
    if security.chain:
        settings |= {"ssl.certificate.pem": _certificates(security.chain), "ssl.key.pem": _key(security.key)[0]}
        if security.key_password is not None:
            settings["ssl.key.password"] = security.key_password
    if security.encrypts and not security.checks_name:
        settings["ssl.endpoint.identification.algorithm"] = "none"
    return settings


def _librdkafkas_oidc(login: OauthLogin) -> dict[str, Any]:
    """It gets tokens itself. Raises SecurityError."""
    if login.endpoint.startswith("file:"):
        raise SecurityError(f"librdkafka reads no token from a file: {ENDPOINT} has to be https://… here")
    settings = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        ENDPOINT: login.endpoint,
        "sasl.oauthbearer.client.id": login.client_id,
        "sasl.oauthbearer.client.secret": login.client_secret,
    }
    if login.scope:
        settings["sasl.oauthbearer.scope"] = login.scope
    if login.extensions:
        settings["sasl.oauthbearer.extensions"] = ",".join(f"{name}={value}" for name, value in login.extensions)
    if login.authorities:
        settings["https.ca.pem"] = _certificates(login.authorities)
    return settings


def java(security: Security) -> dict[str, str]:
    """As properties of Kafka's Java clients, without a file beside them. Empty where there is nothing to say. Raises
    SecurityError for a private key that Java cannot read."""
    settings: dict[str, str] = {}
    if security.protocol != "PLAINTEXT":
        settings["security.protocol"] = security.protocol
    if security.mechanism:
        settings |= {"sasl.mechanism": security.mechanism, "sasl.jaas.config": jaas(security)}
    if security.oauth is not None:
        settings |= {ENDPOINT: security.oauth.endpoint, HANDLER: _TOKENS_OF_JAVA}
    if security.authorities:
        settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": _certificates(security.authorities)}
    if security.chain:
        settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": _certificates(security.chain)}
        key, kind = _key(security.key)
        if kind not in ("", "ENCRYPTED "):
            raise SecurityError(
                f"Java reads private keys as PKCS#8 only, and this one is {kind}PRIVATE KEY: "
                "openssl pkcs8 -topk8 -nodes -in KEY -out NEW"
            )
        settings["ssl.keystore.key"] = key
        if security.key_password is not None:
            settings["ssl.key.password"] = security.key_password
    if security.encrypts and not security.checks_name:
        settings["ssl.endpoint.identification.algorithm"] = ""
    return settings


def rocketmq(security: Security) -> dict[str, Any]:
    """Options of halfmoon.client's clients. Empty where there is nothing to say. Raises SecurityError, where the file
    says only how Kafka's clients log in, too."""
    if security.mechanism and not security.access_key:
        raise SecurityError(f"RocketMQ's protocol has no SASL: {ACCESS_KEY} and {SECRET_KEY} are missing")
    settings: dict[str, Any] = {}
    if security.access_key:
        settings |= {"access_key": security.access_key, "secret_key": security.secret_key}
    if security.encrypts:
        settings["tls"] = context(security)
    return settings


def jaas(security: Security) -> str:
    """Of `sasl.jaas.config`: the value that says name and password, or who asks for access tokens."""
    if security.oauth is not None:
        options = _of_tokens(security.oauth)
    else:
        options = {"username": security.username, "password": security.password}
    if security.is_token:
        options["tokenauth"] = "true"
    said = " ".join(f'{name}="{value.translate(_JAAS_ESCAPES)}"' for name, value in options.items())
    return f"{login_module(security.mechanism)} required {said};"


def _of_tokens(login: OauthLogin) -> dict[str, str]:
    """For Kafka's clients from 3.4 on: those that Spark brings know no properties for this (they are of 4.1, KIP-1139).
    What encrypts the way to the endpoint stands here in all of them."""
    options = {"clientId": login.client_id, "clientSecret": login.client_secret, "scope": login.scope}
    if login.authorities:
        options |= {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": _certificates(login.authorities),
        }
    options |= {f"extension_{name}": value for name, value in login.extensions}
    return {name: value for name, value in options.items() if value}


def as_file(properties: Mapping[str, str]) -> str:
    """Lines of a client.properties."""
    return "".join(f"{name}={value.translate(_FILE_ESCAPES)}\n" for name, value in properties.items())


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
    raise SecurityError("client.properties: the key has a password: ssl.key.password")


def _refuse_token(security: Security, library: str) -> None:
    if security.is_token:
        raise SecurityError(f"{library} cannot log in with a delegation token: use a user's password here")


def _certificates(text: str) -> str:
    """Without what stands between them: librdkafka and Java are particular about it. Raises SecurityError."""
    found = _CERTIFICATE.findall(text)
    if not found:
        raise SecurityError("client.properties: a certificate is no PEM")
    return "".join(f"{each}\n" for each in found)


def _key(text: str) -> tuple[str, str]:
    """The private key alone, and what stands before PRIVATE KEY. Raises SecurityError."""
    found = _KEY.search(text)
    if found is None:
        raise SecurityError("client.properties: the private key is no PEM")
    return f"{found[0]}\n", found[1]
