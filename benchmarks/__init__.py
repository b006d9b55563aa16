"""Speed, side by side: the same work against a real Kafka and against Halfmoon, in one go.

    python -m benchmarks --list                     what is measured
    python -m benchmarks --quick                    one round, small: a smoke test of some minutes
    KAFKA_PEER=path/to/kafka python -m benchmarks   what users ask for; writes docs/performance.md, out/benchmark.json
    python -m benchmarks --all                      everything; writes docs/performance-all.md
    python -m benchmarks.micro                      the broker's own hot paths, without a network

The parts:

    targets.py    what is to be reached, in numbers;   goals.py   whether it is;   bounds.py   why not
    cells/        what is run against a broker; a cell yields named figures
    clients/      the loads: each runs in a process of its own, so that no cell inherits another's heap or threads
    brokers.py    Kafkas, Halfmoons and the bare loop as subprocesses;   peer.py   the script that runs a Kafka
    runner.py     interleaves and repeats;   report.py, pictures.py   medians, ratios, the page in docs/
"""
