"""kill −9 of a pipeline's driver and of the broker, again and again: what it has made in the end is exactly the truth.

An archive that is being compacted and the report of success rates run in one driver while records come in; the driver
is killed ten times (twice, in the normal run), the broker half as often. A replay is killed three times (once).
HALFMOON_TEST_SEED, which is printed, decides when and how; HALFMOON_TEST_KILLS is how often in the normal run.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from pyarrow import parquet
from pyspark.sql import functions as F  # noqa: N812

from halfmoon.pipeline.admin import Admin
from halfmoon.pipeline.checkpoint import watermark_of
from halfmoon.pipeline.files import LocalFiles
from halfmoon.pipeline.jobs.archive import archive, read_archive
from halfmoon.pipeline.jobs.compaction import compact
from halfmoon.pipeline.jobs.replay import MARK
from halfmoon.pipeline.jobs.report_kinds import SuccessRate
from halfmoon.pipeline.jobs.reporting import report_stream
from halfmoon.pipeline.orders import Record, Shop
from tests.chance import seeded
from tests.crash.load import QUICK
from tests.crash.serving import Serving, wait_until
from tests.spark.driver import Driver
from tests.spark.test_success_rate import PARTITIONS, RULES, START_MS, TRUTH_RULES, produce, said_by

TOPIC = "orders"
SHOP = Shop(23, 6_000, START_MS, hours=36, outage_after_h=20, closing=True)
IN_FLIGHT = 30
"""Few: what a partition is ahead of another while the broker comes back must stay far below the rules' watermark."""
LAST = 500
"""Records that come after the last kill, in any case."""
DEADLINE_S = 480.0
ROUND_S = 9.0
"""What a kill takes, on average, until all goes on: records are sent so that they last."""

# What the driver says, and how long after that (s, at most) it is killed.
MOMENTS = {"started": 6.0, "batch": 1.5, "compacting": 1.0, "removing": 0.1, "publishing": 1.0}

Place = tuple[int, int]
"""Partition and offset."""
Content = tuple[object, ...]
"""Key, value, headers, timestamp in ms."""


class Sales(threading.Thread):
    """Sends records, each second a share of what is left, so that some come up to the last kill; told to, the rest."""

    def __init__(self, servers: str, records: list[Record], share_per_s: float) -> None:
        super().__init__(name="sales", daemon=True)
        self.sent = self.acknowledged = 0
        self.errors: list[object] = []
        self.rest, self.stopping = threading.Event(), threading.Event()
        """Set by whoever wants the rest sent at once, or nothing more at all."""
        self._records, self._share_per_s = records, share_per_s
        settings = {"enable.idempotence": True, "linger.ms": 1, "message.timeout.ms": 120_000, **QUICK}
        self._producer = Producer({"bootstrap.servers": servers, "error_cb": self._failed, **settings})

    def run(self) -> None:
        due, looked_s = 0.0, time.monotonic()
        while self.sent < len(self._records) and not self.stopping.is_set():
            self._producer.poll(0.005)
            now_s, left = time.monotonic(), len(self._records) - self.sent
            due = min(due + (now_s - looked_s) * left * self._share_per_s, IN_FLIGHT)
            looked_s = now_s
            if self.rest.is_set():
                due = left
            while due >= 1 and self.sent - self.acknowledged < IN_FLIGHT and (self.rest.is_set() or left > LAST):
                self._send(self._records[self.sent])
                due, left = due - 1, left - 1
        if self.stopping.is_set():
            self._producer.purge()
        if self._producer.flush(DEADLINE_S):
            self.errors.append("not everything could be sent in the end")

    def end(self) -> None:
        """Whatever is left to be sent."""
        self.stopping.set()
        self.join(DEADLINE_S)

    def _send(self, record: Record) -> None:
        place, headers = record.partition(PARTITIONS), list(record.headers)
        self._producer.produce(
            TOPIC, record.value, record.key, place, self._ended, timestamp=record.timestamp_ms, headers=headers
        )
        self.sent += 1

    def _ended(self, error: KafkaError | None, message: Message) -> None:
        self.acknowledged += 1
        if error is not None:
            self.errors.append(error)

    def _failed(self, error: KafkaError) -> None:
        if error.fatal():
            self.errors.append(error)


class Supervisor:
    """Keeps a driver running, as an init system does, and waits for what it says."""

    def __init__(self, driver: Driver, dice: random.Random) -> None:
        self.driver, self.dice = driver, dice

    def hear(self, *words: str) -> None:
        """Until it has said all of these from now on."""
        at, deadline_s = len(self.driver.lines), time.monotonic() + DEADLINE_S
        missing = set(words)
        while missing:
            assert time.monotonic() < deadline_s, (missing, self.driver.lines[-20:], self.driver.log())
            if at < len(self.driver.lines):
                missing -= {word for word in missing if word in self.driver.lines[at]}
                at += 1
            elif self.driver.code() is not None:
                pytest.fail(f"the driver has ended by itself: {self.driver.lines[-3:]} {self.driver.log()}")
            else:
                time.sleep(0.002)

    def kill(self, moment: str) -> bool:
        """Kill it within some time of what it says; whether nothing of it runs any more."""
        if moment == "started":
            # Not from that word on: from a new start on, until a little after the word.
            self.driver.kill(alone=self.dice.random() < 0.5)
            self.driver.start()
        else:
            self.hear(moment)
        time.sleep(self.dice.uniform(0, MOMENTS[moment]))
        alone, wait = self.dice.random() < 0.5, self.dice.random() < 0.5
        said = self.driver.lines[-1:]
        self.driver.kill(alone=alone)
        print(f"{time.strftime('%X')} driver killed: {moment} {alone=} {wait=} {said}")
        if wait or not alone:
            self.driver.wait_for_the_end()
        return wait or not alone


def deck(dice: random.Random) -> Iterator[str]:
    """Moments, each before any comes again."""
    while True:
        yield from dice.sample(sorted(MOMENTS), len(MOMENTS))


@pytest.fixture
def dice() -> random.Random:
    return seeded()


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(int(os.environ.get("HALFMOON_TEST_KILLS", 2)), marks=pytest.mark.timeout(1_500), id="some"),
        pytest.param(10, marks=[pytest.mark.interop, pytest.mark.timeout(1_800)], id="many"),
    ],
)
def test_an_archive_and_a_report_survive_their_driver_and_the_broker(spark, tmp_path: Path, dice, kills: int) -> None:
    archived, out = tmp_path / "archive", tmp_path / "out"
    rounds = [*["driver"] * (kills - 1), *["broker"] * ((kills + 1) // 2)]
    dice.shuffle(rounds)
    serving = Serving(tmp_path)
    sales = Sales(serving.address, list(SHOP.records()), 1.5 / (ROUND_S * len(rounds)))
    driver = Driver(
        tmp_path / "driver", "stream", jars=spark.conf.get("spark.jars"), bootstrap=serving.address, topic=TOPIC,
        archived=str(archived), out=str(out),
    )  # fmt: skip
    supervisor, moments = Supervisor(driver, dice), deck(dice)
    with ExitStack() as ending:
        ending.callback(serving.stop)
        serving.start()
        Admin(serving.address).ensure_topic(TOPIC, PARTITIONS)
        ending.callback(sales.end)
        sales.start()
        ending.callback(driver.end)
        driver.start()
        supervisor.hear("archive batch", "report batch")
        for victim in rounds:
            if victim == "broker":
                # In the middle of a batch; or, if the driver was just killed, of its start.
                if dice.random() < 0.5:
                    supervisor.hear("batch")
                time.sleep(dice.uniform(0, 3))
                bounce(serving, dice)
                supervisor.hear("archive batch", "report batch")
            else:
                if supervisor.kill(next(moments)):
                    check_meanwhile(spark, archived, out)
                driver.start()
        supervisor.kill(next(moments))
        driver.end()
        print(summary(driver), f"{sales.sent=}")
        sales.rest.set()
        sales.join(DEADLINE_S)
        assert not sales.is_alive()
        assert not sales.errors
        check_archive(spark, serving.address, archived)
        check_report(spark, serving.address, out)


def bounce(serving: Serving, dice: random.Random) -> None:
    serving.kill()
    away_s = dice.choice((0.0, dice.uniform(0, 5)))
    print(f"{time.strftime('%X')} broker killed, and away for {away_s:.1f} s")
    time.sleep(away_s)
    serving.start()


def summary(driver: Driver) -> dict[str, int]:
    """How often it has said what."""
    said = [" ".join(word for word in line.split() if not word.isdigit()) for line in driver.lines]
    return {line: said.count(line) for line in dict.fromkeys(said)}


def check_meanwhile(spark, archived: Path, out: Path) -> None:
    """What holds after any kill: the archive has a beginning of each partition, once; what was published is whole."""
    count, places = F.count("*").alias("count"), F.count_distinct("offset").alias("places")
    rows = read_archive(spark, str(archived)).groupBy("partition").agg(count, places, F.max("offset").alias("last"))
    for row in rows.collect():
        assert row["count"] == row["places"] == row["last"] + 1, row
    check_published(out)


def check_archive(spark, address: str, archived: Path) -> None:
    archive(spark, TOPIC, str(archived), bootstrap=address)
    rows = read_archive(spark, str(archived), TOPIC).withColumn("at_ms", F.unix_millis("timestamp")).collect()
    found = {
        (row["partition"], row["offset"]): (
            bytes(row["key"]),
            bytes(row["value"]),
            tuple((header["key"], bytes(header["value"])) for header in row["headers"]),
            row["at_ms"],
        )
        for row in rows
    }
    there = consumed(address, TOPIC)
    assert there == sold()
    assert len(rows) == len(found)
    assert found == there
    # For readers that know nothing of how it is compacted, too.
    assert spark.read.parquet(str(archived)).count() == len(there)


def check_report(spark, address: str, out: Path) -> None:
    published = report_stream(spark, SuccessRate(TOPIC, rules=RULES), out, bootstrap=address)
    as_of_ms = watermark_of(out / "_success-rate" / "checkpoint")
    reports = {report.name: report for report in published.reports}
    said = said_by(reports)
    assert said == SHOP.truth(**TRUTH_RULES, as_of_ms=as_of_ms) == replace(SHOP, closing=False).truth(**TRUTH_RULES)
    assert min(len(said.late), len(said.missing), len(said.paid_twice)) > 0
    check_published(out)
    for report in published.reports:
        table = parquet.read_table(out / "tables" / f"{report.name}.parquet").to_pylist()
        assert [tuple(row.values()) for row in table] == [tuple(row) for row in report.rows]


def check_published(out: Path) -> None:
    """All files are whole."""
    for table in out.glob("tables/*.parquet"):
        parquet.read_table(table)
    for pattern, end in {"*.html": b"</html>\n", "charts/*.png": b"IEND\xaeB`\x82", "tables/*.csv": b"\n"}.items():
        for path in out.glob(pattern):
            assert path.read_bytes().endswith(end), path


def consumed(address: str, topic: str) -> dict[Place, Content]:
    """All that a consumer reads from a topic."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "check", "enable.auto.commit": False, **QUICK})
    ends = Admin(address).ends(topic)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
    found: dict[Place, Content] = {}
    deadline_s = time.monotonic() + DEADLINE_S
    while len(found) < sum(ends.values()):
        assert time.monotonic() < deadline_s, (len(found), ends)
        for message in consumer.consume(1_000, 1):
            assert message.error() is None
            content = message.key(), message.value(), tuple(message.headers() or ()), message.timestamp()[1]
            found[message.partition(), message.offset()] = content
    consumer.close()
    return found


def sold() -> dict[Place, Content]:
    """What the topic must hold."""
    found: dict[Place, Content] = {}
    ends = [0] * PARTITIONS
    for record in SHOP.records():
        partition = record.partition(PARTITIONS)
        found[partition, ends[partition]] = record.key, record.value, record.headers, record.timestamp_ms
        ends[partition] += 1
    return found


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(1, marks=pytest.mark.timeout(1_000), id="once"),
        pytest.param(3, marks=[pytest.mark.timeout(1_200), pytest.mark.interop], id="thrice"),
    ],
)
def test_a_replay_survives_its_driver(spark, bootstrap, make_topic, tmp_path: Path, dice, kills: int) -> None:
    topic, target, archived = make_topic(PARTITIONS), make_topic(PARTITIONS), str(tmp_path / "archive")
    produce(bootstrap, topic, SHOP.records())
    archive(spark, topic, archived, bootstrap=bootstrap)
    driver = Driver(
        tmp_path / "driver", "replay", jars=spark.conf.get("spark.jars"), bootstrap=bootstrap, topic=topic,
        archived=archived, target=target, rate=3_000,
    )  # fmt: skip
    admin, all_of_it = Admin(bootstrap), len(sold())
    try:
        for further in (*sorted(dice.sample(range(all_of_it), kills)), None):
            driver.start()
            if further is None:
                wait_until(lambda: driver.code() is not None, DEADLINE_S, "the replay ends")
                break
            deadline_s = time.monotonic() + DEADLINE_S
            while sum(admin.ends(target).values()) < further:
                assert time.monotonic() < deadline_s, driver.log()
                time.sleep(0.01)  # It is asked within this process, where the broker runs.
            alone = dice.random() < 0.5
            print(f"{time.strftime('%X')} driver killed: {alone=} {further=} {driver.lines[-1:]}")
            driver.kill(alone=alone)
    finally:
        driver.end()
    assert driver.lines[-1].startswith("done "), driver.log()
    source, copy = consumed(bootstrap, topic), consumed(bootstrap, target)
    for (partition, offset), (key, value, headers, at_ms) in copy.items():
        *kept, (name, mark) = headers
        assert (key, value, tuple(kept), at_ms) == source[partition, offset]
        assert name == MARK
        assert mark.endswith(f"/{topic}/{partition}/{offset}".encode())
    assert len(copy) == len(source) == all_of_it


@pytest.mark.parametrize("while_it", ["writes", "removes"])
def test_what_a_killed_compaction_leaves_is_removed(
    spark, bootstrap, make_topic, tmp_path: Path, monkeypatch, while_it: str
) -> None:
    """Killed after it has moved its last file and before `_SUCCESS`; or in the removal of what an earlier compaction
    had made. When compaction comes again, there are more batches: it does not write to that folder any more."""
    topic, path = make_topic(PARTITIONS), str(tmp_path / "archive")
    records = list(replace(SHOP, orders=30, hours=0.1).records())

    def killed(_files: LocalFiles, _path: str) -> None:
        raise KeyboardInterrupt

    def archived_and_merged() -> None:
        """In a folder that is complete; and killed before anything is removed."""
        produce(bootstrap, topic, records)
        archive(spark, topic, path, bootstrap=bootstrap, batch_records=20, compacting=False)
        with monkeypatch.context() as patched:
            patched.setattr(LocalFiles, "remove", killed)
            with pytest.raises(KeyboardInterrupt):
                compact(spark, path, topic, fewest_files=2)

    archived_and_merged()
    (success,) = Path(path).glob("topic=*/date=*/batch=*-*/_SUCCESS")
    if while_it == "removes":
        compact(spark, path, topic)
        archived_and_merged()
    success.unlink()
    produce(bootstrap, topic, records)
    archive(spark, topic, path, bootstrap=bootstrap)
    count = len(records) * (3 if while_it == "removes" else 2)
    assert read_archive(spark, path).count() == count
    assert spark.read.parquet(path).count() == count
