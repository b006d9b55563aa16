"""The cleaner's process, and a broker that has one: real files, real clients' batches."""

from __future__ import annotations

import asyncio
import os
import random
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from halfmoon.core.storage.files import OsFileSystem
from halfmoon.errors import StorageError
from halfmoon.server.cleaning import CleaningError, CleaningProcess, Pace, command
from halfmoon.services.cleaner import cleaning
from halfmoon.services.cleaner.reading import SourceGoneError
from halfmoon.services.cleaner.tasks import Task, Work
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, cleaning_job, jobs, open_broker, turn
from tests.core.clean_bench import COMPACT, clean, pairs, put, seal, state


def test_the_process_does_what_the_thread_does(tmp_path: Path) -> None:
    found = []
    for nth, own_process in enumerate((False, True)):
        clock, fs = VirtualClock(), OsFileSystem(tmp_path / str(nth))
        broker = open_broker(fs, clock)
        if own_process:
            broker.cleaner.execute = CleaningProcess(fs.root, 100 << 20).run
        broker.create_topic("t", 1, COMPACT)
        chance = random.Random(1)
        for at in range(60):
            put(broker, "t", *((b"%d" % chance.randrange(60), chance.randbytes(3000)) for _ in range(3)), codec=at % 5)
        clean(broker, clock)
        assert len(broker.cleaner.files) > 1
        found.append([(offset, key) for offset, key, _ in pairs(broker, "t")])
        assert broker.cleaner.counts.records >= 170
        broker.close()
    assert found[0] == found[1]


def test_what_goes_wrong_in_the_process_is_told(tmp_path: Path) -> None:
    fs = OsFileSystem(tmp_path / "data")
    fs.make_directory("cleaned")
    process = CleaningProcess(fs.root, None)
    start = 1 << 62
    gone = Task([Work(0, 0, 0, 9, [("index/gone", 0, 9)], 0)], [], start, 0, 1, 1)
    with pytest.raises(SourceGoneError, match="gone"):
        next(process.run(gone))
    process.stop()
    assert list(process.run(gone)) == []


@pytest.mark.parametrize("stopped", [True, False])
def test_a_process_that_dies_is_an_error_unless_it_is_stopped_and_its_file_a_leftover(
    tmp_path: Path, *, stopped: bool
) -> None:
    clock, fs = VirtualClock(), OsFileSystem(tmp_path / "data")
    broker = open_broker(fs, clock)
    process = CleaningProcess(fs.root, 50_000)  # slow enough to be met
    broker.cleaner.execute = process.run
    broker.create_topic("t", 1, COMPACT)
    for at in range(40):
        put(broker, "t", (b"%d" % (at % 20), b"x" * 3000))
    seal(broker)
    before = state(broker, "t")
    clock.now_ms += 15_000
    broker.housekeeping.turn()
    job = cleaning_job(broker)
    assert job is not None

    async def kill() -> None:
        running = asyncio.get_running_loop().run_in_executor(None, job.run)
        while process._child is None:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        if stopped:
            process.stop()
            job.done(await running)
        else:
            process._child.kill()
            with pytest.raises(CleaningError, match="ended with -9") as caught:
                await running
            job.failed(caught.value)

    asyncio.run(kill())
    assert broker.cleaner.failures == (0 if stopped else 1)
    broker.cleaner.execute = lambda task: cleaning.run(fs, task)
    clock.now_ms += 15_000
    broker.housekeeping.turn()
    jobs(broker)
    turn(broker)
    assert state(broker, "t") == before
    assert broker.cleaner.tasks == 2
    broker.close()


def to_be_cleaned(fs: OsFileSystem) -> BareNode:
    """A broker that is about to begin a task that writes several files."""
    clock = VirtualClock()
    broker = open_broker(fs, clock)
    broker.create_topic("t", 1, COMPACT)
    for at in range(60):
        put(broker, "t", (b"%d" % at, b"x" * 3000))
    seal(broker)
    clock.now_ms += 15_000
    broker.housekeeping.turn()
    return broker


def many_files(root: Path) -> bytes:
    """A message with such a task, from a broker that is gone."""
    broker = to_be_cleaned(OsFileSystem(root))
    tasks = []
    broker.cleaner.execute = lambda task: iter(tasks.append(task) or ())
    assert cleaning_job(broker) is not None
    broker.close()
    message = msgspec.msgpack.encode(tasks[0])
    return struct.pack("<I", len(message)) + message


def task_of(root: Path) -> Task:
    return msgspec.msgpack.decode(many_files(root)[4:], type=Task)


class LookedAt:
    """A lock that tells when somebody has waited for it in vain."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.refused = threading.Event()
        self.release, self.locked = self._lock.release, self._lock.locked

    def acquire(self, timeout: float) -> bool:
        taken = self._lock.acquire(timeout=timeout)
        if not taken:
            self.refused.set()
        return taken


def test_those_with_the_same_lock_work_one_after_the_other(tmp_path: Path) -> None:
    one_by_one = LookedAt()
    tasks = [task_of(tmp_path / name) for name in "ab"]
    first, second, third = (CleaningProcess(tmp_path / name, None, one_by_one) for name in "aba")  # type: ignore[arg-type]
    outputs = first.run(tasks[0])
    assert next(outputs)
    with ThreadPoolExecutor(2) as threads:
        stopped = threads.submit(lambda: list(third.run(tasks[0])))
        third.stop()
        assert stopped.result(10) == [], "who waits can be stopped"
        one_by_one.refused.clear()
        waiting = threads.submit(lambda: list(second.run(tasks[1])))
        assert one_by_one.refused.wait(10)
        assert second._child is None
        assert first._child is not None
        outputs.close()  # type: ignore[attr-defined]
        assert len(waiting.result(30)) > 1
    assert not one_by_one.locked()


def test_a_broken_log_is_not_cleaned_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    fs = OsFileSystem(tmp_path)
    broker = to_be_cleaned(fs)
    one_by_one = threading.Lock()
    broker.cleaner.execute = CleaningProcess(fs.root, None, one_by_one).run
    job = cleaning_job(broker)
    assert job is not None
    job.done(job.run())
    assert one_by_one.locked(), "it is in the midst of it"
    broker.log.failed = StorageError("as if the disk were gone")
    job = cleaning_job(broker)
    assert job is not None
    assert one_by_one.locked(), "a process may be waiting for the disk: not in the loop"
    job.done(job.run())
    assert not one_by_one.locked()
    assert cleaning_job(broker) is None


def test_no_file_is_begun_before_the_broker_says_so(tmp_path: Path) -> None:
    started = command(tmp_path, 0, os.getpid())
    subprocess.run(started, input=many_files(tmp_path), stdout=subprocess.PIPE, check=True)
    assert len(list((tmp_path / "cleaned").glob("*.index.new"))) == 1


def test_without_its_broker_nothing_is_done(tmp_path: Path) -> None:
    task = many_files(tmp_path)
    done = subprocess.run(command(tmp_path, 0, os.getppid()), input=task, stdout=subprocess.PIPE, check=True)
    assert done.stdout == b""
    assert not list((tmp_path / "cleaned").iterdir())


def test_modules_are_not_taken_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "struct.py").write_text("raise SystemExit(3)")
    monkeypatch.setattr(sys, "path", list(map(os.path.abspath, sys.path)))
    monkeypatch.chdir(tmp_path)
    assert list(CleaningProcess(tmp_path, None).run(Task([], [], 1 << 62, 0, 1, 1))) == []


BROKER = """
import subprocess, sys, time
from pathlib import Path
from halfmoon.services.cleaner.tasks import Task
from halfmoon.server.cleaning import CleaningProcess

begun = subprocess.Popen

def told(*arguments, **named):
    print(begun(*arguments, **named).pid, flush=True)
    time.sleep(60)

subprocess.Popen = told
next(CleaningProcess(Path(sys.argv[1]), None).run(Task([], [], 1 << 62, 0, 1, 1)))
"""
"""Its cleaner waits for a task that never comes."""


def test_the_process_ends_with_its_broker(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", BROKER, str(tmp_path)], stdout=subprocess.PIPE) as broker:
        assert broker.stdout is not None
        status = Path(f"/proc/{int(broker.stdout.readline())}/status")
        deadline = time.monotonic() + 20
        while "SigIgn:\t0000000000000000" in status.read_text():  # until it ignores SIGINT
            assert time.monotonic() < deadline
            time.sleep(0.02)
        broker.kill()
    while status.exists() and "Z (zombie)" not in status.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_pace_is_kept() -> None:
    now_s = 100.0
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        nonlocal now_s
        slept.append(seconds)
        now_s += seconds

    pace = Pace(1000, lambda: now_s, sleep)
    for _ in range(10):
        pace(500)
    assert sum(slept) == pytest.approx(5.0)
    now_s += 60
    pace(1000)
    assert sum(slept) == pytest.approx(6.0), "what was not used is not saved up"
