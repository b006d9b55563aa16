"""Reading what the peer's script prints."""

from __future__ import annotations

import pytest

from benchmarks import rocketmq_peer
from benchmarks.peer import PeerError, find
from benchmarks.targets import ROCKETMQS


def test_a_script_that_was_named_must_be_there(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("KAFKA_PEER", str(tmp_path / "kafka"))
    with pytest.raises(PeerError, match="no peer script"):
        find(None)
    (tmp_path / "kafka").touch()
    assert find(None) == tmp_path / "kafka"


def _script(path, text: str) -> None:
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)


def test_rocketmqs_scripts_are_read(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PEER_DIR", str(tmp_path / "kept"))
    (tmp_path / "kept/rocketmq/lib").mkdir(parents=True)
    (tmp_path / "kept/rocketmq/lib/rocketmq-broker-5.3.3.jar").touch()
    folder = tmp_path / "scripts"
    folder.mkdir()
    _script(folder / "up", '''echo "namesrv $NAMESRV_PORT ready in 700 ms, broker $BROKER_PORT in 1300 ms"
echo "namesrv pid 11 RssAnon: 1 kB"
echo "broker pid 12 RssAnon: 2 kB"
''')  # fmt: skip
    _script(folder / "perf", '''echo "$1 $2 $JAVA_ARGS" > "$PEER_DIR/asked"
echo '{"send sync, 8 thread(s), 100 B":12205.5,"something new":1}'
''')  # fmt: skip
    (tmp_path / "work").mkdir()
    monkeypatch.setattr(rocketmq_peer, "_wait_until_registered", lambda port: None)
    peer = rocketmq_peer.RocketmqPeer(folder, tmp_path / "work")
    started = peer.up(1_000, 2_000)
    assert (started.namesrv, started.pids, started.ready_ms) == ("127.0.0.1:1000", (12, 11), 2_000)
    assert peer.perf(started.namesrv, "sync", 0.5, 10) == {"sync_8_rec_s": 12205.5}
    assert (tmp_path / "work/rocketmq/asked").read_text() == "127.0.0.1:1000 sync -Dseconds=2 -Dn=100000\n"
    assert peer.version() == "5.3.3"
    _script(folder / "perf", "echo '  only 3 of 5 in 90 s'; echo '{}'\n")
    with pytest.raises(PeerError, match="only 3 of 5"):
        peer.perf(started.namesrv, "sync", 1, 10)
    _script(folder / "perf", "echo no such thing >&2; exit 1\n")
    with pytest.raises(PeerError, match="no such thing"):
        peer.perf(started.namesrv, "sync", 1, 10)


def test_every_figure_of_rocketmqs_that_is_a_target_is_one_that_is_read() -> None:
    wanted = {goal.figure.partition(".")[2] for goal in ROCKETMQS.goals if goal.figure.startswith("rocketmq.")}
    assert wanted <= {*rocketmq_peer.FIGURES.values(), "ready_ms", "loaded_mb"}
