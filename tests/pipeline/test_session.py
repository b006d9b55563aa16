"""halfmoon.pipeline.session, the parts that need no JVM (tests/spark uses the rest)."""

from __future__ import annotations

import pytest

from halfmoon.pipeline import PipelineError, connector_coordinates
from halfmoon.pipeline.session import check_java, parse_java_version


@pytest.mark.parametrize(
    ("version", "coordinates"),
    [
        ("4.0.0", "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"),
        ("4.1.0.dev2", "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.0"),
        ("3.5.6", "org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.6"),
    ],
)
def test_the_connector_is_of_sparks_version_and_scala(version: str, coordinates: str) -> None:
    assert connector_coordinates(version) == coordinates


def test_an_unknown_version_is_refused() -> None:
    with pytest.raises(PipelineError, match="packages="):
        connector_coordinates("main")


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_412"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("command not found", None),
    ],
)
def test_java_versions_are_read(text: str, major: int | None) -> None:
    assert parse_java_version(text) == major


def test_a_missing_java_is_said_in_one_line(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(PipelineError, match="needs Java 17 or newer"):
        check_java("4.0.0")


def test_an_old_java_is_said_in_one_line(tmp_path, monkeypatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(PipelineError, match=r"Java 11 is too old: pyspark 4\.0\.0 needs Java 17"):
        check_java("4.0.0")
    check_java("3.5.1")
