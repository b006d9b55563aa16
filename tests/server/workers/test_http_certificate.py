"""The certificate of /metrics and /healthz where several workers answer."""

from __future__ import annotations

import urllib.request
from pathlib import Path

from halfmoon.testing import Broker
from tests.security.authority import Authority
from tests.several_workers import metric


def test_it_is_watched_as_those_of_other_listeners_are(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    listeners = {"http": {"bind": "127.0.0.1:0", "tls": authority.pair("broker")}}
    with (
        Broker(workers=2, config={"listeners": listeners}) as broker,
        urllib.request.urlopen(f"https://{broker.http}/metrics", context=authority.client()) as answer,
    ):
        told = answer.read().decode()
    assert metric(told, "halfmoon_tls_handshakes_total", listener="http", result="ok") == 1
    assert metric(told, "halfmoon_tls_certificate_expiry_seconds", listener="http") > 1e9
