"""Clients that show strange certificates, and a broker whose own certificate changes while everybody is connected."""

from __future__ import annotations

import os
import signal
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from tests.fuzz.canary import TOPIC
from tests.fuzz.peer import ClosedError, Peer
from tests.fuzz.process import eventually
from tests.hostile.certificates import COMMON, ORGANIZATION, UNIT, Issuer, below, name
from tests.hostile.secured import Hostile, Start
from tests.interop.access.world import build

WITNESS = name({COMMON: "witness"}, {ORGANIZATION: "Shop"})
REFUSED = 29


class ByCertificate(Hostile):
    """Its clients authenticate by certificate alone, the witness among them."""

    principal = "O=Shop,CN=witness"

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.issuer = Issuer("Clients' authority")
        authority = self.issuer.write(folder / "clients.pem")
        super().__init__(folder)
        tls = {**self.authority.pair("broker"), "client_ca": str(authority), "client_auth": "require"}
        super().__init__(folder, listeners={"kafka": {"bind": "127.0.0.1:0", "tls": tls}})
        self._shows = self.context(self.issuer, WITNESS)

    def context(self, issuer: Issuer, subject: x509.Name, *, expired: bool = False) -> ssl.SSLContext:
        return issuer.client(self.folder, self.authority.path, subject, expired=expired)

    def logged_in(self, name: str) -> Any:
        return self.showing(self._shows)

    def showing(self, context: ssl.SSLContext) -> Peer:
        peer = Peer(self.broker.address)
        peer.socket = context.wrap_socket(peer.socket, server_hostname="127.0.0.1")
        return peer

    def outcome(self, context: ssl.SSLContext) -> int | None:
        """What somebody is told of the witness's topic who shows this; None: the connection is closed."""
        try:
            with self.showing(context) as peer:
                (found,) = peer.ask(3, 7, **build(3, {"topics": [{"name": TOPIC}]})).topics
                return int(found.error_code)
        except (ssl.SSLError, ClosedError, ConnectionError):
            return None


@pytest.fixture
def shown(tmp_path: Path) -> Iterator[ByCertificate]:
    with ByCertificate(tmp_path / "broker") as found:
        yield found
        found.end()


def test_certificates_that_do_not_count(shown: ByCertificate) -> None:
    """Of another authority that has the same name, expired, or behind more than a hundred others."""
    wrong = Issuer("Clients' authority")
    contexts = [
        shown.context(wrong, WITNESS),
        shown.context(shown.issuer, WITNESS, expired=True),
        shown.context(below(wrong, 100), WITNESS),
        shown.context(below(shown.issuer, 110), WITNESS),
    ]
    with shown.watched():
        for context in contexts * 10:
            assert shown.outcome(context) is None, contexts.index(context)
        assert shown.outcome(shown.context(shown.issuer, WITNESS)) == 0
    refused = [line for line in shown.broker.lines if "certificate verify failed" in line]
    assert len(refused) == 40


def test_names_that_are_not_the_witness(shown: ByCertificate) -> None:
    """A rule for `O=Shop,CN=witness` is for nobody else; each name is one user, whatever its parts."""
    subjects = {
        "O=Shop": name({ORGANIZATION: "Shop"}),
        "": name(),
        "O=Shop+CN=witness": name({COMMON: "witness", ORGANIZATION: "Shop"}),
        "CN=O\\=Shop\\,CN\\=witness": name({COMMON: "O=Shop,CN=witness"}),
        "CN=witness,O=Shop": name({ORGANIZATION: "Shop"}, {COMMON: "witness"}),
        "OU=x,O=Shop,CN=witness": name({COMMON: "witness"}, {ORGANIZATION: "Shop"}, {UNIT: "x"}),
        "O=Shop,CN=witness\\ ": name({COMMON: "witness "}, {ORGANIZATION: "Shop"}),
        "O=Shop,CN=wítness": name({COMMON: "wítness"}, {ORGANIZATION: "Shop"}),
        "O=Shop,CN=ẇitness": name({COMMON: "ẇitness"}, {ORGANIZATION: "Shop"}),
    }
    with shown.watched():
        for principal, subject in subjects.items():
            context = shown.context(shown.issuer, subject)
            assert shown.outcome(context) == (REFUSED if principal else None), principal
            if principal:
                shown.admin.allow(principal, f"describe topic {TOPIC}")
                assert shown.outcome(context) == 0, principal


def test_a_long_chain_is_followed_and_holds_up_nobody(shown: ByCertificate) -> None:
    """OpenSSL goes 100 steps (X509_VERIFY_PARAM_set_depth), a signature each."""
    context = shown.context(below(shown.issuer, 95), WITNESS)
    with shown.watched():
        for _ in range(50):
            assert shown.outcome(context) == 0


def serial_number(found: Hostile) -> int:
    """Of the certificate that the broker shows just now."""
    with Peer(found.broker.address) as peer:
        context = found.authority.client()
        peer.socket = context.wrap_socket(peer.socket, server_hostname="127.0.0.1")
        shown = peer.socket.getpeercert()
    assert shown is not None
    return int(str(shown["serialNumber"]), 16)


def test_the_brokers_certificate_changes_under_load(hostile: Start, tmp_path: Path) -> None:
    """Clients go on with the one they have, new ones get the new; a file that is half there changes nothing."""
    found = hostile()
    first = serial_number(found)
    files = found.authority.pair("broker")
    over = threading.Event()
    failed: list[BaseException] = []

    def come_and_go() -> None:
        while not over.is_set():
            try:
                serial_number(found)
            except BaseException as error:
                failed.append(error)

    def reload() -> None:
        os.kill(found.broker.pid, signal.SIGHUP)

    with found.watched(besides="event=certificate_refused"):
        reload()
        eventually(lambda: serial_number(found) != first)  # or the first change of the loop meets this one
        coming = [threading.Thread(target=come_and_go) for _ in range(3)]
        for each in coming:
            each.start()
        for _ in range(5):
            before = serial_number(found)
            new = found.authority.pair("next")
            whole = Path(new["cert"]).read_bytes()
            # The broker also looks by itself, now and then: at no moment it finds a whole new pair before it is to.
            Path(files["cert"]).write_bytes(whole[: len(whole) // 2])
            Path(files["key"]).write_bytes(Path(new["key"]).read_bytes())
            reload()
            found.witness.wait_for_rounds(5)
            assert serial_number(found) == before
            Path(files["cert"]).write_bytes(whole)
            reload()
            eventually(lambda before=before: serial_number(found) != before)
            found.witness.wait_for_rounds(5)
        over.set()
        for each in coming:
            each.join(20)
    assert not failed
