"""The comparison of TLS with plain sockets, small, without Kafka."""

from __future__ import annotations

from pathlib import Path

from benchmarks.secure import SIDES, measured, sides, table, with_tls


def test_each_load_goes_through_both_listeners(tmp_path: Path) -> None:
    with sides(tmp_path, None, 0.001) as (bench, listeners):
        found = measured(bench, listeners, 1)
    assert {side for side, _ in found} == set(SIDES[:2])
    assert all(found[side, f"produce {size}, MB/s"][0] > 0 for side in SIDES[:2] for size in ("1 KB", "100 B"))
    head, _, *rows = table(found).splitlines()
    assert head == "| median (range) | halfmoon plain | halfmoon TLS |"
    assert len(rows) == 10


def test_kafkas_listeners_do_not_meet() -> None:
    lines = dict(line.split("=", 1) for line in with_tls(9000, Path("k.pem")).splitlines())
    assert lines["listeners"] == "PLAINTEXT://127.0.0.1:9000,SSL://127.0.0.1:9002,CONTROLLER://127.0.0.1:9001"
    assert lines["ssl.keystore.location"] == "k.pem"
