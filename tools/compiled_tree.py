"""A copy of the source tree with the hot modules compiled beside their `.py`: `python tools/compiled_tree.py [FOLDER]`.

The copy is FOLDER (build/compiled). A tree that is as it was is not built again. Nothing of the tree it is called in
changes: an extension beside a newer `.py` would win silently.

Exit code 1 where no C compiler works, and where mypyc warns of a default that would fail at run time only.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path("build/compiled")
BROKEN = "Unsupported default attribute value"
"""What mypyc compiles with this warning raises KeyError when it is used."""
STAMP = ".built"
BUILT = ("build", "dist", "out", "data", "artifacts", "__pycache__")
"""Folders that are no source."""


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0]) if arguments else FOLDER
    source = _files(("halfmoon/**/*.py", "halfmoon/**/*.pyx", "pyproject.toml", "setup.py"))
    wanted = _digest(source)
    stamp = folder / STAMP
    known = stamp.read_text() if stamp.exists() else ""
    _copy(folder, keep_extensions=known == wanted)
    if known == wanted:
        return 0
    stamp.unlink(missing_ok=True)
    begun_s = time.monotonic()
    said = subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"], cwd=folder, text=True,
        env={**os.environ, "HALFMOON_COMPILE": "1"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    if said.returncode or BROKEN in said.stdout:
        print(said.stdout, file=sys.stderr)
        return 1
    print(f"halfmoon: compiled into {folder} in {time.monotonic() - begun_s:.0f} s", file=sys.stderr)
    stamp.write_text(wanted)
    return 0


def _files(patterns: tuple[str, ...]) -> list[Path]:
    return sorted(path for pattern in patterns for path in Path().glob(pattern))


def _digest(files: list[Path]) -> str:
    found = hashlib.sha256(sys.version.encode())
    for path in files:
        found.update(f"{path}\n".encode())
        found.update(path.read_bytes())
    return found.hexdigest()


def _copy(folder: Path, *, keep_extensions: bool) -> None:
    """This tree, but for what was built in it. `keep_extensions`: those there are the right ones."""
    for left in folder.iterdir() if folder.exists() else ():
        if not keep_extensions or (left.name not in ("halfmoon", STAMP) and left.suffix != ".so"):
            shutil.rmtree(left) if left.is_dir() else left.unlink()
    for path in _sources():
        if path.is_file():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, folder / path)


def _sources() -> Iterator[Path]:
    """What git knows and what is new; without git all that no tool has made."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], capture_output=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        for folder, folders, names in os.walk("."):
            folders[:] = [name for name in folders if name not in BUILT and (name == ".ci" or not name.startswith("."))]
            kept = (name for name in names if not name.endswith(".so") and not (name[0] == "_" and name.endswith(".c")))
            yield from (Path(folder, name) for name in kept)
    else:
        yield from map(Path, os.fsdecode(listed).split("\0"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
