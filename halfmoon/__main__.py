"""`python -m halfmoon`, and what the `halfmoon` script calls."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and leave with its exit code."""
    from halfmoon.cli.main import run

    sys.exit(run())


if __name__ == "__main__":
    main()
