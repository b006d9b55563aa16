"""Prepared states: a copy of a data directory, made while its broker runs (offline/backup.py), from which others start.

PATH/…               the copy
PATH/snapshot.json   {"ahead_ms": how far the broker's clock was ahead}; it comes last
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Final

from halfmoon.errors import StartError
from halfmoon.offline import backup, shards
from halfmoon.services.credentials.node_key import PATH as NODE_KEY

FACTS: Final = "snapshot.json"


def save(root: Path, path: Path, ahead_ms: int) -> None:
    """Of this data directory. Raises StartError, ValueError where it is a cluster's."""
    if not shards.of(root) and not (root / "meta.json").exists():
        raise ValueError("a cluster's data are in a database and a store: halfmoon cluster backup")
    if shards.of(root):
        shards.copy(root, path)
    else:
        backup.backup(root, path)
    if (root / NODE_KEY).exists():
        shutil.copy2(root / NODE_KEY, path / NODE_KEY)
    (path / FACTS).write_text(json.dumps({"ahead_ms": ahead_ms}))


def ahead_ms_of(path: Path) -> int:
    """How far the clock is ahead. Raises StartError."""
    try:
        found: int = json.loads((path / FACTS).read_text())["ahead_ms"]
    except FileNotFoundError:
        raise StartError(f"{path} is no snapshot: there is no {FACTS} in it") from None
    return found


def take(path: Path, data_dir: Path) -> None:
    """Copy it to a new or empty directory. Raises StartError."""
    shutil.copytree(path, backup.new_directory(data_dir), ignore=_but_facts, dirs_exist_ok=True)


def _but_facts(folder: str, names: list[str]) -> list[str]:
    return [FACTS] if FACTS in names else []
