"""Run a command and leave nothing of it behind: `python tools/tidy_run.py COMMAND [ARGUMENT...]`.

The command gets a process group of its own, so that everything it starts (a broker, Spark's JVM) can be found again.
Ctrl-C, SIGTERM and SIGHUP are passed on to the command alone, which knows best how to stop what it started; a second
signal, or `GRACE_S` without an end, kills the whole group. What is left of the group when the command has ended is
asked to go, then killed.

Exit code: the command's; 128 + the signal's number if a signal ended it, as shells do.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

GRACE_S = 20.0
"""How long a command may take to stop after a signal: Spark takes some seconds to close its session."""
LEFTOVER_GRACE_S = 3.0
POLL_S = 0.05


def main(command: list[str]) -> int:
    if not command:
        print("usage: python tools/tidy_run.py COMMAND [ARGUMENT...]", file=sys.stderr)
        return 2
    try:
        # Its own group, hence not the terminal's foreground group: without this it could not read from the terminal,
        # which no target does.
        child = subprocess.Popen(command, process_group=0)
    except OSError as error:
        print(f"halfmoon: cannot run {command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    stop_asked: list[int] = []

    def pass_on(number: int, _frame: object) -> None:
        stop_asked.append(number)
        if len(stop_asked) == 1:
            child.send_signal(number)
        else:
            _signal_group(child.pid, signal.SIGKILL)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # What was ignored before, as SIGHUP is under nohup, is to be ignored; the command has inherited it.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, pass_on)
    code = _wait(child, stop_asked)
    _end_group(child.pid)
    return 128 - code if code < 0 else code


def _wait(child: subprocess.Popen[bytes], stop_asked: list[int]) -> int:
    """The command's return code. Once a signal was passed on, the command has `GRACE_S` to end."""
    deadline: float | None = None
    while True:
        try:
            return child.wait(timeout=POLL_S if stop_asked else 1.0)
        except subprocess.TimeoutExpired:
            if stop_asked and deadline is None:
                deadline = time.monotonic() + GRACE_S
            if deadline is not None and time.monotonic() > deadline:
                _signal_group(child.pid, signal.SIGKILL)


def _signal_group(group: int, number: int) -> bool:
    """Send a signal to every process of the group; False if there is none left. Number 0 only asks."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        # macOS says "not permitted" where only zombies are left.
        return False
    return True


def _end_group(group: int) -> None:
    if not _signal_group(group, signal.SIGTERM):
        return
    deadline = time.monotonic() + LEFTOVER_GRACE_S
    while time.monotonic() < deadline:
        if not _signal_group(group, 0):
            return
        time.sleep(POLL_S)
    _signal_group(group, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
