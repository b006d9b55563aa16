"""docs/security.md: whoever types its commands, in their order, gets what it says."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from halfmoon.schema.control import AclRule
from halfmoon.server.auditing import rule_text
from halfmoon.services.audit import lines
from halfmoon.services.audit.lines import Who

PAGE = (Path(__file__).parents[1] / "docs" / "security.md").read_text(encoding="utf-8")
STEPS = re.findall(r"<!-- test: (run|python|file \S+) -->\n```\w+\n(.*?)```", PAGE, re.DOTALL)
PASSWORD = "alice-secret"
LEAD = PAGE.partition("## Clients")[0]


class Reader:
    """Somebody in an empty folder, with the page."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port
        self.broker: subprocess.Popen[str] | None = None
        self.said: dict[str, str] = {}
        """By command."""
        (folder / "password").touch(0o600)
        (folder / "password").write_text(PASSWORD)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).touch(0o600)
        (self.folder / name).write_text(self._here(text))

    def run(self, command: str) -> None:
        program, *arguments = shlex.split(self._here(command))
        if program == "pip":
            (wanted,) = re.findall(r"halfmoon\[(\w+)\]", arguments[1])
            assert wanted in (importlib.metadata.metadata("halfmoon").get_all("Provides-Extra") or [])
            return
        assert program == "halfmoon"
        if arguments[0] == "serve":
            self.broker = self._start(arguments)
            assert self.broker.stdout is not None
            assert self.broker.stdout.readline().startswith("ready ")
            return
        if arguments[:2] == ["user", "create"]:
            arguments += ["--password-file", "password"]  # there is no terminal to ask at
        # The page's broker is at the default address.
        at = {"HALFMOON_BOOTSTRAP_SERVER": f"127.0.0.1:{self.port}"} if "--command-config" in arguments else {}
        out, err = (done := self._start(arguments, **at)).communicate(timeout=60)
        assert done.returncode == 0, (command, err)
        self.said[command] = out

    def python(self, text: str) -> None:
        done = subprocess.run(
            [sys.executable, "-c", self._here(text)], cwd=self.folder, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr

    def _here(self, text: str) -> str:
        return re.sub(r"\b9092\b", str(self.port), text)

    def _start(self, arguments: list[str], **more: str) -> subprocess.Popen[str]:
        known = {name: value for name, value in os.environ.items() if not name.startswith("HALFMOON_")}
        return subprocess.Popen(
            [sys.executable, "-m", "halfmoon", *arguments], cwd=self.folder, env=known | more,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    made = Reader(tmp_path, port)
    yield made
    if made.broker is not None:
        made.broker.terminate()
        made.broker.communicate(timeout=20)


def test_its_commands(reader: Reader) -> None:
    for kind, text in STEPS:
        if kind == "run":
            for command in text.splitlines():
                reader.run(command)
        elif kind == "python":
            reader.python(text)
        else:
            reader.write(kind.removeprefix("file "), text)
    (answered,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    assert reader.said["halfmoon acl check User:alice Read topic:orders"] == answered
    assert "localhost,127.0.0.1,::1" in reader.said["halfmoon tls check broker.yaml"]
    assert reader.said["halfmoon tls reload"].startswith("kafka: taken, until ")
    printed = reader.said["halfmoon tls init tls"]
    for line in ("sasl: [SCRAM-SHA-512, SCRAM-SHA-256]", "ssl.truststore.type=PEM", "security.protocol=SASL_SSL"):
        assert line in printed
    for arguments in (["produce", "others", "x", "--command-config", "client.properties"], ["produce", "orders", "x"]):
        at = {"HALFMOON_BOOTSTRAP_SERVER": f"127.0.0.1:{reader.port}"}
        refused = reader._start(arguments, **at)
        _, err = refused.communicate(timeout=60)
        assert refused.returncode == 1
        assert ("TOPIC_AUTHORIZATION_FAILED" if len(arguments) > 3 else "--command-config") in err


def test_it_takes_six_commands() -> None:
    lead = re.findall(r"<!-- test: run -->\n```sh\n(.*?)```", LEAD, re.DOTALL)
    assert len("".join(lead).splitlines()) == 6


def test_the_line_of_audit_is_one() -> None:
    (shown,) = re.findall(r"```json\n(\{\"event\".*?)\n```", PAGE)
    said = json.loads(shown)
    at_ms = int(datetime.fromisoformat(said["time"]).timestamp() * 1000)
    rule = AclRule(2, "orders.secret", 3, "User:alice", "10.1.0.0/16", 2, 2)
    who = Who(said["listener"], said["peer"], said["principal"], said["mechanism"], said["client_id"])
    use = "read", "topic", "orders.secret"
    assert lines.access(at_ms, "denied", who, "Fetch", use, "rule", rule_text(rule)).decode() == shown
