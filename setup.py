"""The one part of Halfmoon that is compiled; everything else is said in pyproject.toml.

The walker of records (halfmoon/core/records/_walk.pyx) is optional: where no C compiler works, or HALFMOON_PURE=1 is
set, the package is built without it, and the same loop in Python serves (halfmoon/core/records/walk.py).
"""

from __future__ import annotations

import os

from setuptools import Extension, setup

WALKER = Extension(
    "halfmoon.core.records._walk",
    ["halfmoon/core/records/_walk.pyx"],
    extra_compile_args=["-O2", "-g0"],
    optional=True,
)

setup(ext_modules=[] if os.environ.get("HALFMOON_PURE", "") not in ("", "0") else [WALKER])
