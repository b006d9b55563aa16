"""Certificates of a listener: what is taken, what is refused, and what happens when the files change."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from halfmoon.adapters.tcp.certificates import not_after_s
from halfmoon.adapters.tcp.tls import Tls
from halfmoon.config.listener_settings import TlsSettings
from halfmoon.errors import StartError
from tests.security.authority import Authority

NOW_MS = int(datetime.now(UTC).timestamp() * 1000)


def tls(pair: dict[str, str], now_ms: Callable[[], int] = lambda: NOW_MS) -> Tls:
    return Tls("public", TlsSettings(**pair), now_ms)


def refused(pair: dict[str, str]) -> str:
    with pytest.raises(StartError) as error:
        tls(pair)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("year", [1951, 1999, 2026, 2049, 2050, 2400])
def test_when_a_certificate_expires(year: int) -> None:
    expires = datetime(year, 2, 3, 4, 5, 6, tzinfo=UTC)
    made = trustme.CA().issue_cert("x", not_before=datetime(1950, 1, 1, tzinfo=UTC), not_after=expires)
    der = ssl.PEM_cert_to_DER_cert(made.cert_chain_pems[0].bytes().decode())
    assert not_after_s(der) == x509.load_der_x509_certificate(der).not_valid_after_utc.timestamp()
    for cut in range(0, 120, 7):
        with pytest.raises(ValueError, match="certificate"):
            not_after_s(der[:cut])


def test_a_pair_is_taken(authority: Authority) -> None:
    found = tls(authority.pair("broker"))
    assert found.current.minimum_version is ssl.TLSVersion.TLSv1_2
    assert found.warnings() == []


def test_what_is_wrong_is_said_in_one_line(authority: Authority, tmp_path: Path) -> None:
    pair, other = authority.pair("broker"), authority.pair("other")
    assert "key values mismatch" in refused(pair | {"key": other["key"]})
    assert refused(pair | {"cert": "/nowhere"}) == "tls: /nowhere: No such file or directory"
    assert "No such file" in refused(pair | {"key": "/nowhere"})
    late = authority.pair("late", lives=timedelta(days=-1))
    assert f"tls: the certificate {late['cert']} expired at " in refused(late)
    empty = tmp_path / "empty"
    empty.touch()
    assert "there is no certificate" in refused(pair | {"cert": str(empty)})
    assert "/nowhere" in refused(pair | {"client_ca": "/nowhere", "client_auth": "require"})
    assert str(empty) in refused(pair | {"client_ca": str(empty), "client_auth": "require"})


def test_a_key_that_others_may_read_is_refused(authority: Authority) -> None:
    pair = authority.pair("broker")
    Path(pair["key"]).chmod(0o640)
    assert refused(pair) == f"tls: others may read the key {pair['key']}; chmod 600 {pair['key']}"


def test_a_key_with_a_password_is_refused(authority: Authority) -> None:
    pair = authority.pair("broker")
    key = load_pem_private_key(Path(pair["key"]).read_bytes(), None)
    Path(pair["key"]).write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"p")
        )
    )
    assert "password" in refused(pair)


def test_new_files_are_taken_and_wrong_ones_are_not(authority: Authority) -> None:
    pair = authority.pair("broker")
    found = tls(pair)
    before = found.current
    assert not found.reload(unless_seen=True)
    assert found.current is before
    whole = Path(pair["cert"]).read_text()
    Path(pair["cert"]).write_text(whole[:300])  # half-written
    assert not found.reload(unless_seen=True)
    assert found.current is before
    (warning,) = found.warnings()
    assert warning.startswith("listener public: the old certificate is still in use: tls: ")
    assert not found.reload(unless_seen=True), "it was looked at already"
    authority.pair("broker")
    assert found.reload(unless_seen=True)
    assert found.current is not before
    assert found.warnings() == []


def test_a_certificate_that_expires_soon_is_a_warning(authority: Authority) -> None:
    now_ms = NOW_MS
    found = tls(authority.pair("broker", lives=timedelta(days=15)), lambda: now_ms)
    assert found.warnings() == []
    now_ms += 2 * 86_400_000
    (warning,) = found.warnings()
    assert " expires at " in warning
    now_ms += 20 * 86_400_000
    (warning,) = found.warnings()
    assert " expired at " in warning
