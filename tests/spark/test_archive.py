"""halfmoon.pipeline.jobs.archive: every record once, by topic and day, whatever was killed or compacted meanwhile."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from confluent_kafka import Producer

from halfmoon.pipeline import PipelineError
from halfmoon.pipeline.admin import Admin
from halfmoon.pipeline.files import HadoopFiles, LocalFiles
from halfmoon.pipeline.jobs import archive_files
from halfmoon.pipeline.jobs.archive import archive, read_archive
from halfmoon.pipeline.jobs.compaction import compact
from halfmoon.pipeline.queries import Queries

DAY_MS = 86_400_000
NEW_YEAR_MS = 1_767_225_600_000
"""2026-01-01, UTC."""


def produce(bootstrap: str, topic: str, numbers: range, at_ms: int = NEW_YEAR_MS, value: str = "%d") -> None:
    """Record n is of n seconds later, in partition n % 2."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for n in numbers:
        producer.produce(
            topic, (value % n).encode(), b"k", n % 2, timestamp=at_ms + 1000 * n, headers=[("TAGS", b"a"), ("x", None)]
        )
    assert producer.flush(20) == 0


def values(frame) -> list[int]:
    return sorted(int(bytes(row["value"])) for row in frame.select("value").collect())


def parquet_files(path: Path) -> list[Path]:
    return sorted(path.glob("topic=*/date=*/batch=*/*.parquet"))


def test_topics_by_day_and_what_is_new_is_added(spark, bootstrap, make_topic, tmp_path: Path) -> None:
    one, other, path = make_topic(2), make_topic(2), tmp_path / "archive"
    produce(bootstrap, one, range(10), NEW_YEAR_MS - 5_000)
    produce(bootstrap, other, range(4))
    done = archive(spark, [one, other], str(path), bootstrap=bootstrap)
    assert {topic: totals.rows for topic, totals in done.items()} == {one: 10, other: 4}
    assert values(read_archive(spark, str(path), one)) == list(range(10))
    rows = read_archive(spark, str(path)).groupBy("topic", "date").count().collect()
    assert {(row["topic"], row["date"]): row["count"] for row in rows} == {
        (one, date(2025, 12, 31)): 5,
        (one, date(2026, 1, 1)): 5,
        (other, date(2026, 1, 1)): 4,
    }
    assert archive(spark, [one, other], str(path), bootstrap=bootstrap)[one].rows == 0
    produce(bootstrap, one, range(10, 13))
    assert archive(spark, one, str(path), bootstrap=bootstrap)[one].rows == 3
    assert values(read_archive(spark, str(path), one)) == list(range(13))


def test_a_record_is_kept_as_it_is(spark, bootstrap, topic, tmp_path: Path) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    headers = [("TAGS", b"old"), ("TAGS", b"new"), ("KEYS", b"a"), ("none", None), ("raw", b"\xff\x00")]
    producer.produce(topic, None, None, timestamp=NEW_YEAR_MS + 123, headers=headers)
    producer.produce(topic, b"\xff", b"", timestamp=1)
    assert producer.flush(20) == 0
    archive(spark, topic, str(tmp_path), bootstrap=bootstrap)
    second, first = read_archive(spark, str(tmp_path), topic).orderBy("timestamp").collect()
    assert (first["key"], first["value"], first["tags"], first["keys"]) == (None, None, "new", "a")
    assert [(h["key"], h["value"] and bytes(h["value"])) for h in first["headers"]] == headers
    assert (second["key"], second["value"], second["headers"], second["date"]) == (b"", b"\xff", [], date(1970, 1, 1))
    assert (first["partition"], first["offset"], first["topic"]) == (0, 0, topic)


def test_timestamps_at_the_ends_of_time(spark, bootstrap, topic, tmp_path: Path) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for at in (1, NEW_YEAR_MS * 1000):  # the second one is in microseconds, as some producers write it
        producer.produce(topic, b"1", timestamp=at)
    assert producer.flush(10) == 0
    archive(spark, topic, str(tmp_path), bootstrap=bootstrap)
    rows = read_archive(spark, str(tmp_path)).selectExpr("unix_millis(timestamp) AS at", "date").collect()
    assert {row["at"]: row["date"] for row in rows} == {1: date(1970, 1, 1), NEW_YEAR_MS * 1000: date(9999, 12, 31)}


def test_days_are_utc_in_every_session(spark, bootstrap, make_topic, tmp_path: Path) -> None:
    topic = make_topic(2)
    produce(bootstrap, topic, range(1), NEW_YEAR_MS)
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        archive(spark, topic, str(tmp_path), bootstrap=bootstrap)
        frame = read_archive(spark, str(tmp_path), start=datetime(2026, 1, 1), end=datetime(2026, 1, 1, 0, 0, 1))
        assert values(frame) == [0]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert [path.name for path in tmp_path.glob("topic=*/date=*")] == ["date=2026-01-01"]


def test_a_range_of_time(spark, bootstrap, make_topic, tmp_path: Path) -> None:
    topic = make_topic(2)
    for number in range(3):
        produce(bootstrap, topic, range(10 * number, 10 * number + 10), NEW_YEAR_MS + number * DAY_MS)
    archive(spark, topic, str(tmp_path), bootstrap=bootstrap)
    start = datetime.fromtimestamp((NEW_YEAR_MS + 5_000) / 1000, UTC)
    end = datetime.fromtimestamp((NEW_YEAR_MS + DAY_MS + 12_000) / 1000, UTC)
    assert values(read_archive(spark, str(tmp_path), topic, start=start, end=end)) == [5, 6, 7, 8, 9, 10, 11]
    assert values(read_archive(spark, str(tmp_path), topic, start=datetime(2027, 1, 1))) == []


def test_values_with_a_schema_are_typed_and_the_schema_stays(spark, bootstrap, make_topic, tmp_path: Path) -> None:
    topic, path = make_topic(2), str(tmp_path)
    produce(bootstrap, topic, range(3), value='{"id": %d}')
    archive(spark, topic, path, bootstrap=bootstrap, schemas={topic: "id INT"})
    produce(bootstrap, topic, range(3, 4), value='{"id": %d}')
    archive(spark, topic, path, bootstrap=bootstrap)
    assert sorted(row["id"] for row in read_archive(spark, path, topic).select("data.id").collect()) == [0, 1, 2, 3]
    with pytest.raises(PipelineError, match="is archived with schema 'id int': it cannot become 'id string'"):
        archive(spark, topic, path, bootstrap=bootstrap, schemas={topic: "id STRING"})
    for schemas, said in (
        ({topic: "id STRNG"}, "Spark failed: .*UNSUPPORTED_DATATYPE"),
        ({"other": "id INT"}, "there is a schema for 'other', which is not among the topics"),
    ):
        with pytest.raises(PipelineError, match=said):
            archive(spark, topic, path, bootstrap=bootstrap, schemas=schemas)


def test_progress_is_shown_as_a_groups(spark, bootstrap, make_topic, tmp_path: Path) -> None:
    topic = make_topic(2)
    produce(bootstrap, topic, range(10))
    seen = []
    archive(spark, topic, str(tmp_path), bootstrap=bootstrap, group="archive-group", on_batch=seen.append)
    assert Admin(bootstrap).committed("archive-group") == {topic: {0: 5, 1: 5}}
    assert [(batch.query, batch.rows, batch.lag) for batch in seen] == [(topic, 10, 0)]


def test_a_batch_that_is_repeated_replaces_what_it_had_written(spark, bootstrap, make_topic, tmp_path: Path) -> None:
    topic, path = make_topic(2), tmp_path
    produce(bootstrap, topic, range(10), NEW_YEAR_MS - 5_000)
    archive(spark, topic, str(path), bootstrap=bootstrap)
    (path / "_checkpoint" / topic / "commits" / "0").unlink()
    (path / "_checkpoint" / topic / "commits" / ".0.crc").unlink(missing_ok=True)
    assert values(read_archive(spark, str(path), topic)) == [], "the batch is not finished"
    produce(bootstrap, topic, range(10, 12))
    archive(spark, topic, str(path), bootstrap=bootstrap)
    assert values(read_archive(spark, str(path), topic)) == list(range(12))


# -- compaction --------------------------------------------------------------------------------------------------------


@pytest.fixture
def many(spark, bootstrap, make_topic, tmp_path: Path) -> tuple[str, str]:
    """A topic of 40 records, archived in ten batches that were not compacted; and where."""
    topic, path = make_topic(2), str(tmp_path / "archive")
    produce(bootstrap, topic, range(40), NEW_YEAR_MS - 20_000)
    archive(spark, topic, path, bootstrap=bootstrap, batch_records=4, compacting=False)
    return topic, path


def test_small_files_become_few(spark, bootstrap, many) -> None:
    topic, path = many
    before = len(parquet_files(Path(path)))
    assert before == 20
    done = compact(spark, path, topic)
    assert (done.files_before, done.files_after) == (20, 2), "one for each day"
    assert len(parquet_files(Path(path))) == 2
    assert values(read_archive(spark, path, topic)) == list(range(40))
    plain = spark.read.parquet(path)
    assert (plain.count(), sorted(plain.columns)[-1]) == (40, "value"), "other readers see the same"
    assert compact(spark, path, topic).files_before == 0
    produce(bootstrap, topic, range(40, 41))
    archive(spark, topic, path, bootstrap=bootstrap)
    assert values(read_archive(spark, path, topic)) == list(range(41))


def test_large_files_stay(spark, many) -> None:
    topic, path = many
    assert compact(spark, path, topic, target_bytes=1).files_before == 0
    assert len(parquet_files(Path(path))) == 20


@pytest.mark.parametrize("moment", ["before it is complete", "before the old ones are removed"])
def test_a_compaction_that_was_killed(spark, many, moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, path = many
    with monkeypatch.context() as patched:
        patched.setattr(LocalFiles, "remove", _killed)
        with pytest.raises(KeyboardInterrupt):
            compact(spark, path, topic)
    merged = list(Path(path).glob("topic=*/date=*/batch=*-*"))
    assert len(merged) == 1
    if moment == "before it is complete":
        (merged[0] / "_SUCCESS").unlink()
    assert values(read_archive(spark, path, topic)) == list(range(40)), "nothing twice, nothing missing"
    compact(spark, path, topic)
    assert len(parquet_files(Path(path))) == 2
    assert values(read_archive(spark, path, topic)) == list(range(40))


def _killed(self: LocalFiles, path: str) -> None:
    raise KeyboardInterrupt


def test_what_was_written_is_counted_before_anything_is_removed(spark, many, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, path = many
    counts = iter([21, 20])
    monkeypatch.setattr("pyspark.sql.classic.dataframe.DataFrame.count", lambda self: next(counts))
    with pytest.raises(PipelineError, match="should hold 21 records and holds 20: nothing was changed"):
        compact(spark, path, topic)
    monkeypatch.undo()
    assert values(read_archive(spark, path, topic)) == list(range(40))


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_what_is_no_archive_and_what_is_not_in_it(spark, bootstrap, topic, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="there is no archive in"):
        read_archive(spark, str(tmp_path / "none"))
    archive(spark, topic, str(tmp_path), bootstrap=bootstrap)
    with pytest.raises(PipelineError, match=rf"has no topic 'other' \(it has: {topic}\)"):
        read_archive(spark, str(tmp_path), "other")
    assert read_archive(spark, str(tmp_path)).count() == 0
    manifest = tmp_path / "_archive.json"
    manifest.write_text(manifest.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(PipelineError, match=r"_archive.json cannot be understood: format 2"):
        read_archive(spark, str(tmp_path))


def test_one_process_writes_at_a_time(spark, bootstrap, topic, tmp_path: Path) -> None:
    with LocalFiles().locked(f"{tmp_path}/_lock"), pytest.raises(PipelineError, match="another process is writing to"):
        archive(spark, topic, str(tmp_path), bootstrap=bootstrap)
    archive(spark, topic, str(tmp_path), bootstrap=bootstrap)


def test_a_reader_that_knows_of_fewer_batches_than_were_merged() -> None:
    merged = archive_files.BatchFolder(0, 8, True, "m")
    raw = [archive_files.BatchFolder(number, number, False, str(number)) for number in range(12)]
    assert archive_files.live([merged, *raw], 6) == [merged]
    assert archive_files.live([merged, *raw], 10) == [merged, raw[9], raw[10]]


def test_an_archive_of_another_cluster(spark, bootstrap, topic, tmp_path: Path) -> None:
    archive_files.write_manifest(LocalFiles(), str(tmp_path), archive_files.Manifest("other"))
    with pytest.raises(PipelineError, match="is the archive of cluster other, and "):
        archive(spark, topic, str(tmp_path), bootstrap=bootstrap)


def test_a_topic_that_fails_does_not_stop_the_others(spark, bootstrap, make_topic, tmp_path, monkeypatch) -> None:
    broken, whole = make_topic(2), make_topic(2)
    produce(bootstrap, broken, range(3))
    produce(bootstrap, whole, range(3))
    started = Queries.start

    def start(self, name, writer, checkpoint, every=None):
        if name == broken:
            writer = writer.foreachBatch(_fail)
        started(self, name, writer, checkpoint, every)

    monkeypatch.setattr(Queries, "start", start)
    with pytest.raises(PipelineError, match=f"{broken}: "):
        archive(spark, [broken, whole], str(tmp_path), bootstrap=bootstrap)
    monkeypatch.undo()
    assert values(read_archive(spark, str(tmp_path), whole)) == [0, 1, 2]
    archive(spark, [broken, whole], str(tmp_path), bootstrap=bootstrap)
    assert values(read_archive(spark, str(tmp_path), broken)) == [0, 1, 2]


def _fail(_rows: object, _number: int) -> None:
    raise RuntimeError("the disk is full")


# -- the files' two ways -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["local", "hadoop"])
def test_file_systems(spark, tmp_path: Path, way: str) -> None:
    base = str(tmp_path) if way == "local" else tmp_path.as_uri()
    files = LocalFiles() if way == "local" else HadoopFiles(spark, base)
    (tmp_path / "sub" / "deep").mkdir(parents=True)
    (tmp_path / "a.txt").write_text("12345")
    assert [(e.name, e.is_directory) for e in files.entries(base)] == [("a.txt", False), ("sub", True)]
    assert files.entries(base)[0].size == 5
    assert files.entries(f"{base}/missing") == []
    assert files.read(f"{base}/missing") is None
    for text in ("first", "second ü"):
        files.write(f"{base}/state.json", text)
        assert files.read(f"{base}/state.json") == text
    files.remove(f"{base}/sub")
    files.remove(f"{base}/a.txt")
    files.remove(f"{base}/missing")
    assert [e.name for e in files.entries(base) if not e.name.startswith(".")] == ["state.json"]
