"""What of this process's own code runs compiled: optional extensions, with the same in Python behind them."""

from __future__ import annotations

import sys
from importlib.machinery import EXTENSION_SUFFIXES

PACKAGE = "halfmoon."


def build() -> str:
    """`compiled` where an extension module of ours is loaded, else `pure`."""
    ours = [module for name, module in list(sys.modules.items()) if name.startswith(PACKAGE)]
    files = [getattr(module, "__file__", None) or "" for module in ours]
    return "compiled" if any(file.endswith(tuple(EXTENSION_SUFFIXES)) for file in files) else "pure"
