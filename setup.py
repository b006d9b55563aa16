"""What of Halfmoon is compiled; everything else is said in pyproject.toml.

- Its hot modules (`tool.halfmoon.compiled` there), the same source, by mypyc. Not in an editable install: an extension
  beside a newer `.py` would win silently.
- Loops over the records of a batch (`tool.halfmoon.loops`), by Cython. Without them the same loops in Python serve.

Both are optional: where no C compiler works, the package is built without them, and one line says so.
HALFMOON_COMPILE=1 makes that an error; with HALFMOON_COMPILE=0 nothing is compiled, and the wheel is `py3-none-any`.
"""

from __future__ import annotations

import os
import sys
import tempfile
import tomllib
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError

ASKED = os.environ.get("HALFMOON_COMPILE", "")
MUST, MUST_NOT = ASKED not in ("", "0"), ASKED == "0"
TOLD = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["halfmoon"]
LOOPS = [
    Extension(path.removesuffix(".pyx").replace("/", "."), [path], extra_compile_args=["-O2", "-g0"], optional=not MUST)
    for path in TOLD["loops"]
]
CALLS_DIRECTLY = ["-fvisibility=hidden", "-fno-semantic-interposition", "-fno-plt"]
"""The modules call each other without asking the linker: 4 % less of a Produce, and a tenth less code."""
BUILDING = {"bdist_wheel", "build", "build_ext", "install"}
"""Commands that compile; others only ask what the package is called, say."""


def say(line: str) -> None:
    print(f"halfmoon: {line}", file=sys.stderr, flush=True)


def why_not() -> str:
    """Why no extension can be built here; empty: it can."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "asked.c")
        source.write_text("#include <Python.h>\nint asked(void) { return PY_VERSION_HEX > 0; }\n")
        from setuptools._distutils.ccompiler import new_compiler
        from setuptools._distutils.sysconfig import customize_compiler, get_python_inc

        compiler = new_compiler()
        customize_compiler(compiler)
        try:
            compiler.compile([str(source)], output_dir=folder, include_dirs=[get_python_inc()])
        except (BaseError, CCompilerError, OSError) as error:
            return str(error)
    return ""


def compiled() -> list[Extension]:
    """The hot modules: one group, whose code is in one extension, so that its modules call each other directly."""
    from mypyc.build import mypycify

    modules = TOLD["compiled"]
    say(f"compiling {len(modules)} modules, which takes about two minutes; HALFMOON_COMPILE=0 leaves it")
    # Not the project's own settings for mypy: whoever builds this may lack what it depends on, whose types matter not.
    asked = ["--config-file=", "--ignore-missing-imports", "--no-error-summary"]
    found: list[Extension] = mypycify(
        [*asked, *modules], opt_level="2", debug_level="0", multi_file=True, group_name="halfmoon",
        target_dir="build/mypyc", only_compile_paths=modules,
    )  # fmt: skip
    for extension in found:
        extension.extra_compile_args += CALLS_DIRECTLY
    return found


def extensions() -> list[Extension]:
    if MUST_NOT or not BUILDING.intersection(sys.argv):
        return [] if MUST_NOT else LOOPS
    reason = why_not()
    if not reason:
        return [*LOOPS, *compiled()]
    if MUST:
        raise SystemExit(f"halfmoon: HALFMOON_COMPILE=1, and no C compiler works here: {reason}")
    say(f"nothing is compiled, the same code runs in Python: no C compiler works here ({reason})")
    return []


class Build(build_ext):
    """All hot modules, or none: a shim without the group could not be imported."""

    def build_extensions(self) -> None:
        try:
            super().build_extensions()
        except (BaseError, CCompilerError) as error:
            if MUST:
                raise
            say(f"nothing but the loops is compiled, the same code runs in Python: {error}")
            for extension in self.extensions:
                Path(self.get_ext_fullpath(extension.name)).unlink(missing_ok=True)
            self.extensions = list(LOOPS)
            super().build_extensions()


setup(ext_modules=extensions(), cmdclass={"build_ext": Build})
