"""`halfmoon serve` for as long as the other end of its standard input is open: `python -m halfmoon.testing.serving …`.

A test process that is killed says goodbye to nobody; what it has started ends all the same, once its pipe is closed.
Where the kit says so, the broker's processes have its instruments (`remote`).
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from halfmoon.__main__ import main
from halfmoon.server.workers import spare
from halfmoon.testing.state import VARIABLE


def _wait_for_the_end() -> None:
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_wait_for_the_end, name="halfmoon-parent", daemon=True).start()
    if VARIABLE in os.environ:
        from halfmoon.testing.remote import install_if_told

        install_if_told()
        spare.PROGRAM = "halfmoon.testing.serving_worker"
    sys.argv[1:1] = ["serve"]
    main()
