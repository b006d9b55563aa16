"""`halfmoon acl` where clients authenticate: what it adds holds, and not everybody may ask."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine
from tests.security.conftest import Secure
from tests.security.test_command_config import client_properties
from tests.several_workers import first_folder


def test_rules_through_the_administrators_socket_hold_at_once(
    secured: Secure, cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = secured(tls=True)
    found.user("alice", "secret")
    monkeypatch.setenv("HALFMOON_NODE_DATA_DIR", first_folder(found.broker))
    alice = ("-b", found.broker.bootstrap_servers, "--command-config", client_properties(tmp_path, found))
    assert "TOPIC_AUTHORIZATION_FAILED" in cli("produce", "orders", "x", *alice).failed_with(1)
    cli.ok("acl", "add", "--allow", "User:alice", "--producer", "--consumer", "--topic", "orders", "--group", "billing")
    cli.ok("produce", "orders", "x", *alice)
    assert cli.ok("consume", "orders", "-g", "billing", "-c", "1", "-f", "%s", *alice).out == "x"
    assert cli.ok("acl", "check", "User:alice", "Read", "topic:orders").out.startswith("yes: allow User:alice Read")
    assert "CLUSTER_AUTHORIZATION_FAILED" in cli("acl", "list", *alice).failed_with(1)
    asked = ("acl", "check", "User:bob", "Read", "topic:orders", *alice)
    assert "is not allowed to describe cluster" in cli(*asked).failed_with(1)
    cli.ok("acl", "add", "--allow", "User:alice", "--operation", "Describe", "--cluster")
    assert cli(*asked).out == "no: no rule allows it\n"
    refused = cli("acl", "add", "--allow", "User:alice", "--operation", "All", "--cluster", *alice)
    assert "CLUSTER_AUTHORIZATION_FAILED" in refused.failed_with(1)
