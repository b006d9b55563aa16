"""Runs one load and prints its figures."""

from __future__ import annotations

import importlib
import json
import sys

LOADS = {
    "committing": "benchmarks.clients.committing",
    "compact": "benchmarks.clients.compaction",
    "consume": "benchmarks.clients.bulk",
    "count_keys": "benchmarks.clients.compaction",
    "create_topics": "benchmarks.clients.topics",
    "delays": "benchmarks.clients.headers",
    "idle": "benchmarks.clients.idle",
    "joining": "benchmarks.clients.joining",
    "latency": "benchmarks.clients.latency",
    "make_topic": "benchmarks.clients.compaction",
    "one_by_one": "benchmarks.clients.plain",
    "paced": "benchmarks.clients.plain",
    "paced_on": "benchmarks.clients.compaction",
    "produce": "benchmarks.clients.bulk",
    "python_client": "benchmarks.clients.remoting",
    "produce_keyed": "benchmarks.clients.compaction",
    "produce_headers": "benchmarks.clients.headers",
    "read_again": "benchmarks.clients.small",
    "small_batches": "benchmarks.clients.small",
    "spark_pipeline": "benchmarks.clients.spark",
    "spark_read": "benchmarks.clients.spark",
    "spark_view": "benchmarks.clients.spark",
    "transactions": "benchmarks.clients.headers",
    "sync_one_by_one": "benchmarks.clients.bulk",
}


def main() -> None:
    name, bootstrap, arguments = sys.argv[1:4]
    load = getattr(importlib.import_module(LOADS[name]), name)
    print(json.dumps(load(bootstrap, **json.loads(arguments))), flush=True)


main()
