"""A secured broker in a process of its own, an administrator, and a witness: a user whom no attack may disturb.

    with Hostile(folder) as hostile:       # TLS and SCRAM at Kafka's listener, signatures at RocketMQ's
        with hostile.watched():
            ...                            # whatever a stranger does

Afterwards the witness has had its answers, the broker's log has no error and few lines, and its memory is as it was.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

from halfmoon.auth.scram import MECHANISMS, MIN_ITERATIONS, ScramClient, salted_password
from halfmoon.server.admin_socket import path_of
from tests.fuzz.canary import TOPIC, Canary
from tests.fuzz.peer import Peer
from tests.fuzz.process import BrokerProcess, MemoryWatch
from tests.interop.access.world import build
from tests.security.acting import rule
from tests.security.authority import Authority

HANDSHAKE, CREATE_TOPICS, DESCRIBE_ACLS, CREATE_ACLS, AUTHENTICATE, ALTER_SCRAM = 17, 19, 29, 30, 36, 51
ANY = 1
MECHANISM = MECHANISMS["SCRAM-SHA-256"]
PASSWORD = "a password"
WITNESS = "witness"
RIGHTS = ("create", "write", "read", "describe", "alter_configs")
GROWN_BYTES = 64 << 20
"""What a crowd of strangers may cost, unless a test says otherwise."""
HARMLESS = re.compile(r"\d{4}-\d\d-\d\d [\d:,]+ level=(INFO|WARNING) ")
"""How every line of the log begins, whatever names it shows."""
LINES = 200
"""What they may have the broker log."""

LISTENER: dict[str, Any] = {"bind": "127.0.0.1:0", "sasl": [*MECHANISMS, "PLAIN"]}


class LoggedIn(Peer):
    """A client that has shown who it is."""

    def __init__(self, address: tuple[str, int], name: str, context: ssl.SSLContext | None = None) -> None:
        super().__init__(address)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_hostname="127.0.0.1")
        self.log_in(name)

    def log_in(self, name: str) -> None:
        """Raises AssertionError where it is not let in."""
        assert self.ask(HANDSHAKE, 1, mechanism=MECHANISM.name).error_code == 0
        scram = ScramClient(MECHANISM, name, PASSWORD, os.urandom(12).hex())
        challenge = self.ask(AUTHENTICATE, 2, auth_bytes=scram.first())
        assert challenge.error_code == 0, challenge
        answer = self.ask(AUTHENTICATE, 2, auth_bytes=scram.final(bytes(challenge.auth_bytes)))
        assert answer.error_code == 0, answer


class Administrator(Peer):
    """At the broker's own socket."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(20)
        self.socket.connect(str(path))
        self._received = bytearray()
        self._correlation_id = 0

    def user(self, name: str) -> None:
        salt = os.urandom(16)
        salted = salted_password(MECHANISM, PASSWORD, salt, MIN_ITERATIONS)
        made = {"name": name, "mechanism": MECHANISM.number, "iterations": MIN_ITERATIONS, "salt": salt,
                "salted_password": salted}  # fmt: skip
        (result,) = self.ask(ALTER_SCRAM, 0, **build(ALTER_SCRAM, {"deletions": [], "upsertions": [made]})).results
        assert result.error_code == 0, result

    def topic(self, name: str, **configs: str) -> None:
        said = [{"name": each.replace("_", "."), "value": value} for each, value in configs.items()]
        made = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": said}
        (result,) = self.ask(CREATE_TOPICS, 5, **build(CREATE_TOPICS, {"topics": [made], "timeout_ms": 20_000})).topics
        assert result.error_code == 0, result

    def rules_of(self, name: str) -> list[str]:
        """The names of resources that the user's rules are about, of each rule."""
        said = {
            "resource_type_filter": ANY, "resource_name_filter": None, "pattern_type_filter": ANY,
            "principal_filter": f"User:{name}", "host_filter": None, "operation": ANY, "permission_type": ANY,
        }  # fmt: skip
        found = self.ask(DESCRIBE_ACLS, 3, 60, **said).resources
        return [each.resource_name for each in found for _ in each.acls]

    def allow(self, name: str, *rights: str) -> None:
        """Rights as of `acting.rule`."""
        creations = [
            {"resource_type": each.resource_type, "resource_name": each.resource_name,
             "resource_pattern_type": each.pattern_type, "principal": each.principal, "host": each.host,
             "operation": each.operation, "permission_type": each.permission}
            for each in (rule(name, right) for right in rights)
        ]  # fmt: skip
        for begin in range(0, len(creations), 1_000):
            answer = self.ask(CREATE_ACLS, 3, 60, **build(CREATE_ACLS, {"creations": creations[begin : begin + 1_000]}))
            assert {each.error_code for each in answer.results} == {0}, answer.results[0]


class Witness(Canary):
    def __init__(self, hostile: Hostile) -> None:
        super().__init__(hostile.broker.address, hostile.broker.cpu_s)
        self._hostile = hostile

    def _connect(self) -> Any:
        return self._hostile.logged_in(WITNESS)


class Hostile:
    principal = WITNESS
    """The witness's."""

    def __init__(self, folder: Path, *, tls: bool = True, **sections: Any) -> None:
        """`sections`: as in broker.yaml, over what is there."""
        folder.mkdir(parents=True, exist_ok=True)
        self.authority = Authority(folder)
        self._folder = folder
        listener = LISTENER | ({"tls": self.authority.pair("broker")} if tls else {})
        given = {
            "log": {"segment_bytes": "16MiB", "flush": "interval", "retention": "10s"},
            "listeners": {"kafka": listener},
        }
        for name, section in sections.items():
            given[name] = {**given.get(name, {}), **section}
        self._context = self.authority.client() if tls else None
        self.broker = BrokerProcess(folder, **given)
        self.admin: Administrator
        self.witness: Witness
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.broker)
            self.admin = stack.enter_context(Administrator(path_of(self._folder / "data")))
            self.admin.user(WITNESS)
            self.admin.allow(self.principal, *(f"{right} topic {TOPIC}" for right in RIGHTS))
            self.witness = Witness(self)
            self.witness.start()
            self.witness.wait_for_rounds(1)
            self._open = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def logged_in(self, name: str) -> LoggedIn:
        return LoggedIn(self.broker.address, name, self._context)

    def stranger(self) -> Peer:
        """A bare connection."""
        return Peer(self.broker.address)

    def end(self) -> None:
        """It all ends well."""
        self.witness.stop()
        assert self.broker.stop() == 0

    @contextmanager
    def watched(
        self, *, grown_bytes: int = GROWN_BYTES, lines: int = LINES, rounds: int = 5, besides: str = "no error"
    ) -> Iterator[MemoryWatch]:
        """What happens inside disturbs nobody: the witness makes so many more rounds and asks once by a new connection;
        no more lines are logged, none of them an error but for those with `besides`; memory grows by no more."""
        self.broker.read_log()
        with MemoryWatch(self.broker) as memory:
            yield memory
            self.witness.wait_for_rounds(rounds)
            with self.logged_in(WITNESS) as another:
                (found,) = another.ask(3, 7, 20, **build(3, {"topics": [{"name": TOPIC}]})).topics
                assert found.error_code == 0, found
        logged = self.broker.read_log()
        assert all(HARMLESS.match(line) or besides in line for line in logged), logged[-20:]
        assert len(logged) <= lines, logged[-20:]
        assert memory.grown_bytes < grown_bytes, f"grown by {memory.grown_bytes >> 20} MiB"


def until_closed(peer: Peer, timeout_s: float = 20.0) -> bool:
    """Whether the broker ends the connection, whatever it still says."""
    peer.socket.settimeout(timeout_s)
    try:
        while peer.socket.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


Start = Callable[..., Hostile]
