"""Recurring messages of a broker of one process, then of its directory with two processes, and with five."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from halfmoon.cli.asking import ask_about_schedules
from halfmoon.cli.brokers import Brokers
from halfmoon.hooks.schedules import ListSchedules
from halfmoon.kafka import Schedules
from halfmoon.server.workers.importing import import_directory
from halfmoon.testing import Broker
from tests.crash.test_kill9_schedules import PARTITIONS, TOPIC, stored
from tests.testing.test_broker import QUIET

CONFIG = {
    "log": {"segment_bytes": "1MiB", "low_disk_bytes": 0, "flush": "sync"},
    # However busy this machine is: nothing is missed.
    "plugins": {"schedule": {"missed_after": "1h"}},
}


def listed(broker: Broker) -> list[tuple[int, str, str]]:
    answer = ask_about_schedules(Brokers(broker.bootstrap_servers), ListSchedules())
    return [(each.partition, each.name, each.state) for each in answer.schedules or ()]


@pytest.mark.timeout(300)
def test_each_schedule_is_in_one_shard_and_each_time_once(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with Broker(data_dir=str(folder), config=CONFIG) as broker:
        admin = AdminClient({**broker.client_config(), **QUIET})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
        schedules = Schedules(Producer({**broker.client_config(), **QUIET}))
        for partition in range(PARTITIONS):
            schedules.create(TOPIC, f"s{partition}", "* * * * * *", b"v", partition=partition).result(30)
        schedules.create(TOPIC, "quiet", "0 0 1 1 *", b"v", partition=0).result(30)
        schedules.pause(TOPIC, "quiet", partition=0).result(30)
        names = listed(broker)
        assert len(names) == PARTITIONS + 1
        time.sleep(1)
    assert import_directory(folder, 16) is not None
    for workers in (2, 5):
        with Broker(data_dir=str(folder), workers=workers, config=CONFIG) as broker:
            assert listed(broker) == names
            time.sleep(2)
            found = stored(broker.bootstrap_servers)
            for times in found.values():
                assert times == list(range(times[0], times[-1] + 1)), "each once, in order, and none is missing"
