"""A certificate authority for tests, and certificates of it as the files that broker.yaml names."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import trustme


class Authority:
    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._ca = trustme.CA()
        self._folder = folder
        self.path = str(folder / f"{name}.pem")
        self._ca.cert_pem.write_to_path(self.path)

    def pair(self, name: str, *identities: str, lives: timedelta = timedelta(days=365)) -> dict[str, str]:
        """A certificate and its key as files, as `tls: {cert: …, key: …}` has them."""
        expires = datetime.now(UTC) + lives
        made = self._ca.issue_cert(
            *(identities or ("127.0.0.1", "localhost")), common_name=name, organization_name="Shop",
            not_before=expires - timedelta(days=365), not_after=expires,
        )  # fmt: skip
        cert, key = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        cert.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
        key.unlink(missing_ok=True)
        key.touch(0o600)
        key.write_bytes(made.private_key_pem.bytes())
        return {"cert": str(cert), "key": str(key)}

    def signed_rocketmq(self) -> dict[str, Any]:
        """As `listeners.rocketmq` has it: requests are signed, over TLS."""
        tls = {**self.pair("rocketmq"), "mode": "enforcing"}
        return {"bind": "127.0.0.1:0", "namesrv": "127.0.0.1:0", "auth": True, "tls": tls}

    def client(self, pair: dict[str, str] | None = None) -> ssl.SSLContext:
        """What a client verifies the broker with, and perhaps shows it."""
        context = ssl.create_default_context(cafile=self.path)
        if pair is not None:
            context.load_cert_chain(pair["cert"], pair["key"])
        return context

    def librdkafka(self, pair: dict[str, str] | None = None) -> dict[str, Any]:
        """The same as confluent-kafka's configuration."""
        config = {"security.protocol": "SSL", "ssl.ca.location": self.path}
        if pair is not None:
            config |= {"ssl.certificate.location": pair["cert"], "ssl.key.location": pair["key"]}
        return config
