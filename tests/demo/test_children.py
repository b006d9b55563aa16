"""halfmoon.demo.children: nobody who descends from this process is left.

Each case runs in a Python of its own: in this one, the children are the test run's, Spark's JVM among them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")

HEAD = """
import signal, subprocess, sys
from halfmoon.demo import children
from halfmoon.demo.children import end_children, running_descendants

def start(*command):
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    process.stdout.readline()
    return process

"""


def alone(code: str) -> None:
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", HEAD + code], cwd=root, capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_child_is_asked_to_end() -> None:
    alone("""
child = start(sys.executable, "-c", "import signal; print('up', flush=True); signal.pause()")
assert running_descendants() == {child.pid}
end_children()
assert child.wait(5) == -signal.SIGTERM
assert running_descendants() == set()
""")


def test_a_shells_child_goes_with_the_shell() -> None:
    alone("""
shell = start("/bin/sh", "-c", "sleep 600 & echo up; wait")
family = running_descendants()
assert len(family) == 2, family
end_children()
assert not [pid for pid in family if children._is_running(pid)]
""")


def test_one_that_will_not_is_killed() -> None:
    alone("""
children._GRACE_S = {signal.SIGTERM: 0.1, signal.SIGKILL: 5.0}
stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); signal.pause()"
child = start(sys.executable, "-c", stubborn)
end_children()
assert child.wait(5) == -signal.SIGKILL
""")
