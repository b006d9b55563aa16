from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
import yaml

from halfmoon.config.settings import Settings, load_settings
from halfmoon.errors import StartError
from halfmoon.server.app import App
from tests.cli.conftest import CommandLine


def test_a_good_file_shows_what_is_in_force(cli: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "broker.yaml"
    file.write_text("log: {flush: interval, retention: 3d}\n")
    said = cli.ok("config", "check", str(file), "--no-env", "-o", "json").json()
    assert said["valid"]
    assert said["settings"]["log.flush"] == "interval"
    assert said["settings"]["log.retention_ms"] == 3 * 86_400_000
    assert said["settings"]["listeners.kafka.bind"] == "127.0.0.1:9092"
    assert f"{file} is valid" in cli.ok("config", "check", str(file)).out


def test_the_environment_counts_as_it_does_for_serve(cli: CommandLine, tmp_path: Path, monkeypatch) -> None:
    file = tmp_path / "broker.yaml"
    file.write_text("log: {flush: interval}\n")
    monkeypatch.setenv("HALFMOON_LOG_FLUSH", "sync")
    assert cli.ok("config", "check", str(file), "-o", "json").json()["settings"]["log.flush"] == "sync"
    without = cli.ok("config", "check", str(file), "--no-env", "-o", "json").json()
    assert without["settings"]["log.flush"] == "interval"


def test_a_mistake_is_named_with_its_path(cli: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "broker.yaml"
    file.write_text("log: {flsh: interval}\n")
    assert (
        cli("config", "check", str(file)).failed_with(1) == "halfmoon: $.log.flsh: no such setting; did you mean flush?"
    )


def test_a_plugin_that_does_not_exist(cli: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "broker.yaml"
    file.write_text("plugins: {nosuch: {}}\n")
    assert "nosuch" in cli("config", "check", str(file)).failed_with(1)


def test_a_file_that_is_not_there(cli: CommandLine, tmp_path: Path) -> None:
    assert "cannot be read" in cli("config", "check", str(tmp_path / "none.yaml")).failed_with(1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("views: {paid: {source: orders, sql: 'a >'}}", "$.views.paid: halfmoon.view.sql: expected a property"),
        ("views: {paid: {source: orders, xpath: a}}", "no enabled plugin offers the filter language 'xpath'"),
        ("views: {paid: {tag: a}}", "$.views.paid.source: got None, expected the name of a topic"),
        ("views: {a: {source: b, tag: x}, b: {source: a, tag: x}}", "a circle: a from b from a"),
        ("views: {paid: {source: orders, tag: a, configs: {nosuch: 1}}}", "nosuch"),
        ("views: {paid: {source: orders, tag: a}}\nplugins: {view: off}", "$.views: no enabled plugin"),
        ("services: {keyindex: off}", "$.plugins.delay needs services.keyindex, which is off"),
        ("groups: {default_assignor: nosuch}", "$.groups.default_assignor: got 'nosuch'"),
        ("plugins: {raises.py: on}", "plugin raises: halfmoon_started: RuntimeError: not today"),
        ("plugins: {api.py: on}", "API 3 (Mine) of a plugin: Metadata has this key"),
    ],
)  # fmt: skip
def test_what_serve_refuses_is_refused(cli: CommandLine, tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "raises.py").write_text(
        "from halfmoon.plugin import hookimpl\napi_version = 1\n"
        "@hookimpl\ndef halfmoon_started(ctx):\n    raise RuntimeError('not today')\n"
    )
    (tmp_path / "api.py").write_text(
        "from halfmoon.plugin import KafkaApi, hookimpl\napi_version = 1\n"
        "@hookimpl\ndef halfmoon_kafka_apis(ctx):\n    return [KafkaApi(3, 'Mine', 0, 0, None)]\n"
    )
    file = tmp_path / "broker.yaml"
    file.write_text(text)
    with pytest.raises(StartError) as refused:
        run_app(
            load_settings(file, {}, {"node.data_dir": str(tmp_path / "data"), "listeners.kafka.bind": "127.0.0.1:0"})
        )
    checked = cli("config", "check", str(file), "--no-env").failed_with(1)
    assert checked == f"halfmoon: {refused.value}"
    assert said in checked


def run_app(settings: Settings) -> None:
    """As serve does."""

    async def start_and_stop() -> None:
        app = App(settings)
        await app.start()
        await app.stop()

    asyncio.run(start_and_stop())


def test_what_is_printed_is_a_broker_yaml(cli: CommandLine, tmp_path: Path) -> None:
    """It says the same again, with every default."""
    (tmp_path / "mine.py").write_text("api_version = 1\n")
    file, again = tmp_path / "broker.yaml", tmp_path / "again.yaml"
    file.write_text(
        "log: {flush: interval, retention: 90s, low_disk_bytes: 5GiB}\n"
        "listeners: {kafka: {bind: '[::1]:9092', advertise: 'b:1'}, rocketmq: {max_delay: 1d}}\n"
        "groups: {offsets_retention: null}\n"
        "plugins: {delay: {levels: 1s 2s}, transaction: off, mine.py: on}\n"
        "views: {paid: {source: orders, tag: a, configs: {retention.ms: 1}}}\n"
    )
    printed = cli.ok("config", "check", str(file), "--no-env").out
    again.write_text(printed)
    tree = yaml.safe_load(printed)
    assert tree["log"]["retention"] == "90s"
    assert tree["plugins"]["delay"] == {"levels": "1s 2s", "max_delay": "40d"}
    assert (tree["plugins"]["transaction"], tree["plugins"]["mine.py"]) == (False, True)
    assert tree["views"] == {"paid": {"source": "orders", "tag": "a", "configs": {"retention.ms": 1}}}
    assert printed.endswith(f"# {file} is valid\n")
    first, second = (load_settings(each, {}, {}) for each in (file, again))
    assert msgspec.structs.replace(first, plugins=second.plugins) == second
    assert cli.ok("config", "check", str(again), "--no-env").out == printed.replace(str(file), str(again))


def test_the_environment_of_plugins_is_printed(cli: CommandLine, tmp_path: Path, monkeypatch) -> None:
    file = tmp_path / "broker.yaml"
    file.write_text("")
    monkeypatch.setenv("HALFMOON_PLUGINS_RETRY_MAX_RECONSUME_TIMES", "3")
    printed = cli.ok("config", "check", str(file)).out
    assert yaml.safe_load(printed)["plugins"]["retry"] == {"max_reconsume_times": 3, "policies": {}}


def test_a_list_of_listeners_is_printed_as_one(cli: CommandLine, tmp_path: Path) -> None:
    file, again = tmp_path / "broker.yaml", tmp_path / "again.yaml"
    file.write_text("listeners: {kafka: [{bind: '127.0.0.1:0'}, {name: b, bind: '127.0.0.1:0', advertise: 'b:1'}]}\n")
    again.write_text(cli.ok("config", "check", str(file), "--no-env").out)
    first, second = (load_settings(each, {}, {}) for each in (file, again))
    assert first.listeners == second.listeners
