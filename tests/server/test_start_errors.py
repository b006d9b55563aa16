"""What keeps a broker from starting is said in one line, with an exit code other than 0, and costs no data.

Each case starts from a data directory with a message in it, spoils something, is refused by `python -m halfmoon serve`
and by `halfmoon.testing.Broker` alike, leaves every file as it was, and after the repair the message is still there.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from halfmoon import testing
from halfmoon.adapters.kafka.protocol import FetchRequest, MetadataRequest
from halfmoon.core.records.batches import build_batch, iter_records
from halfmoon.core.storage.files import OsFile
from halfmoon.core.storage.frame import HEADER_BYTES
from halfmoon.errors import HalfmoonError, StartError
from tests.fuzz.attacks import produce
from tests.fuzz.peer import Peer, framed

VALUE = b"must not be lost"
SETTINGS = {"log": {"segment_bytes": "1MiB", "low_disk_bytes": 0}}


def address(broker: testing.Broker) -> tuple[str, int]:
    host, port = broker.bootstrap_servers.split(":")
    return host, int(port)


def kit(folder: Path, **sections: Any) -> testing.Broker:
    return testing.Broker(data_dir=str(folder), config={**SETTINGS, **sections})


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with one message."""
    folder = tmp_path / "data"
    with kit(folder) as broker, Peer(address(broker)) as peer:
        peer.ask(3, 4, topics=[metadata_topic("t")], allow_auto_topic_creation=True)
        peer.send(framed(produce(build_batch([(None, VALUE, 0, ())]), "t")))
        peer.frame()
    return folder


def metadata_topic(name: str) -> object:
    return MetadataRequest.MetadataRequestTopic(name=name)


def stored(folder: Path, **sections: Any) -> bytes | None:
    """The message, after a start."""
    topic = FetchRequest.FetchTopic
    part = topic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    with kit(folder, **sections) as broker, Peer(address(broker)) as peer:
        fetched = peer.ask(
            1, 11, replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=1000, isolation_level=0, session_id=0,
            session_epoch=-1, topics=[topic(topic="t", partitions=[part])],
        )  # fmt: skip
        (record,) = iter_records(bytes(fetched.responses[0].partitions[0].records))
        return record.value


def files(folder: Path) -> dict[str, bytes]:
    """All files, but for the lock: it says who tried last."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "lock"
    }


def refusal(folder: Path, *flags: str, config: dict[str, Any] | None = None) -> str:
    """The one line that `halfmoon serve` ends with."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump(config or SETTINGS, file)
        file.flush()
        ended = subprocess.run(
            [sys.executable, "-m", "halfmoon", "serve", "--data-dir", str(folder), "--config", file.name,
             *(flags or ("--kafka", "127.0.0.1:0"))],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )  # fmt: skip
    assert ended.returncode == 1, ended
    assert ended.stdout == ""
    (line,) = ended.stderr.splitlines()
    assert line.startswith("halfmoon: ")
    return line


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a megabyte."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_too_small_for_a_segment(tiny_disk: Path):
    folder = tiny_disk / "data"
    needed = "another log segment of 16MiB (log.segment_bytes)"
    expected = f"data directory {folder}: no room for {needed}: No space left on device"
    assert refusal(folder, config={"log": {"segment_bytes": "16MiB"}}) == f"halfmoon: {expected}"
    with pytest.raises(StartError, match=re.escape(expected)):
        kit(folder, log={"segment_bytes": "16MiB"}).start()
    assert "log" not in [name.split("/")[0] for name in files(folder)], "no half-made segment is left"
    with kit(folder, log={"segment_bytes": "256KiB", "low_disk_bytes": 0}):
        pass


def test_a_disk_without_a_byte(tiny_disk: Path):
    with contextlib.suppress(OSError), (tiny_disk / "filler").open("wb", buffering=0) as filler:
        while filler.write(bytes(4096)):
            pass
    line = refusal(tiny_disk / "data")
    assert str(tiny_disk / "data") in line
    assert "No space left on device" in line
    with pytest.raises(StartError, match="No space left on device"):
        kit(tiny_disk / "data").start()


def test_a_disk_that_filled_up_while_the_broker_was_down(tiny_disk: Path, data: Path):
    """The log has a segment with room in it, so it opens: reads go on, and there is room for what must be noted."""
    folder = tiny_disk / "data"
    with kit(folder, log={"segment_bytes": "256KiB", "low_disk_bytes": 0}) as broker, Peer(address(broker)) as peer:
        peer.ask(3, 4, topics=[metadata_topic("t")], allow_auto_topic_creation=True)
        peer.send(framed(produce(build_batch([(None, VALUE, 0, ())]), "t")))
        peer.frame()
    with contextlib.suppress(OSError), (tiny_disk / "filler").open("wb", buffering=0) as filler:
        while filler.write(bytes(4096)):
            pass
    before = {name: content for name, content in files(folder).items() if name.startswith("log/")}
    with contextlib.suppress(StartError):
        assert stored(folder) == VALUE
    (tiny_disk / "filler").unlink()
    assert stored(folder) == VALUE
    assert before


@pytest.mark.pure
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EFBIG])
def test_a_segment_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int):
    """As with the small disk, where one cannot be mounted; and that the start ends at all, in time."""

    def refuse(self: OsFile, size: int) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(OsFile, "allocate", refuse)
        for _ in range(2):
            with pytest.raises(
                StartError, match=rf"^data directory .*: (no room|another log segment) .*: {os.strerror(code)}$"
            ):
                kit(tmp_path / "data").start()
    with kit(tmp_path / "data"):
        pass


@pytest.mark.pure
def test_a_log_that_needs_another_segment_and_has_no_room(data: Path, monkeypatch: pytest.MonkeyPatch):
    """A full segment in the directory, and none to be had behind it."""
    fill_segment(data)
    before = files(data)

    def refuse(self: OsFile, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(OsFile, "allocate", refuse)
        with pytest.raises(StartError, match="No space left on device"):
            kit(data).start()
    assert {name: content for name, content in files(data).items() if name.startswith("log/")} == {
        name: content for name, content in before.items() if name.startswith("log/")
    }
    assert stored(data) == VALUE


def fill_segment(folder: Path) -> None:
    """Leave less room in the active segment than any frame needs, and no spare one."""
    with kit(folder) as broker, Peer(address(broker)) as peer:
        assert broker.app is not None
        log = broker.app.node.kernel.log
        overhead = 0
        for leave in (2000, 0):
            room = log.segments[-1].end - log.end - HEADER_BYTES
            size = room - leave - overhead - 20
            peer.send(framed(produce(build_batch([(None, bytes(size), 0, ())]), "t")))
            peer.frame()
            overhead = room - (log.segments[-1].end - log.end - HEADER_BYTES) - size
        assert log.segments[-1].end - log.end < 2 * HEADER_BYTES
        assert len(log.segments) == 1
    (folder / "log" / "spare").unlink(missing_ok=True)


def test_a_port_in_use(data: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        assert refusal(data, "--kafka", bind) == f"halfmoon: cannot listen on {bind}: Address already in use"
        with pytest.raises(StartError, match=f"cannot listen on {bind}: Address already in use"):
            kit(data, listeners={"kafka": {"bind": bind}}).start()
        line = refusal(data, "--kafka", "127.0.0.1:0", "--http", bind)
        assert line == f"halfmoon: cannot listen on {bind}: Address already in use"
    assert stored(data) == VALUE


ANYWHERE = {**SETTINGS, "listeners": {"kafka": {"allow_insecure": True}}}


def test_an_address_that_is_not_ours(data: Path):
    line = refusal(data, "--kafka", "192.0.2.1:9092", config=ANYWHERE)
    assert line == "halfmoon: cannot listen on 192.0.2.1:9092: Cannot assign requested address"
    assert stored(data) == VALUE


def test_a_directory_that_another_process_holds(data: Path):
    with kit(data):
        before = files(data)
        expected = f"data directory {data} is in use by another broker (pid {os.getpid()})"
        assert refusal(data) == f"halfmoon: {expected}"
        with pytest.raises(StartError, match="is in use by another broker"):
            kit(data).start()
        assert files(data) == before
    assert stored(data) == VALUE


def change_meta(folder: Path, **fields: object) -> None:
    file = folder / "meta.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


def truncate_meta(folder: Path) -> None:
    (folder / "meta.json").write_bytes(b'{"format": 1, "clus')


def empty_meta(folder: Path) -> None:
    (folder / "meta.json").write_bytes(b"")


def remove_a_segment(folder: Path) -> None:
    """The log begins at 0 and goes on at 4 MiB."""
    (segment,) = (folder / "log").glob("0*")
    shutil.copy(segment, folder / "log" / f"{4 << 20:020d}")


SPOILT: dict[str, tuple[Callable[[Path], None], str]] = {
    "of a newer format": (
        lambda folder: change_meta(folder, format=2, shape="new"),
        "the data directory is of format 2, of a newer version; this version supports up to 1",
    ),
    "of another node": (
        lambda folder: change_meta(folder, node_id=7),
        "the data directory belongs to node 7, $.node.id says 1",
    ),
    "with meta.json cut off": (truncate_meta, "meta.json in the data directory cannot be read: "),
    "with meta.json empty": (empty_meta, "meta.json in the data directory cannot be read: "),
    "with meta.json of another shape": (lambda folder: change_meta(folder, cluster_id=5), "meta.json in the data dir"),
    "without meta.json": (lambda folder: (folder / "meta.json").unlink(), "meta.json is missing from the data dir"),
}


@pytest.mark.parametrize("case", SPOILT)
def test_a_directory(data: Path, tmp_path: Path, case: str):
    spoil, expected = SPOILT[case]
    good = tmp_path / "good"
    shutil.copytree(data, good)
    spoil(data)
    before = files(data)
    node = {"node": {"id": 1}}
    assert refusal(data, config={**SETTINGS, **node}).startswith(f"halfmoon: {expected}")
    with pytest.raises(StartError) as refused:
        kit(data, **node).start()
    assert str(refused.value).startswith(expected)
    assert files(data) == before, "a refusal changes nothing"
    shutil.copy(good / "meta.json", data / "meta.json")
    (data / "log" / f"{4 << 20:020d}").unlink(missing_ok=True)
    assert stored(data) == VALUE


def test_a_segment_of_another_place_is_dropped(data: Path):
    """What is between it and the log's end was never written."""
    remove_a_segment(data)
    assert stored(data) == VALUE
    assert not (data / "log" / f"{4 << 20:020d}").exists()


def test_a_data_directory_that_is_a_file(tmp_path: Path):
    file = tmp_path / "data"
    file.write_text("mine")
    assert refusal(file) == f"halfmoon: data directory {file} cannot be created: File exists"
    assert file.read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_data_directory_that_may_not_be_written(data: Path):
    data.chmod(0o500)
    try:
        assert refusal(data) == f"halfmoon: data directory {data} cannot be written: Permission denied"
    finally:
        data.chmod(0o700)
    assert stored(data) == VALUE


CONFIGS: dict[str, tuple[bytes, str]] = {
    "not YAML": (b"log: {flush: sync\n", "line "),
    "not UTF-8": (b"\xff\xfe\x00", "is not UTF-8 text"),
    "a list": (b"- log\n", "expected settings"),
    "an unknown key": (b"log: {flusch: sync}\n", "$.log.flusch"),
    "a wrong value": (b"log: {flush: sometimes}\n", "$.log.flush: got 'sometimes'"),
    "a key given twice": (b"log: {flush: sync, flush: sync}\n", "flush is given twice"),
    "an alias bomb": (
        b"a: &a [x,x,x,x,x,x,x,x,x,x]\n"
        + b"".join(b"%c: &%c [%s]\n" % (98 + n, 98 + n, b",".join([b"*%c" % (97 + n)] * 10)) for n in range(8)),
        "",
    ),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_a_broker_yaml(data: Path, tmp_path: Path, case: str):
    content, expected = CONFIGS[case]
    file = tmp_path / "broker.yaml"
    file.write_bytes(content)
    before = files(data)
    line = refusal(data, "--config", str(file))
    assert expected in line
    assert len(line) < 1000
    assert files(data) == before


def test_a_broker_yaml_that_cannot_be_read(data: Path, tmp_path: Path):
    missing, folder = tmp_path / "none.yaml", tmp_path
    assert refusal(data, "--config", str(missing)) == f"halfmoon: {missing}: cannot be read: No such file or directory"
    assert refusal(data, "--config", str(folder)) == f"halfmoon: {folder}: cannot be read: Is a directory"


def test_what_is_refused_can_be_told_by_its_type(tmp_path: Path):
    with pytest.raises(HalfmoonError):
        testing.Broker(config={"log": {"flush": "sometimes"}}).start()
