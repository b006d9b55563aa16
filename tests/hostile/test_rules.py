"""Access rules: more than anybody has, changed while clients produce, and while the broker is killed."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from halfmoon.server.admin_socket import path_of
from tests.fuzz.peer import ClosedError
from tests.fuzz.process import BrokerProcess, eventually
from tests.hostile.secured import LISTENER, Administrator, LoggedIn, Start
from tests.interop.access.world import build
from tests.security.acting import batch

REFUSED = 29
pytestmark = pytest.mark.timeout(180)  # of a machine that does other things, too
LOG = {"segment_bytes": "16MiB", "flush": "sync"}
RULES = 100_000


def produce(client: LoggedIn, topic: str, value: bytes = b"v") -> int:
    data = [{"name": topic, "partition_data": [{"index": 0, "records": batch([(value, {})])}]}]
    said = {"transactional_id": None, "acks": -1, "timeout_ms": 30_000, "topic_data": data}
    (found,) = client.ask(0, 9, 20, **build(0, said)).responses
    return int(found.partition_responses[0].error_code)


def test_a_hundred_thousand_rules(hostile: Start) -> None:
    """Half of them are about names that begin so: all of them are looked at once for each new question."""
    found = hostile()
    before = found.broker.anonymous_bytes()
    longest_s = 0.0
    with found.watched(grown_bytes=400 << 20):
        for part in range(RULES // 1_000):
            rights = [f"read topic t{part}-{number}{'*' * (number % 2)}" for number in range(1_000)]
            begun = found.broker.cpu_s()
            found.admin.allow(f"user-{part % 10}", *rights)
            longest_s = max(longest_s, found.broker.cpu_s() - begun)
    taken = found.broker.anonymous_bytes() - before
    assert taken < 128 << 20, f"{taken >> 20} MiB"
    assert longest_s < 1
    assert len(found.admin.rules_of("user-3")) == RULES / 10
    with found.watched(), found.logged_in("witness") as client:
        for number in range(200):
            (told,) = client.ask(3, 7, 20, **build(3, {"topics": [{"name": f"no-{number}"}]})).topics
            assert told.error_code == REFUSED


def test_who_is_denied_produces_one_batch_more_at_most(hostile: Start) -> None:
    """That one whose request was there before the rule."""
    found = hostile(tls=False)
    found.admin.user("alice")
    found.admin.allow("alice", "write topic orders")
    found.admin.topic("orders")
    taken, over = [0], threading.Event()

    def run() -> None:
        with found.logged_in("alice") as client:
            while produce(client, "orders") == 0:
                taken[0] += 1
            over.set()

    with found.watched():
        producing = threading.Thread(target=run)
        producing.start()
        eventually(lambda: taken[0] > 100)
        found.admin.allow("alice", "deny write topic orders")
        then = taken[0]
        assert over.wait(5)
        producing.join()
    assert taken[0] <= then + 1


def kill_after(pid: int, answered: list[int], count: int) -> None:
    """While the next change is under way."""
    eventually(lambda: len(answered) >= count, 60)
    os.kill(pid, signal.SIGKILL)


def test_a_change_of_rules_is_whole_or_was_not(tmp_path: Path) -> None:
    """The broker is killed while rules are added: of each request all are there or none, and what was answered is
    there."""
    answered: list[int] = []
    listeners = {"kafka": LISTENER}
    for run in range(4):
        with ExitStack() as stack:
            broker = stack.enter_context(BrokerProcess(tmp_path, listeners=listeners, log=LOG))
            admin = stack.enter_context(Administrator(path_of(tmp_path / "data")))
            counts = Counter(int(name.partition("-")[0]) for name in admin.rules_of("alice"))
            assert set(counts.values()) <= {300}
            assert all(counts[number] == 300 for number in answered)
            killer = threading.Thread(target=kill_after, args=(broker.pid, answered, len(answered) + 2 + run))
            killer.start()
            with suppress(ClosedError, OSError):
                for number in range(run * 1_000, run * 1_000 + 1_000):
                    admin.allow("alice", *(f"read topic {number}-{each}" for each in range(300)))
                    answered.append(number)
            killer.join()
    assert len(answered) >= 4 * 2
