"""The file of `--command-config`: how a client encrypts, and who it is.

Names are Java's (client.properties of Kafka's own tools), and librdkafka's where those differ; those that begin with
`rocketmq.` are ours. The format is that of
java.util.Properties. All of it is read once, into one `Security`; files that it names are read, too.

What nobody obeys is worse than nothing: what is of no use to this connection is refused, and so is what looks like a
property of security and is none of Kafka's. Other properties of clients (`acks`, `group.id`) are passed over with a
warning, as Kafka's own tools do.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from halfmoon.auth.scram import MECHANISMS
from halfmoon.securing.access_tokens import ENDPOINT, OauthLogin
from halfmoon.securing.errors import SecurityError
from halfmoon.securing.kafka_properties import KAFKAS, PREFIXES

logger = logging.getLogger("halfmoon.securing")

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
BEARER = "OAUTHBEARER"
LOGINS = ("PLAIN", *MECHANISMS, BEARER)
_MODULES = {"PLAIN": "plain.PlainLoginModule", BEARER: "oauthbearer.OAuthBearerLoginModule"}
PEM = "-----BEGIN "

PROTOCOL, MECHANISM, JAAS, USERNAME, PASSWORD = (
    "security.protocol", "sasl.mechanism", "sasl.jaas.config", "sasl.username", "sasl.password",
)  # fmt: skip
IDENTIFICATION = "ssl.endpoint.identification.algorithm"
KEY_PASSWORD = "ssl.key.password"
STORES = ("ssl.truststore", "ssl.keystore")
TEXTS = {
    "authorities": ("ssl.truststore.certificates", "ssl.ca.pem"),
    "chain": ("ssl.keystore.certificate.chain", "ssl.certificate.pem"),
    "key": ("ssl.keystore.key", "ssl.key.pem"),
}
"""What may stand in the file itself, …"""
FILES = {
    "authorities": ("ssl.truststore.location", "ssl.ca.location"),
    "chain": ("ssl.keystore.location", "ssl.certificate.location"),
    "key": ("ssl.key.location",),
}
"""… and in a file that it names. Java's keystore has chain and key."""
OAUTH = "sasl.oauthbearer."
CLIENT_ID = (f"{OAUTH}client.credentials.client.id", f"{OAUTH}client.id")
CLIENT_SECRET = (f"{OAUTH}client.credentials.client.secret", f"{OAUTH}client.secret")
SCOPE = f"{OAUTH}scope"
METHOD = f"{OAUTH}method"
HTTPS_CA = "https.ca.location"
ROCKETMQ = "rocketmq."
ACCESS_KEY, SECRET_KEY = f"{ROCKETMQ}access.key", f"{ROCKETMQ}secret.key"
"""By which RocketMQ's protocol signs requests. Kafka's clients pass them over."""
HANDLER = "sasl.login.callback.handler.class"
PASSED_OVER = (HANDLER, f"{OAUTH}jwt.retriever.class")
"""What Java needs to be told, and nobody else, for what is done here anyway."""
KNOWN = (
    PROTOCOL, MECHANISM, "sasl.mechanisms", JAAS, USERNAME, PASSWORD, IDENTIFICATION, KEY_PASSWORD,
    ENDPOINT, *CLIENT_ID, *CLIENT_SECRET, SCOPE, METHOD, HTTPS_CA, *PASSED_OVER,
    ACCESS_KEY, SECRET_KEY,
    *(f"{store}.{what}" for store in STORES for what in ("type", "password")),
    *(name for places in (TEXTS, FILES) for names in places.values() for name in names),
)  # fmt: skip

_MODULE = re.compile(r"(?:[\w.]*\.)?(\w+)\s+(?:required|requisite|sufficient|optional)\b(.*)", re.DOTALL)
_OPTION = re.compile(r'\s*([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s";]+))')
_JAAS_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)


class Security(msgspec.Struct, frozen=True):
    """How to connect. Certificates and keys are texts in PEM."""

    protocol: str = "PLAINTEXT"
    mechanism: str = ""
    """Of SASL; empty: none."""
    username: str = ""
    password: str = ""
    is_token: bool = False
    """The name is the id of a delegation token, and the password its HMAC."""
    oauth: OauthLogin | None = None
    """Where access tokens come from, with OAUTHBEARER."""
    authorities: str = ""
    """By which the broker's certificate is verified; empty: those of this machine."""
    chain: str = ""
    key: str = ""
    key_password: str | None = None
    checks_name: bool = True
    """Whether the broker's certificate has to be of the host that was asked for."""
    access_key: str = ""
    """A user, and the secret by which RocketMQ's protocol signs requests; empty: it does not."""
    secret_key: str = ""

    @property
    def encrypts(self) -> bool:
        return self.protocol.endswith("SSL")

    def __repr__(self) -> str:
        return f"Security({self.protocol!r}, {self.mechanism!r}, {self.username!r}, …)"


PLAINTEXT = Security()


class _Login(NamedTuple):
    """As the fields of Security."""

    mechanism: str = ""
    username: str = ""
    password: str = ""
    is_token: bool = False
    oauth: OauthLogin | None = None


class _Property(NamedTuple):
    line: int
    value: str


def read(file: Path, note: Callable[[str], object] = logger.warning) -> Security:
    """`note` is told what has no effect, and that others may read a password. Raises SecurityError, OSError."""
    try:
        found = parse(file.read_text("utf-8"), warn=lambda said: note(f"{file}: {said}"))
    except UnicodeDecodeError:
        raise SecurityError(f"{file}: not UTF-8") from None
    except ValueError as error:
        raise SecurityError(f"{file}: {error}") from None
    has_secret = (
        found.password or found.key or found.secret_key or (found.oauth is not None and found.oauth.client_secret)
    )
    if has_secret and file.stat().st_mode & 0o077:
        note(f"others may read {file}, which has a password or a key: chmod 600 it")
    return found


def parse(
    text: str, read_file: Callable[[str], str] | None = None, warn: Callable[[str], object] = lambda said: None
) -> Security:
    """Raises ValueError with the line, OSError. `read_file`: a path → its text. `warn` is told what has no effect."""
    found = properties(text)
    for name in [name for name in found if name not in KNOWN]:
        _unknown(name, found.pop(name).line, warn)
    protocol = _choice(found, PROTOCOL, PROTOCOLS, "PLAINTEXT")
    reading = read_file or _read_pem
    login = _login(found, reading) if protocol.startswith("SASL") else _Login()
    texts = _stores(found, reading)
    identification = found.get(IDENTIFICATION, _Property(0, "https"))
    if identification.value not in ("https", "", "none"):
        raise ValueError(f"line {identification.line}: {IDENTIFICATION} is https, or empty")
    security = Security(
        protocol, *login, **texts, key_password=_value(found, KEY_PASSWORD),
        checks_name=identification.value == "https", access_key=_value(found, ACCESS_KEY) or "",
        secret_key=_value(found, SECRET_KEY) or "",
    )  # fmt: skip
    _refuse_idle(found, security)
    if bool(security.chain) != bool(security.key):
        raise ValueError("a certificate of the client's needs its private key, and a key its certificate")
    if bool(security.access_key) != bool(security.secret_key):
        raise ValueError(f"{ACCESS_KEY} and {SECRET_KEY} belong together, and neither is empty")
    return security


def _unknown(name: str, line: int, warn: Callable[[str], object]) -> None:
    """Raises ValueError where it is no property of Kafka's."""
    is_security = name.startswith(PREFIXES)
    near = get_close_matches(name, KNOWN, 1, 0.6 if is_security else 0.8)
    hint = f"; did you mean {near[0]}?" if near else ""
    if is_security and name not in KAFKAS:
        raise ValueError(f"line {line}: {name} is no property of Kafka's{hint}")
    if name.startswith(ROCKETMQ):
        raise ValueError(f"line {line}: {name} is unknown{hint}")
    warn(f"line {line}: {name} has no effect here{'' if is_security else hint}")


def properties(text: str) -> dict[str, _Property]:
    """Of java.util.Properties' format. Raises ValueError for a name that comes twice."""
    found: dict[str, _Property] = {}
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        whole = line.lstrip()
        if not whole or whole[0] in "#!":
            continue
        while (len(whole) - len(whole.rstrip("\\"))) % 2:
            whole = whole[:-1] + next(lines, (0, ""))[1].lstrip()
        match = re.match(r"((?:[^\s=:\\]|\\.)*)\s*[=:]?\s*(.*)", whole, re.DOTALL)
        assert match is not None
        name, value = (_ESCAPE.sub(_unescaped, part) for part in match.groups())
        if name in found:
            raise ValueError(f"line {number}: {name} is there twice")
        found[name] = _Property(number, value)
    return found


def _unescaped(match: re.Match[str]) -> str:
    what = match[1]
    if len(what) == 5:
        return chr(int(what[1:], 16))
    return {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}.get(what, what)


def _value(found: Mapping[str, _Property], *names: str) -> str | None:
    return next((found[name].value for name in names if name in found), None)


def _choice(found: Mapping[str, _Property], name: str, choices: tuple[str, ...], default: str) -> str:
    line, value = found.get(name, _Property(0, default))
    if value.strip().upper() not in choices:
        raise ValueError(f"line {line}: {name} is {value!r}, expected {', '.join(choices)}")
    return value.strip().upper()


def _login(found: dict[str, _Property], read_file: Callable[[str], str]) -> _Login:
    if "sasl.mechanisms" in found:
        found.setdefault(MECHANISM, found["sasl.mechanisms"])
    if MECHANISM not in found:
        raise ValueError(f"{MECHANISM} is missing: {', '.join(LOGINS)}")
    mechanism = _choice(found, MECHANISM, LOGINS, "")
    options = _jaas(*found[JAAS], mechanism) if JAAS in found else {}
    if mechanism == BEARER:
        return _Login(mechanism, oauth=_oauth(found, options, read_file))
    username = options.get("username", _value(found, USERNAME))
    password = options.get("password", _value(found, PASSWORD))
    if not username or not password:
        raise ValueError(f"{JAAS} with username and password is missing, or {USERNAME} and {PASSWORD}")
    is_token = options.get("tokenauth", "").lower() == "true"
    return _Login(mechanism, username, password, is_token)


def _oauth(found: Mapping[str, _Property], options: Mapping[str, str], read_file: Callable[[str], str]) -> OauthLogin:
    """Properties go before what JAAS says, as in Kafka (ConfigOrJaas)."""
    endpoint = found.get(ENDPOINT)
    if endpoint is None:
        raise ValueError(f"{ENDPOINT} is missing")
    if not endpoint.value.startswith(("https://", "file:///")):
        raise ValueError(f"line {endpoint.line}: {ENDPOINT} is {endpoint.value!r}, expected https://… or file:///…")
    method = found.get(METHOD, _Property(0, "oidc"))
    if method.value != "oidc":
        raise ValueError(f"line {method.line}: {METHOD} is {method.value!r}, expected oidc")
    client_id = _value(found, *CLIENT_ID) or options.get("clientId", "")
    secret = _value(found, *CLIENT_SECRET) or options.get("clientSecret", "")
    if not endpoint.value.startswith("file:") and not (client_id and secret):
        raise ValueError(f"{CLIENT_ID[0]} and {CLIENT_SECRET[0]} are missing, or {JAAS} with clientId and clientSecret")
    extensions = {
        name.removeprefix("extension_"): value for name, value in options.items() if name.startswith("extension_")
    }
    ca = _value(found, HTTPS_CA) or options.get("ssl.truststore.location")
    authorities = read_file(ca) if ca else options.get("ssl.truststore.certificates", "")
    return OauthLogin(
        endpoint.value, client_id, secret, _value(found, SCOPE) or options.get("scope", ""), authorities,
        tuple(extensions.items()),
    )  # fmt: skip


def login_module(mechanism: str) -> str:
    """JAAS's, of a mechanism of SASL."""
    return f"org.apache.kafka.common.security.{_MODULES.get(mechanism, 'scram.ScramLoginModule')}"


def _jaas(line: int, value: str, mechanism: str) -> dict[str, str]:
    match = _MODULE.match(value.strip())
    expected = login_module(mechanism).rpartition(".")[2]
    if match is None:
        raise ValueError(f'line {line}: {JAAS} is not understood: {expected} required username="…" password="…";')
    module, rest = match[1], match[2].rstrip().removesuffix(";").rstrip()
    if module != expected:
        raise ValueError(f"line {line}: {JAAS} names {module}, and {MECHANISM} is {mechanism}: {expected}")
    options, at = {}, 0
    while at < len(rest):
        option = _OPTION.match(rest, at)
        if option is None:
            raise ValueError(f'line {line}: {JAAS}: behind {module} expected NAME=VALUE, with " around the value')
        quoted = option[2]
        options[option[1]] = option[3] if quoted is None else _JAAS_ESCAPE.sub(_unescaped, quoted)
        at = option.end()
    return options


def _stores(found: Mapping[str, _Property], read_file: Callable[[str], str]) -> dict[str, Any]:
    for store in STORES:
        kind = found.get(f"{store}.type")
        if kind is not None and kind.value.upper() != "PEM":
            raise ValueError(f"line {kind.line}: {_make_pem(_value(found, f'{store}.location') or 'FILE', kind.value)}")
    texts = {}
    for what, names in TEXTS.items():
        text = _value(found, *names)
        path = _value(found, *FILES[what])
        if text is not None and path is not None:
            raise ValueError(f"{names[0]} and {FILES[what][0]} exclude each other")
        texts[what] = text if text is not None else "" if path is None else read_file(path)
    if not texts["key"] and "ssl.keystore.location" in found:
        texts["key"] = texts["chain"]  # Java's keystore in PEM has both
    return texts


def _read_pem(path: str) -> str:
    """Raises ValueError, OSError."""
    data = Path(os.path.expanduser(path)).read_bytes()  # noqa: PTH111 (a name that Path would change)
    if PEM.encode() not in data:
        raise ValueError(_make_pem(path, "no PEM"))
    return data.decode("ascii", "ignore")  # comments may be in any language


def _make_pem(path: str, kind: str) -> str:
    store = path.removesuffix(".jks").removesuffix(".p12").removesuffix(".pfx")
    convert = f"openssl pkcs12 -in {store}.p12 -nodes -out {store}.pem"
    if kind.upper() not in ("PKCS12", "P12"):
        importing = f"keytool -importkeystore -srckeystore {path} -destkeystore {store}.p12 -deststoretype PKCS12"
        convert = f"{importing} && {convert}"
    return f"{path} is {kind}, expected PEM: {convert}"


def _refuse_idle(found: Mapping[str, _Property], security: Security) -> None:
    """What is there and has no effect with this protocol."""
    for name, (line, _) in found.items():
        idle = (
            (name.startswith("sasl.") and not security.mechanism)
            or (name.startswith("ssl.") and not security.encrypts)
            or (name in (USERNAME, PASSWORD) and (JAAS in found or security.oauth is not None))
            or (name.startswith(OAUTH) and security.oauth is None)
        )  # fmt: skip
        if idle:
            what = f"{PROTOCOL}={security.protocol}"
            if security.mechanism and name.startswith("sasl."):
                is_password = JAAS in found and name in (USERNAME, PASSWORD)
                what = JAAS if is_password else f"{MECHANISM}={security.mechanism}"
            raise ValueError(f"line {line}: {name} has no effect with {what}")
        if name in ("ssl.truststore.password", "ssl.keystore.password"):
            raise ValueError(f"line {line}: {name}: PEM has no password; that of a key is {KEY_PASSWORD}")
