"""tools/spark_connectors.py: when it downloads, and that it never stops a run."""

from __future__ import annotations

from pathlib import Path

import pyspark
import pytest

from tools import spark_connectors


@pytest.fixture
def downloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was downloaded to a home that is empty; no JVM starts."""
    done: list[str] = []

    def download() -> None:
        jars = tmp_path / ".ivy2.5.2" / "jars"
        jars.mkdir(parents=True, exist_ok=True)
        for name in ("spark-sql-kafka-0-10", "spark-avro"):
            done.append(name)
            (jars / f"org.apache.spark_{name}_2.13-{pyspark.__version__}.jar").touch()

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(spark_connectors, "download", download)
    return done


def test_jars_are_downloaded_once(downloads: list[str], tmp_path: Path) -> None:
    assert [spark_connectors.main(), spark_connectors.main()] == [0, 0]
    assert downloads == ["spark-sql-kafka-0-10", "spark-avro"]
    next(tmp_path.glob(".ivy2*/jars/*avro*")).unlink()
    assert spark_connectors.main() == 0
    assert len(downloads) == 4


def test_a_run_goes_on_without_them(
    downloads: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise OSError("the network is down")

    monkeypatch.setattr(spark_connectors, "download", fail)
    assert spark_connectors.main() == 0
    assert capsys.readouterr().err == "halfmoon: Spark's connectors are not here: the network is down\n"
    assert downloads == []
