"""Certificates for development: OpenSSL takes them, for the names they are for and no others."""

from __future__ import annotations

import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from halfmoon.adapters.tcp.certificates import alternative_names, not_after_s
from halfmoon.auth.development import SERVER_LIVES, Pair, make_authority, make_server
from halfmoon.auth.x500 import subject

NOW = datetime.now(UTC)
NAMES = ("broker.example.com", "*.dev.example.com", "127.0.0.1", "::1")


def der(pair: Pair) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pair.certificate.decode())


def handshake(tmp_path: Path, server: Pair, authority: Pair, name: str) -> None:
    """Raises ssl.SSLError."""
    (tmp_path / "pair.pem").write_bytes(server.key + server.certificate)
    at_server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    at_server.load_cert_chain(tmp_path / "pair.pem")
    at_client = ssl.create_default_context(cadata=authority.certificate.decode())
    at_client.verify_flags |= ssl.VERIFY_X509_STRICT
    ours, theirs = socket.socketpair()

    def serve() -> None:
        try:
            at_server.wrap_socket(theirs, server_side=True).close()
        except OSError:
            theirs.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        at_client.wrap_socket(ours, server_hostname=name).close()
    finally:
        ours.close()
        thread.join()


def test_a_client_that_trusts_the_authority_trusts_the_server(tmp_path: Path) -> None:
    authority = make_authority(NOW)
    server = make_server(authority, NAMES, NOW)
    for name in ("broker.example.com", "one.dev.example.com", "127.0.0.1", "::1"):
        handshake(tmp_path, server, authority, name)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(tmp_path, server, authority, "other.example.com")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(tmp_path, server, make_authority(NOW), "127.0.0.1")
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        handshake(tmp_path, make_server(authority, NAMES, NOW - SERVER_LIVES - timedelta(days=1)), authority, "::1")


def test_what_they_say() -> None:
    authority = make_authority(NOW)
    server = make_server(authority, NAMES, NOW)
    assert alternative_names(der(server)) == list(NAMES)
    assert alternative_names(der(authority)) == []
    assert subject(der(server)) == "CN=broker.example.com"
    assert not_after_s(der(server)) == int((NOW + SERVER_LIVES).timestamp())
    assert b"PRIVATE" in server.key
    assert "PRIVATE" not in repr(server)


def test_what_is_no_authority_or_no_name() -> None:
    authority = make_authority(NOW)
    with pytest.raises(ValueError, match="not its certificate's"):
        make_server(Pair(authority.certificate, make_authority(NOW).key), NAMES, NOW)
    with pytest.raises(ValueError, match=r".+"):
        make_server(Pair(b"", authority.key), NAMES, NOW)
    with pytest.raises(ValueError, match=r".+"):
        make_server(authority, ["bröker"], NOW)


@pytest.mark.parametrize("certificate", [b"", b"\x30", b"\x30\x03\x30\x01\x00", b"\x30\x82"])
def test_what_is_no_certificate(certificate: bytes) -> None:
    with pytest.raises(ValueError, match=r"no X.509 certificate"):
        alternative_names(certificate)
