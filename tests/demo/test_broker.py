"""halfmoon.demo.broker with small programs in the broker's place."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from halfmoon.demo.broker import broker
from halfmoon.demo.children import running_descendants
from halfmoon.pipeline import PipelineError

READY = "print('ready kafka=127.0.0.1:4321 data=/d', flush=True)\n"
WAIT = "import signal; signal.pause()\n"


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_the_ready_line_gives_the_address_and_the_block_ends_the_process(tmp_path: Path) -> None:
    before = running_descendants()
    with broker(tmp_path, tmp_path / "log", python("print('words before')\n" + READY + WAIT)) as running:
        assert running.address == "127.0.0.1:4321"
        running.check_alive()
        [pid] = running_descendants() - before
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_one_that_does_not_start_is_quoted(tmp_path: Path) -> None:
    code = "import sys; print('halfmoon: port 9092 is in use', file=sys.stderr); sys.exit(3)"
    with (
        pytest.raises(PipelineError, match=r"did not start \(code 3\): halfmoon: port 9092 is in use"),
        broker(tmp_path, tmp_path / "log", python(code)),
    ):
        pass


def test_one_that_ends_later_is_noticed(tmp_path: Path) -> None:
    code = "import sys; print('level=ERROR disk full', file=sys.stderr); print('level=INFO bye', file=sys.stderr)\n"
    told = threading.Event()
    before = running_descendants()
    with broker(tmp_path, tmp_path / "log", python(code + READY + WAIT), told.set) as running:
        [pid] = running_descendants() - before
        os.kill(pid, signal.SIGKILL)
        assert told.wait(20)
        with pytest.raises(PipelineError, match="ended with code -9: level=ERROR disk full"):
            running.check_alive()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="uses a Linux system call")
def test_a_killed_parent_takes_the_broker_with_it(tmp_path: Path) -> None:
    code = (
        "import os, sys, signal; from pathlib import Path; from halfmoon.demo.broker import broker\n"
        "d = Path(sys.argv[1])\n"
        f"with broker(d, d / 'log', [sys.executable, '-c', {READY + WAIT!r}]):\n"
        "    print('up', flush=True); signal.pause()\n"
    )
    parent = subprocess.Popen([*python(code), str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "up\n"
    child = int(Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()[0])
    watched = os.pidfd_open(child)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    ended, _, _ = select.select([watched], [], [], 20)
    os.close(watched)
    assert ended, "the broker outlived its parent"


def test_an_orderly_end_is_not_told_as_death(tmp_path: Path) -> None:
    told = threading.Event()
    with broker(tmp_path, tmp_path / "log", python(READY + WAIT), told.set):
        pass
    assert not told.is_set()
