"""A plugin of pytest for kafka-python's own tests of TLS and SASL: where they start a Kafka, Halfmoon starts.

`-p tools.interop_kafka_python_secured`, in the folder with the unpacked tests: see interop_kafka_python.py.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kafka import KafkaAdminClient
from test.integration import fixtures  # type: ignore[import-not-found]  # theirs

from halfmoon.testing import Broker


class HalfmoonFixture(fixtures.KafkaFixture):  # type: ignore[misc]
    """Their fixture, with another broker: what clients need to log in, and where they connect to, stays theirs."""

    running: bool
    broker: Broker

    def open(self) -> None:
        self.start()

    def start(self) -> bool:
        if self.running:
            return True
        listener: dict[str, Any] = {"sasl": [self.sasl_mechanism] if self.sasl_enabled else None}
        if not self.ssl_enabled:
            # PLAIN without TLS is refused otherwise.
            listener |= {"tls": None, "allow_insecure": True}
        # As they set Kafka up, without super users. The tests of SASL say who they are, those of TLS do not.
        security = {"authorizer": "acl", "allow_everyone_if_no_acl_found": True, "super_users": []}
        self.broker = Broker(
            secure=True,
            config={"listeners": {"kafka": listener}, "security": security, "topics": {"partitions": self.partitions}},
        )
        self.broker.start()
        self.broker.create_user(self.broker_user, self.broker_password)
        host, _, port = self.broker.bootstrap_servers.rpartition(":")
        self.host, self.port = host, int(port)
        authority = Path(self.broker.client_config()["ssl.ca.location"])
        theirs = authority.with_name("theirs")
        theirs.mkdir()
        (theirs / "ca-cert").write_bytes(authority.read_bytes())
        self.ssl_dir = str(theirs)
        self.child = SimpleNamespace(dump_logs=lambda: None)
        self.running = True
        return True

    def stop(self) -> None:
        if self.running:
            self.running = False
            self.broker.stop()

    def get_topic_names(self) -> list[str]:
        """In place of kafka-topics.sh --list."""
        with KafkaAdminClient(**self._enrich_client_params({})) as admin:
            names: list[str] = admin.list_topics()
        return names


fixtures.KafkaFixture = HalfmoonFixture
