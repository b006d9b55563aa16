"""Speed, side by side: the same work against a real Kafka and against Halfmoon, in one go.

    python -m benchmarks --list                     what is measured
    python -m benchmarks --quick                    everything once, small: a smoke test of about two minutes
    KAFKA_PEER=path/to/kafka python -m benchmarks   everything; writes docs/performance.md and out/benchmark.json
    python -m benchmarks.micro                      the broker's own hot paths, without a network

The parts:

    goals.py      what is to be reached, in numbers
    cells/        what is run against a broker; a cell yields named figures
    clients/      the loads: each runs in a process of its own, so that no cell inherits another's heap or threads
    brokers.py    a Kafka and two Halfmoons as subprocesses;   peer.py   the script that runs and measures a Kafka
    runner.py     interleaves and repeats;   report.py   medians, ratios, the page in docs/
"""
