"""A certificate authority for development, or of a cluster's own, and certificates that it signs.

Keys are of the curve P-256, without a password. Whoever trusts the authority believes all that it signs: its key stays
where it was made. Importing this takes the extra `halfmoon[auth]`; nothing that a broker needs does.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_LIVES = timedelta(days=3650)
SERVER_LIVES = timedelta(days=397)
"""Some libraries take no certificate that lives longer."""
HERE = ("localhost", "127.0.0.1", "::1")
_CLOCKS_DIFFER = timedelta(hours=1)


class Pair(NamedTuple):
    """In PEM."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return f"Pair({self.certificate!r}, …)"


def make_authority(now: datetime, name: str = "Halfmoon development CA") -> Pair:
    key, subject = ec.generate_private_key(ec.SECP256R1()), _named(name)
    builder = (
        _builder(subject, subject, key.public_key(), now, AUTHORITY_LIVES)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
    )
    return _pair(builder, key, key)


def make_server(authority: Pair, names: Sequence[str], now: datetime) -> Pair:
    """A certificate for these host names and addresses. Raises ValueError for an authority that cannot be read, and for
    what is no name."""
    return _signed(authority, names, now, SERVER_LIVES, [ExtendedKeyUsageOID.SERVER_AUTH])


def make_node(authority: Pair, name: str, now: datetime) -> Pair:
    """A certificate of a node, which both serves and connects. Raises ValueError as `make_server`."""
    uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    return _signed(authority, [name], now, AUTHORITY_LIVES - timedelta(days=1), uses)


def _signed(
    authority: Pair, names: Sequence[str], now: datetime, lives: timedelta, uses: Sequence[x509.ObjectIdentifier]
) -> Pair:
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    signing = serialization.load_pem_private_key(authority.key, None)
    if not isinstance(signing, ec.EllipticCurvePrivateKey) or signing.public_key() != issuer.public_key():
        raise ValueError("the authority's key is not its certificate's")
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _builder(_named(names[0]), issuer.subject, key.public_key(), now, lives)
        .add_extension(x509.SubjectAlternativeName([_alternative(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False)
    )
    return _pair(builder, key, signing)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, lives: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + lives)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _alternative(name: str) -> x509.GeneralName:
    """Raises ValueError."""
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, key_cert_sign=signs_certificates, crl_sign=signs_certificates,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _pair(
    builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey, signing: ec.EllipticCurvePrivateKey
) -> Pair:
    certificate = builder.sign(signing, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return Pair(
        certificate,
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
    )  # fmt: skip
