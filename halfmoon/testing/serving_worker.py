"""A worker's process with the kit's instruments: `python -m halfmoon.testing.serving_worker FD`."""

from __future__ import annotations

import sys

from halfmoon.server.workers.__main__ import main
from halfmoon.testing.remote import install_if_told

if __name__ == "__main__":
    install_if_told()
    sys.exit(main(int(sys.argv[1])))
