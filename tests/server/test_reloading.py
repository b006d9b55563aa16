"""SIGHUP: what changes, what needs a restart, and that it ends nobody."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from server_rig import in_loop, node

from halfmoon.config.settings import load_settings, setting_paths
from halfmoon.errors import StartError
from halfmoon.server.reloading import RELOADABLE, reload

ROOT = Path(__file__).parents[2]


def test_what_can_be_reloaded_is_a_setting() -> None:
    assert set(RELOADABLE) <= set(setting_paths())
    assert len(set(RELOADABLE)) == len(RELOADABLE)


def test_the_documentation_lists_it() -> None:
    text = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    said = text.split("<!-- reloadable -->")[1].split("<!-- /reloadable -->")[0]
    assert re.findall(r"`([\w.]+)`", said) == list(RELOADABLE)


def test_changes_are_told_from_what_needs_a_restart() -> None:
    old = load_settings({"listeners": {"kafka": {"bind": "127.0.0.1:1"}}}, {}, {})
    new = load_settings(
        {
            "listeners": {"kafka": {"bind": "127.0.0.1:2"}, "rocketmq": {}},
            "log": {"retention": "1h", "flush": "interval"},
            "groups": {"share": {"delivery_count_limit": 9}, "min_session_timeout": "40m", "max_session_timeout": "1h"},
            "plugins": {"delay": False},
        },
        {}, {},
    )  # fmt: skip
    found = reload(old, new)
    assert set(found.changed) == {
        "log.retention", "groups.share.delivery_count_limit",
        "groups.min_session_timeout", "groups.max_session_timeout",
    }  # fmt: skip
    assert set(found.kept) == {"listeners.kafka.bind", "listeners.rocketmq", "log.flush", "plugins"}
    assert found.settings.log.retention_ms == 3_600_000
    assert found.settings.log.flush == "sync"
    assert found.settings.listeners == old.listeners
    assert found.settings.groups.share.delivery_count_limit == 9
    assert found.settings.groups.min_session_timeout_ms == 40 * 60_000
    assert reload(old, old) == (old, [], [])


@pytest.mark.parametrize("path", RELOADABLE)
def test_each_of_them_changes(path: str) -> None:
    other = {
        "logging.format": "json", "logging.level": "ERROR", "groups.migration_policy": "disabled",
        "groups.default_assignor": "uniform", "groups.share.auto_offset_reset": "earliest",
        "groups.share.isolation_level": "read_committed", "groups.max_size": "99",
        "log.cleaner.min_dirty_ratio": "0.9", "log.retention_bytes": "1GiB",
        "log.cleaner.min_compaction_lag": "1ms", "log.scrubber.interval": "5m", "groups.share.session_timeout": "46s",
        "groups.share.heartbeat_interval": "6s", "groups.consumer_heartbeat_min": "201ms",
        "groups.share.record_lock_duration": "31s",
        "groups.share.delivery_count_limit": "6", "groups.share.partition_max_record_locks": "2001",
    }  # fmt: skip
    default = setting_paths()[path]
    value = other.get(path) or ("false" if default is True else "true" if default is False else None)
    value = value or ("11s" if _is_time(path) else "12345")
    old, new = load_settings(None, {}, {}), load_settings(None, {}, {path: value})
    found = reload(old, new)
    assert (list(found.changed), list(found.kept)) == ([path], [])
    assert found.settings == new != old


def _is_time(path: str) -> bool:
    try:
        load_settings(None, {}, {path: "11s"})
    except StartError:
        return False
    return True


@in_loop
async def test_topics_and_groups_follow(tmp_path: Path) -> None:
    async with node(tmp_path) as app:
        topic, _ = app.node.kernel.administration.create_topic("t", 1)
        own, _ = app.node.kernel.administration.create_topic("own", 1, {"retention.ms": "5"})
        app.node.dynamic_configs.alter("", {"group.max.session.timeout.ms": "70000"})
        sections = {"log": {"retention": "1h", "segment_bytes": "1MiB", "flush": "interval"}}
        groups = {"max_session_timeout": "2m", "share": {"session_timeout": "50s"}, "consumer_session_timeout": "31s"}
        config = {
            "node": {"data_dir": str(tmp_path)}, "listeners": {"kafka": {"bind": "127.0.0.1:0"}},
            "topics": {"partitions": 3}, "groups": groups, **sections,
        }  # fmt: skip
        app.reload(load_settings(config, {}, {}))
        assert (topic.rules.retention_ms, own.rules.retention_ms) == (3_600_000, 5)
        settings = app.node.kernel.settings
        assert settings.topics.partitions == 3
        assert settings.groups.max_session_timeout_ms == 70_000, "what was set at run time goes before"
        assert app.node.shares.delivery.options.of("g").session_timeout_ms == 50_000  # type: ignore[attr-defined]
        assert settings.groups.consumer_session_timeout_ms == 31_000


class Broker:
    def __init__(self, folder: Path) -> None:
        self.file = folder / "broker.yaml"
        self.file.write_text("topics: {partitions: 2}\n")
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "halfmoon", "serve", "--config", str(self.file), "--kafka", "127.0.0.1:0"],
            cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        found = re.match(r"ready kafka=(\S+) ", self.process.stdout.readline())
        assert found is not None
        self.address = found[1]

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.lines.extend(iter(self.process.stderr.readline, ""))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()

    def hang_up(self, *said: str) -> None:
        """Send SIGHUP, and wait for lines that have these words."""
        before = len(self.lines)
        self.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 60
        while not all(any(word in line for line in self.lines[before:]) for word in said):
            assert self.process.poll() is None, "it has ended"
            assert time.monotonic() < deadline, self.lines[before:]
            time.sleep(0.02)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    serving = Broker(tmp_path)
    yield serving
    serving.close()


def partitions(broker: Broker) -> str:
    resource = ConfigResource(ResourceType.BROKER, "1")
    admin = AdminClient({"bootstrap.servers": broker.address})
    found = admin.describe_configs([resource])[resource].result(30)
    return str(found["num.partitions"].value)


def test_a_hangup_reloads_and_never_ends_the_broker(broker: Broker) -> None:
    broker.file.write_text("topics: {partitions: 5}\nlog: {flush: interval}\n")
    broker.hang_up("event=reloaded changed=topics.partitions", "event=setting_not_reloaded setting=log.flush")
    assert partitions(broker) == "5"
    broker.file.write_text("topics: {partitions: none of your business}\n")
    broker.hang_up("event=reload_failed", "$.topics.partitions")
    broker.file.write_text("logging: {format: json}\n")
    broker.hang_up("event=reloaded changed=logging.format,topics.partitions")
    broker.hang_up('"event": "reloaded", "changed": "none"')
    broker.file.unlink()
    broker.hang_up('"event": "reload_failed"')
    assert partitions(broker) == "4"
    broker.process.send_signal(signal.SIGTERM)
    assert broker.process.wait(30) == 0
