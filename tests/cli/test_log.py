"""`log` and `backup` over the data directory of a broker that ran."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer

from halfmoon.testing import Broker
from tests.cli.conftest import CommandLine
from tests.several_workers import of_one_data_directory

pytestmark = of_one_data_directory


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("data")
    config = {"log": {"segment_bytes": "64KiB"}, "topics": {"max_message_bytes": "32KiB"}}
    with Broker(data_dir=str(directory), config=config) as broker:
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        for _ in range(20):
            producer.send("kept", b"x" * 8_000).get(timeout=10)
        producer.close()
    return directory


def test_a_whole_log_is_verified(cli: CommandLine, data_dir: Path) -> None:
    said = cli.ok("log", "verify", str(data_dir), "-o", "json").json()
    assert said["ok"]
    assert said["clean"]
    assert said["records"] == 20
    assert said["segments"] > 2
    assert cli.ok("log", "verify", str(data_dir)).out.endswith("whole\n")


def test_frames_are_shown_by_topic_and_count(cli: CommandLine, data_dir: Path) -> None:
    frames = cli.ok("log", "dump", str(data_dir), "-t", "kept", "-c", "5", "-o", "json").json_lines()
    assert [frame["base_offset"] for frame in frames] == [0, 1, 2, 3, 4]
    assert {frame["kind"] for frame in frames} == {"batch"}
    assert frames[0]["batch"]["record_count"] == 1
    text = cli.ok("log", "dump", str(data_dir), "--from", str(frames[4]["position"]), "-c", "1").out
    assert f"position={frames[4]['position']} " in text
    assert "topic=kept" in text


def test_a_backup_is_a_data_directory(cli: CommandLine, data_dir: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy"
    said = cli.ok("backup", str(data_dir), str(target), "-o", "json").json()
    assert said["segments"] >= 2
    assert (said["records"], said["topics"], said["ok"], said["problems"]) == (20, 1, True, [])
    assert said["bytes"] > 160_000
    assert cli.ok("log", "verify", str(target), "-o", "json").json()["records"] == 20
    assert "exists already" in cli("backup", str(data_dir), str(target)).failed_with(1)
    text = cli.ok("backup", str(data_dir), str(tmp_path / "again"))
    assert re.search(r"^records +20$", text.out, re.MULTILINE)
    assert text.out.endswith("whole\n")


def test_a_backup_of_damaged_data_says_so(cli: CommandLine, data_dir: Path, tmp_path: Path) -> None:
    cli.ok("backup", str(data_dir), str(tmp_path / "source"))
    damage_a_frame(cli, tmp_path / "source")
    outcome = cli("backup", str(tmp_path / "source"), str(tmp_path / "copy"))
    assert outcome.code == 1
    assert "are damaged" in outcome.out
    assert outcome.out.endswith("damaged\n")


def test_a_broker_starts_on_what_was_restored(cli: CommandLine, data_dir: Path, tmp_path: Path) -> None:
    cli.ok("backup", str(data_dir), str(tmp_path / "saved"))
    said = cli.ok("restore", str(tmp_path / "saved"), str(tmp_path / "restored"), "-o", "json").json()
    assert (said["records"], said["ok"]) == (20, True)
    with Broker(data_dir=str(tmp_path / "restored")) as broker:
        consumer = KafkaConsumer("kept", bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest")
        found = 0
        while found < 20:
            found += sum(map(len, consumer.poll(10_000).values()))
        consumer.close()
    assert "exists already" in cli("restore", str(tmp_path / "saved"), str(tmp_path / "restored")).failed_with(1)
    assert "is no backup" in cli("restore", str(tmp_path), str(tmp_path / "third")).failed_with(1)


def test_damage_is_an_exit_code(cli: CommandLine, data_dir: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy"
    assert "--active is deprecated" in cli.ok("backup", str(data_dir), str(target), "--active").err
    damage_a_frame(cli, target)
    outcome = cli("log", "verify", str(target))
    assert outcome.code == 1
    assert outcome.out.endswith("damaged\n")


def damage_a_frame(cli: CommandLine, target: Path) -> None:
    """The second of the topic's."""
    frames = cli.ok("log", "dump", str(target), "-t", "kept", "-c", "2", "-o", "json").json_lines()
    segment = sorted((target / "log").iterdir())[0]
    content = bytearray(segment.read_bytes())
    content[frames[1]["position"] + 500] ^= 0xFF
    segment.unlink()  # it may share its bytes with the original
    segment.write_bytes(content)


def test_no_data_directory(cli: CommandLine, tmp_path: Path) -> None:
    assert str(tmp_path) in cli("log", "verify", str(tmp_path)).failed_with(1)
