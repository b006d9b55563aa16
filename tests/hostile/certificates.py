"""Certificates that no authority in its right mind would issue, and chains that lead to one."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

COMMON, UNIT, ORGANIZATION = NameOID.COMMON_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME, NameOID.ORGANIZATION_NAME


def name(*rdns: dict[x509.ObjectIdentifier, str]) -> x509.Name:
    """Of relative names, each of which may have several values at once."""
    return x509.Name(
        [
            x509.RelativeDistinguishedName([x509.NameAttribute(kind, value) for kind, value in rdn.items()])
            for rdn in rdns
        ]
    )


class Issuer:
    """An authority, or one below it."""

    def __init__(self, said: str, above: Self | None = None) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.name = name({COMMON: said})
        self._above = above
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(self.name)
            .issuer_name(self.name if above is None else above.name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        )
        self.certificate = builder.sign((self if above is None else above)._key, hashes.SHA256())

    def issue(
        self, subject: x509.Name, *, expired: bool = False
    ) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        key = ec.generate_private_key(ec.SECP256R1())
        ends = datetime.now(UTC) + timedelta(days=-1 if expired else 1)
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(ends - timedelta(days=2))
            .not_valid_after(ends)
            .sign(self._key, hashes.SHA256())
        )
        return made, key

    def chain(self) -> list[x509.Certificate]:
        """Those above what it issues, without the one at the top."""
        return [] if self._above is None else [self.certificate, *self._above.chain()]

    def write(self, path: Path) -> Path:
        path.write_bytes(_pem(self.certificate))
        return path

    def client(self, folder: Path, trusted: str, subject: x509.Name, *, expired: bool = False) -> ssl.SSLContext:
        """What a client shows that has such a certificate. `trusted`: a file of who issued the broker's."""
        certificate, key = self.issue(subject, expired=expired)
        file = folder / "client.pem"
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        file.write_bytes(b"".join(map(_pem, [certificate, *self.chain()])) + private)
        context = ssl.create_default_context(cafile=trusted)
        context.load_cert_chain(file)
        return context


def below(top: Issuer, levels: int) -> Issuer:
    """The last of so many issuers, one below the other."""
    issuer = top
    for level in range(levels):
        issuer = Issuer(f"level {level}", issuer)
    return issuer


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
