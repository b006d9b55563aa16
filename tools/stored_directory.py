"""Keep what a version of Halfmoon stores, so that every later version is tried on it: an archive for the tests.

    .venv/bin/python tools/stored_directory.py VERSION [--python PYTHON] [--checkout DIR]

It starts the broker of a checkout (this one without options), fills it by what clients send, and ends it: once by
SIGTERM and once by SIGKILL. Both data directories, and what is in them, go to
tests/golden/stored_data/VERSION.tar.xz, which tests/server/test_stored_versions.py opens. Run it at the end of each
version, before its number rises.

Nothing here imports the broker, and clients speak Kafka's protocol alone: so it runs with any version.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka.admin
from confluent_kafka import (
    AcknowledgeType,
    Consumer,
    ConsumerGroupTopicPartitions,
    Producer,
    ShareConsumer,
    TopicPartition,
)

kafka_admin: Any = confluent_kafka.admin  # it exports its names without saying so
ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "tests/golden/stored_data"
CONFIG = """\
log: {segment_bytes: 256KiB, retention: null, low_disk_bytes: 0}
plugins:
  delay: {max_delay: 36500d}
  transaction: {timeout: 36500d, max_age: 36500d}
"""
"""Nothing goes by time, and half messages stay open, however old the directory is when it is opened."""

DUE_S = 90
"""A delay that outlasts the making of the directory, and has passed when a test opens it."""
FAR_MS = 4_102_444_800_000
"""2100: a delay that outlasts the tests."""
DEADLINE_S = 60

Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("version")
    parser.add_argument("--python", default=sys.executable, help="Python that has the checkout's dependencies.")
    parser.add_argument("--checkout", type=Path, default=ROOT)
    given = parser.parse_args()
    target = FOLDER / f"{given.version}.tar.xz"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "broker.yaml").write_text(CONFIG)
        for way, number in (("clean", signal.SIGTERM), ("killed", signal.SIGKILL)):
            expected = _make(folder, way, number, given.python, given.checkout)
            (folder / f"{way}.json").write_text(json.dumps(expected, indent=1, sort_keys=True))
        with tarfile.open(target, "w:xz") as archive:
            for path in sorted(folder.iterdir()):
                archive.add(path, path.name, filter=_without_spares)
    print(f"{target.relative_to(ROOT)}: {target.stat().st_size} bytes")


def _without_spares(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return None if member.name.endswith("/log/spare") or member.name.endswith("lock") else member


def _make(folder: Path, way: str, number: signal.Signals, python: str, checkout: Path) -> dict[str, Any]:
    """A data directory `way` in the folder; what is in it."""
    with _serving(folder, way, python, checkout) as (process, address):
        begun = time.monotonic()
        expected = fill(address)
        process.send_signal(number)
        process.wait(timeout=60)
        if time.monotonic() - begun > DUE_S - 10:
            raise SystemExit(
                "it took so long that delayed messages are delivered: try again, on a machine that is idle"
            )
    return expected


@contextmanager
def _serving(folder: Path, way: str, python: str, checkout: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [python, "-m", "halfmoon", "serve", "--config", str(folder / "broker.yaml")]
    with subprocess.Popen(
        [*command, "--data-dir", str(folder / way), "--kafka", "127.0.0.1:0"],
        env={**os.environ, "PYTHONPATH": str(checkout)}, cwd=folder, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            ready = re.match(r"ready kafka=(\S+) ", process.stdout.readline())
            if ready is None:
                raise SystemExit("the broker did not start")
            yield process, ready[1]
        finally:
            process.kill()


def fill(address: str) -> dict[str, Any]:
    """Something of everything; returns what a test shall find."""
    admin = kafka_admin.AdminClient({"bootstrap.servers": address})
    topics = {
        "orders": (2, {"retention.ms": "-1"}),
        "state": (1, {"cleanup.policy": "compact"}),
        "later": (1, {}),
        "jobs": (1, {}),
        "payments": (1, {}),
        "retry.billing": (1, {}),
        "halfmoon.transactions": (1, {}),
    }
    _create(admin, topics)
    _create(admin, {"orders.paid": (2, {"halfmoon.view.source": "orders", "halfmoon.view.tag": "paid"})})
    (node,) = admin.list_topics(timeout=DEADLINE_S).brokers
    resource = kafka_admin.ConfigResource(kafka_admin.ResourceType.BROKER, str(node))
    resource.add_incremental_config(
        kafka_admin.ConfigEntry("num.partitions", "7", incremental_operation=kafka_admin.AlterConfigOpType.SET)
    )
    admin.incremental_alter_configs([resource])[resource].result(DEADLINE_S)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        rows = [
            ("orders", index % 2, f"{codec} {index}", {"TAGS": "paid" if index < 2 else "open"}) for index in range(4)
        ]
        _send(address, rows, compression=codec)
    _send(address, [("state", 0, f"{index}", {}) for index in range(10)], key=lambda row: f"key {int(row[2]) % 3}")
    due_ms = int(time.time() * 1000) + DUE_S * 1000
    _send(address, [("later", 0, "due", {"TIMER_DELIVER_MS": str(due_ms)})])
    _send(address, [("later", 0, "far", {"TIMER_DELIVER_MS": str(FAR_MS)})])
    _send(address, [("retry.billing", 0, "again", {"RETRY_OF": "orders/0/1", "TIMER_DELIVER_MS": str(FAR_MS)})])
    _send(address, [("retry.billing", 0, "dead", {"RECONSUME_TIME": "16"})])
    for name in ("open 1", "open 2", "committed", "rolled back"):
        _send(address, [("later", 0, f"half {name}", {"TRAN_MSG": "true", "PGROUP": "shop", "UNIQ_KEY": name})])
    for name, state in (("committed", "commit"), ("rolled back", "rollback")):
        _send(address, [("halfmoon.transactions", 0, "", {"PGROUP": "shop", "UNIQ_KEY": name, "TRAN_STATE": state})])
    _transactions(address)
    _send(address, [("jobs", 0, f"job {index}", {}) for index in range(6)])
    shared = _share(address)
    committed = {("orders", 0): 3, ("orders", 1): 2}
    offsets = [TopicPartition(topic, index, offset, "said") for (topic, index), offset in committed.items()]
    group = ConsumerGroupTopicPartitions("billing", offsets)
    admin.alter_consumer_group_offsets([group])["billing"].result(DEADLINE_S)
    security = _security(admin)
    _until_view_has(address, "orders.paid", 10)
    found = admin.list_topics(timeout=DEADLINE_S).topics
    return {
        "topics": {
            name: {"partitions": len(topic.partitions), "records": read(address, name, len(topic.partitions))}
            for name, topic in sorted(found.items())
        },
        "configs": {name: configs for name, (_, configs) in topics.items() if configs},
        "groups": {"billing": [[topic, index, offset] for (topic, index), offset in committed.items()]},
        "share": {"workers": shared},
        "delayed": {"due": ["due"], "far": 2},
        "half": ["open 1", "open 2"],
        "view": ["orders", "orders.paid"],
        "security": security,
    }


def _security(admin: Any) -> dict[str, Any]:
    """A user with a password, and rules; how a test finds them."""
    mechanism = kafka_admin.ScramMechanism.SCRAM_SHA_512
    credential = kafka_admin.ScramCredentialInfo(mechanism, 4096)
    user = kafka_admin.UserScramCredentialUpsertion("alice", credential, b"of the stored directory")
    admin.alter_user_scram_credentials([user])["alice"].result(DEADLINE_S)
    rules = [
        kafka_admin.AclBinding(
            kafka_admin.ResourceType.TOPIC, name, getattr(kafka_admin.ResourcePatternType, pattern), "User:alice", "*",
            getattr(kafka_admin.AclOperation, operation), kafka_admin.AclPermissionType.ALLOW,
        )
        for name, pattern, operation in (("orders", "LITERAL", "READ"), ("pay", "PREFIXED", "WRITE"))
    ]  # fmt: skip
    for future in admin.create_acls(rules).values():
        future.result(DEADLINE_S)
    rows = [[rule.name, rule.resource_pattern_type.name, rule.operation.name] for rule in rules]
    return {"user": "alice", "password": "of the stored directory", "rules": rows}


def _create(admin: Any, topics: dict[str, tuple[int, dict[str, str]]]) -> None:
    new = [kafka_admin.NewTopic(name, count, 1, config=configs) for name, (count, configs) in topics.items()]
    for future in admin.create_topics(new).values():
        future.result(DEADLINE_S)


def _send(
    address: str, rows: list[tuple[str, int, str, dict[str, str]]], key: Any = None, compression: str = "none"
) -> None:
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": address, "compression.type": compression, "linger.ms": 20})
    for row in rows:
        topic, partition, value, headers = row
        producer.produce(
            topic, value, partition=partition, key=None if key is None else key(row), headers=list(headers.items()),
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )  # fmt: skip
    if producer.flush(DEADLINE_S) or failed:
        raise SystemExit(f"not sent: {failed}")


def _transactions(address: str) -> None:
    for name, ends in (("committed", Producer.commit_transaction), ("aborted", Producer.abort_transaction)):
        producer = Producer({"bootstrap.servers": address, "transactional.id": name})
        producer.init_transactions(DEADLINE_S)
        producer.begin_transaction()
        for index in range(3):
            producer.produce("payments", f"{name} {index}", partition=0)
        producer.flush(DEADLINE_S)
        ends(producer, DEADLINE_S)


def _share(address: str) -> list[str]:
    """A share group that has accepted two records and rejected one; the values that it is still to get."""
    admin = kafka_admin.AdminClient({"bootstrap.servers": address})
    resource = kafka_admin.ConfigResource(kafka_admin.ResourceType.GROUP, "workers")
    entry = kafka_admin.ConfigEntry(
        "share.auto.offset.reset", "earliest", incremental_operation=kafka_admin.AlterConfigOpType.SET
    )
    resource.add_incremental_config(entry)
    admin.incremental_alter_configs([resource])[resource].result(DEADLINE_S)
    consumer = share_consumer(address)
    answers = {"job 0": AcknowledgeType.ACCEPT, "job 1": AcknowledgeType.REJECT, "job 3": AcknowledgeType.ACCEPT}
    left = [f"job {index}" for index in range(6)]
    deadline = time.monotonic() + DEADLINE_S
    seen: set[str] = set()
    while len(seen) < 6:
        if time.monotonic() > deadline:
            raise SystemExit(f"the share group got {seen}")
        found = [message for message in consumer.poll(1.0) if message.error() is None]
        for message in found:
            value = (message.value() or b"").decode()
            seen.add(value)
            consumer.acknowledge(message, answers.get(value, AcknowledgeType.RELEASE))
        if found:
            consumer.commit_sync(DEADLINE_S)
    consumer.close()
    return [value for value in left if value not in answers]


def share_consumer(address: str) -> ShareConsumer:
    settings = {"bootstrap.servers": address, "group.id": "workers", "share.acknowledgement.mode": "explicit"}
    consumer = ShareConsumer(settings)
    consumer.subscribe(["jobs"])
    return consumer


def _until_view_has(address: str, view: str, count: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while sum(map(len, read(address, view, 2))) < count:
        if time.monotonic() > deadline:
            raise SystemExit(f"{view} is not filled")
        time.sleep(0.1)


def read(address: str, topic: str, partitions: int) -> list[list[Row]]:
    """The committed records of a topic, by partition."""
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "reader", "enable.auto.commit": False, "enable.partition.eof": True,
         "isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    )  # fmt: skip
    rows: list[list[Row]] = [[] for _ in range(partitions)]
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    ended: set[int] = set()
    while len(ended) < partitions:
        message: Any = consumer.poll(DEADLINE_S)
        if message is None:
            raise SystemExit(f"{topic} has no end")
        if message.error() is not None:
            ended.add(message.partition())
            continue
        rows[message.partition()].append(
            {
                "offset": message.offset(),
                "key": _text(message.key()),
                "value": _text(message.value()),
                "headers": [[name, _text(value)] for name, value in message.headers() or []],
            }
        )
    consumer.close()
    return rows


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("latin1")


if __name__ == "__main__":
    main()
