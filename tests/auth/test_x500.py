"""Names of certificates as Java writes them (x500_names.tsv has Java's answers), and certificates that are none."""

from __future__ import annotations

import datetime
import shutil

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.auth import x500
from halfmoon.auth.errors import AuthenticationError
from tests.auth import x500_vectors
from tests.auth.x500_vectors import CN, NAMES, STORED, UTF8, element

VECTORS = [line.split("\t") for line in STORED.read_text().splitlines() if not line.startswith("#")]


@pytest.mark.parametrize(("encoded", "name"), VECTORS)
def test_a_name_as_java_writes_it(encoded, name):
    assert x500.name(bytes.fromhex(encoded)) == bytes.fromhex(name).decode()


def test_all_names_have_their_vector():
    assert [bytes.fromhex(encoded) for encoded, _ in VECTORS] == [x500_vectors.name(each) for each in NAMES]
    assert len(VECTORS) >= 20


@pytest.mark.interop
def test_the_vectors_are_javas():
    if shutil.which("java") is None:
        pytest.skip("needs Java")
    assert x500_vectors.table() == STORED.read_text()


def certificate(name: x509.Name) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime(2026, 1, 1)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "the issuer")]))
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
        .serial_number(x509.random_serial_number())
        .public_key(key.public_key())
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.DER)
    )


def test_the_subject_of_a_certificate():
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.COUNTRY_NAME, "DE"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Größe, Inc."),
            x509.NameAttribute(NameOID.COMMON_NAME, "alice"),
        ]
    )
    assert x500.subject(certificate(name)) == "CN=alice,O=Größe\\, Inc.,C=DE"
    assert x500.subject(certificate(x509.Name([]))) == ""


def test_the_subject_of_a_certificate_of_trustme():
    made = trustme.CA().issue_cert("alice@example.com", common_name="alice", organization_name="Example")
    der = x509.load_pem_x509_certificate(made.cert_chain_pems[0].bytes()).public_bytes(serialization.Encoding.DER)

    said = x500.subject(der)

    assert said.startswith("CN=alice,OU=")
    assert said.endswith(",O=Example")


def test_a_certificate_of_version_1_has_no_version():
    serial, empty = element(2, b"\x05"), element(48, b"")
    subject = x500_vectors.name([[(CN, UTF8, b"old")]])
    fields = serial + empty + empty + empty + subject + empty

    assert x500.subject(element(48, element(48, fields) + empty)) == "CN=old"


WHOLE = certificate(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "alice")]))


@pytest.mark.parametrize(
    "malformed",
    [
        b"",
        b"\x30",
        b"\x30\x80\0\0",
        b"\x30\x84\xff\xff\xff\xff",
        b"\x30\x85\0\0\0\0\0",
        WHOLE[:-1],
        WHOLE + b"\0",
        element(48, b""),
        element(48, element(48, b"")),
        element(48, element(48, element(2, b"\1") * 4)),
        element(48, element(48, element(4, b"\1") * 5)),
    ],
)
def test_what_is_no_certificate(malformed):
    with pytest.raises(AuthenticationError):
        x500.subject(malformed)


@pytest.mark.parametrize(
    "malformed",
    [
        b"",
        element(49, b""),
        element(48, element(48, b"")),
        element(48, element(49, element(49, b""))),
        element(48, element(49, element(48, element(6, b"\x55\x04\x03")))),
        element(48, element(49, element(48, element(6, b"") + element(12, b"a")))),
        element(48, element(49, element(48, element(6, b"\x55\x84") + element(12, b"a")))),
        element(48, element(49, element(48, element(2, b"\x55\x04\x03") + element(12, b"a")))),
    ],
)
def test_what_is_no_name(malformed):
    with pytest.raises(AuthenticationError):
        x500.name(malformed)


@given(st.integers(0, len(WHOLE) - 1), st.binary(max_size=3))
def test_a_changed_certificate_has_a_subject_or_is_refused(at, more):
    try:
        assert isinstance(x500.subject(WHOLE[:at] + more + WHOLE[at + len(more) :]), str)
    except AuthenticationError:
        pass
