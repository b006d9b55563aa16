"""`halfmoon serve` as a process: what it prints, how it ends, what it refuses."""

from __future__ import annotations

import gc
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource

from tests.cli.conftest import CommandLine


class Serving:
    def __init__(self, folder: Path, *flags: str) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-m", "halfmoon", "serve", "--data-dir", str(folder), *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ready(self) -> str:
        """The address in the one line it prints."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        match = re.fullmatch(rf"ready kafka=(127\.0\.0\.1:\d+) data={re.escape(str(self.folder))}.*\n", line)
        assert match is not None, line
        return match[1]

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=20)

    def refusal(self) -> str:
        """What it says where it does not start: its last line."""
        out, err = self.process.communicate(timeout=20)
        assert self.process.returncode != 0
        assert out == ""
        assert "Traceback" not in err
        (line,) = [line for line in err.splitlines() if line.startswith("halfmoon: ")]
        return line


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[type[Serving] | object]:
    started: list[Serving] = []

    def start(*flags: str, folder: Path = tmp_path / "data") -> Serving:
        started.append(Serving(folder, *flags))
        return started[-1]

    yield start
    for serving in started:
        serving.process.kill()
        serving.process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_and_ends_cleanly(serve, cli: CommandLine, number: int) -> None:
    first = serve("--kafka", "127.0.0.1:0")
    server = first.ready()
    cli.ok("produce", "orders", "one", "-b", server)
    assert first.end(number) == 0
    second = serve("--kafka", "127.0.0.1:0")
    assert cli.ok("consume", "orders", "-e", "-b", second.ready()).out == "one\n"
    assert second.end(number) == 0


def test_garbage_is_looked_for_again_when_all_is_imported(cli: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "broker.yaml").write_text("log: {flush: never}")
    cli("serve", "--config", str(tmp_path / "broker.yaml")).failed_with(1)
    assert gc.isenabled()


def test_a_data_directory_has_one_broker(serve) -> None:
    first = serve("--kafka", "127.0.0.1:0")
    first.ready()
    assert str(first.folder) in serve("--kafka", "127.0.0.1:0").refusal()
    assert first.end(signal.SIGTERM) == 0


def test_a_port_in_use_is_named(serve) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert f"127.0.0.1:{port}" in serve("--kafka", f"127.0.0.1:{port}").refusal()


def test_an_open_address_needs_a_decision(serve) -> None:
    assert "allow_insecure" in serve("--kafka", "0.0.0.0:0").refusal()


def test_a_mistake_in_the_settings_is_named(serve, tmp_path: Path) -> None:
    file = tmp_path / "broker.yaml"
    file.write_text("log: {flush: sometimes}\n")
    assert "$.log.flush: got 'sometimes', expected" in serve("--config", str(file)).refusal()


def test_what_was_set_at_run_time_can_be_unset(serve, cli: CommandLine) -> None:
    first = serve("--kafka", "127.0.0.1:0")
    admin = KafkaAdminClient(bootstrap_servers=first.ready())
    admin.alter_configs([ConfigResource("BROKER", "1", {"num.partitions": "7"})], incremental=True)
    admin.close()
    assert first.end(signal.SIGTERM) == 0
    assert "no.such.config" in serve("--kafka", "127.0.0.1:0", "--unset-config", "no.such.config").refusal()
    second = serve("--kafka", "127.0.0.1:0", "--unset-config", "max.connections", "--unset-config", "num.partitions")
    server = second.ready()
    cli.ok("topic", "create", "t", "-b", server)
    (described,) = cli.ok("topic", "describe", "t", "-o", "json", "-b", server).json()
    assert len(described["partitions"]) == 4


def test_flags_win_over_the_file(serve, tmp_path: Path) -> None:
    file = tmp_path / "broker.yaml"
    file.write_text("node: {data_dir: /nonexistent/elsewhere}\nlisteners: {kafka: {bind: '127.0.0.1:1'}}\n")
    serving = serve("--config", str(file), "--kafka", "127.0.0.1:0")
    assert not serving.ready().endswith(":1")
    assert serving.end(signal.SIGTERM) == 0
