"""A node that says what it waits for when SIGUSR2 asks it: `python -m tests.torture.cluster.observed serve …`.

Stacks of its threads and of its tasks go to standard error, which is its log.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import signal
import sys
import threading


def observe() -> None:
    """In the main thread, before the node starts. SIGUSR2 itself is handled between two steps of the loop."""
    signal.signal(signal.SIGUSR2, lambda *_: threading.Thread(target=_tell).start())


def _tell() -> None:
    faulthandler.dump_traceback(all_threads=True)
    for each in gc.get_objects():
        if isinstance(each, asyncio.Task) and not each.done():
            each.print_stack(file=sys.stderr)
            awaited = each.get_coro()
            while awaited is not None:  # a task's own stack ends with its first coroutine
                print(f"  awaits {awaited!r}", file=sys.stderr)
                awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    sys.stderr.flush()


if __name__ == "__main__":
    from halfmoon.__main__ import main

    observe()
    main()
