from __future__ import annotations

from pathlib import Path

from halfmoon.plugins import BUILT_IN
from tests.cli.conftest import CommandLine


def test_the_built_in_ones_are_listed_and_on(cli: CommandLine) -> None:
    states = {row["name"]: row["state"] for row in cli.ok("plugins", "-o", "json").json()}
    assert {name: states[name] for name in BUILT_IN} == dict.fromkeys(BUILT_IN, "on")


def test_one_switched_off_is_shown_as_off(cli: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "broker.yaml"
    file.write_text("plugins: {machine_room: false}\n")
    rows = {row["name"]: row for row in cli.ok("plugins", "--config", str(file), "-o", "json").json()}
    assert rows["machine_room"]["state"] == "off"
    assert "machine_room " in cli.ok("plugins", "--config", str(file)).out
