"""An identity provider in the test's own process: https, its keys, and tokens for who asks with a client secret."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.security.authority import Authority

ISSUER, AUDIENCE = "https://idp.example", "halfmoon"


class Provider:
    def __init__(self, authority: Authority) -> None:
        self._authority = authority
        self.asked: Counter[str] = Counter()
        """Requests, by their path."""
        self.keys: dict[str, Any] = {"one": rsa.generate_private_key(65537, 2048)}
        self.lifetime_s = 300
        self.document: bytes | None = None
        """In place of its keys."""
        self.redirects_to: str | None = None
        self.hangs = False
        self.go_on = threading.Event()
        """Ends what hangs."""
        self.secrets = {"client": "client-secret"}
        self.bodies: list[dict[str, list[str]]] = []
        """What was posted."""

    @contextmanager
    def running(self, port: int = 0) -> Iterator[Provider]:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.asked[self.path] += 1
                if provider.hangs:
                    provider.go_on.wait(30)
                if provider.redirects_to is not None:
                    self.send_response(302)
                    self.send_header("Location", provider.redirects_to)
                    self.end_headers()
                    return
                self.answer(200, provider.key_set() if provider.document is None else provider.document)

            def do_POST(self) -> None:
                provider.asked[self.path] += 1
                body = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                provider.bodies.append(body)
                given = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
                name, _, secret = given.partition(":")
                if provider.secrets.get(name) != secret or body.get("grant_type") != ["client_credentials"]:
                    self.answer(401, b'{"error": "invalid_client"}')
                    return
                said = {
                    "access_token": provider.token(sub=name), "token_type": "Bearer",
                    "expires_in": provider.lifetime_s,
                }  # fmt: skip
                self.answer(200, json.dumps(said).encode())

            def answer(self, status: int, body: bytes) -> None:
                try:
                    self.send_response(status)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                except OSError:
                    pass  # it has hung up

            def log_message(self, *args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *args: object) -> None:
                pass  # who does not trust it hangs up

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        pair = self._authority.pair("idp")
        context.load_cert_chain(pair["cert"], pair["key"])
        server = Server(("127.0.0.1", port), Handler)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        self.port = server.server_address[1]
        serving = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        serving.start()
        try:
            yield self
        finally:
            self.go_on.set()
            server.shutdown()
            server.server_close()
            serving.join()

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}"

    def key_set(self) -> bytes:
        made = jwt.algorithms.RSAAlgorithm.to_jwk
        return json.dumps(
            {"keys": [{**made(key.public_key(), as_dict=True), "kid": kid} for kid, key in self.keys.items()]}
        ).encode()

    def token(self, kid: str = "one", **claims: Any) -> str:
        now_s = int(time.time())
        said = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "iat": now_s, "exp": now_s + self.lifetime_s, **claims}
        return jwt.encode(said, self.keys[kid], "RS256", {"kid": kid})

    def settings(self, **more: Any) -> dict[str, Any]:
        """As `security.oauth`."""
        return {
            "jwks_url": f"{self.url}/jwks", "ca": self._authority.path, "issuer": ISSUER, "audience": [AUDIENCE],
            **more,
        }  # fmt: skip
