"""A client that does one small thing after the other while others do extreme ones: how long does it wait?

`python -m tests.extremes.witness HOST PORT`, a process of its own, so that only the broker can hold it up. It produces
a record on one connection and fetches it on another. For each line on its standard input it prints the longest that
an answer took since the line before, in seconds, and begins anew.
"""

from __future__ import annotations

import struct
import subprocess
import sys
import threading
import time

from halfmoon.adapters.kafka.protocol import CreateTopicsRequest, FetchRequest
from halfmoon.core.records.batches import build_batch
from tests.fuzz.peer import Peer

TOPIC = "witness"
PATIENCE_S = 120.0
PAUSE_S = 0.001


class Witness:
    """The process, as whoever starts it sees it. A context manager."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._command = [sys.executable, "-m", "tests.extremes.witness", address[0], str(address[1])]

    def __enter__(self) -> Witness:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.longest_s()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def longest_s(self) -> float:
        """Since this was asked last."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the witness has ended"
        return float(line)


class _Asking:
    def __init__(self, address: tuple[str, int]) -> None:
        self._writer, self._reader = Peer(address), Peer(address)
        creatable = CreateTopicsRequest.CreatableTopic
        configs = [creatable.CreatableTopicConfig(name="retention.bytes", value="1000000")]
        topic = creatable(name=TOPIC, num_partitions=1, replication_factor=1, assignments=[], configs=configs)
        self._writer.ask(19, 5, PATIENCE_S, topics=[topic], timeout_ms=1000, validate_only=False)
        batch = build_batch([(None, b"seen", 1_700_000_000_000, ())])
        self._produce = _produce(batch)
        self.longest_s = 0.0
        self._begun_s = 0.0

    def round(self) -> None:
        self._begun_s = time.perf_counter()
        self._writer.send(self._produce)
        frame = self._writer.frame(PATIENCE_S)
        # Behind the correlation id: one topic with its name, one partition with its index, an error code, an offset.
        error, offset = struct.unpack_from(">hq", frame, 4 + 4 + 2 + len(TOPIC) + 4 + 4)
        assert error == 0, f"error {error}"
        self._took()
        self._begun_s = time.perf_counter()
        topic = FetchRequest.FetchTopic
        part = topic.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000)
        answer = self._reader.ask(
            1, 11, PATIENCE_S, replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=1000, isolation_level=0,
            session_id=0, session_epoch=-1, topics=[topic(topic=TOPIC, partitions=[part])],
        )  # fmt: skip
        assert answer.responses[0].partitions[0].records, "a record that was acknowledged is not there"
        self._took()

    def _took(self) -> None:
        self.longest_s = max(self.longest_s, time.perf_counter() - self._begun_s)


def _produce(batch: bytes) -> bytes:
    name = TOPIC.encode()
    body = struct.pack(">hhih", 0, 7, 1, -1) + struct.pack(">hhiih", -1, 1, 1000, 1, len(name)) + name
    body += struct.pack(">iii", 1, 0, len(batch)) + batch
    return struct.pack(">i", len(body)) + body


def _main() -> None:
    asking = _Asking((sys.argv[1], int(sys.argv[2])))
    asked = threading.Semaphore(0)

    def listen() -> None:
        for _ in sys.stdin:
            asked.release()

    threading.Thread(target=listen, daemon=True).start()
    while True:
        asking.round()
        if asked.acquire(blocking=False):
            print(asking.longest_s, flush=True)
            asking.longest_s = 0.0
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    _main()
