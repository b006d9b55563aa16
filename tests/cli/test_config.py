from __future__ import annotations

from pathlib import Path

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
