"""tools/class_archive.py: when it makes an archive, and that it never stops a run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests import java_options
from tools import class_archive


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was made, while Java and pyspark are `now`; no JVM starts."""
    found: list[str] = []

    def make() -> None:
        found.append(class_archive.identity())
        class_archive.ARCHIVE.write_text("classes")

    monkeypatch.setattr(class_archive, "ARCHIVE", tmp_path / "spark.jsa")
    monkeypatch.setattr(class_archive, "STAMP", tmp_path / "spark.jsa.of")
    monkeypatch.setattr(class_archive, "identity", lambda: "now")
    monkeypatch.setattr(class_archive, "make", make)
    return found


def test_it_is_made_once_and_after_an_upgrade(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert [class_archive.main(), class_archive.main()] == [0, 0]
    assert made == ["now"]
    monkeypatch.setattr(class_archive, "identity", lambda: "later")
    assert [class_archive.main(), class_archive.main()] == [0, 0]
    assert made == ["now", "later"]
    class_archive.ARCHIVE.unlink()
    assert class_archive.main() == 0
    assert made == ["now", "later", "later"]


def test_a_run_goes_on_without_it(
    made: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise OSError("the disk is full")

    assert class_archive.main() == 0
    monkeypatch.setattr(class_archive, "identity", lambda: "later")
    monkeypatch.setattr(class_archive, "make", fail)
    assert class_archive.main() == 0
    said = capsys.readouterr().err
    assert said == "halfmoon: the tests' JVMs start without an archive of classes: the disk is full\n"
    assert not class_archive.ARCHIVE.exists(), "of the Java before"


def test_a_jvm_that_cannot_use_it_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs read what others print."""
    monkeypatch.setattr(java_options, "_ARCHIVE", tmp_path / "spark.jsa")
    assert "SharedArchiveFile" not in java_options.options()
    (tmp_path / "spark.jsa").write_text("no archive")
    command = [class_archive.java(), *java_options.options().split(), "-version"]
    assert f"-XX:SharedArchiveFile={tmp_path}/spark.jsa" in command
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == ""
    assert all("shar" not in line or " VM " in line for line in done.stderr.splitlines()), done.stderr
