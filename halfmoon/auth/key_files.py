"""Keys and certificates, written into files."""

from __future__ import annotations

import os
from pathlib import Path


def write(path: Path, data: bytes, mode: int) -> None:
    """Whole or not at all, and never readable by others meanwhile: a broker may be about to read it. Raises OSError."""
    written = path.with_name(f".{path.name}.new")
    written.unlink(missing_ok=True)
    with os.fdopen(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
    written.replace(path)
