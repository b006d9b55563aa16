"""HALFMOON_PURE=1: the modules of this package as Python, though they are there compiled, too (setup.py)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from types import ModuleType

PACKAGE = "halfmoon."


class _Sources:
    """Finds what Python's own finder would, if there were no extensions."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if not name.startswith(PACKAGE):
            return None
        for folder in path or ():
            found = FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES)).find_spec(name)
            if found is not None:
                return found
        return None


def prefer_source() -> None:
    sys.meta_path.insert(0, _Sources())
