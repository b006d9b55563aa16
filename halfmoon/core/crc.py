"""CRC-32C, the checksum of record batches, frames and index files.

The library `crc32c` uses the processor's own instruction (25 GB/s) and takes memoryviews. Where it cannot be imported,
crcmod serves: right, but some fifty times slower, so the broker says so once at start (`fallback_warning`).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from typing_extensions import Buffer

_SAMPLE_BYTES: Final = 1 << 20


class Checksum(Protocol):
    """`value` is the checksum of what went before, so that one checksum can run over several buffers."""

    def __call__(self, data: Buffer, value: int = 0, /) -> int: ...


def load_crc32c() -> Checksum:
    """The function of the library `crc32c`; ImportError where it is missing or was built for another processor.

    Of the package only its extension is imported, where it is found: the rest looks up a version and makes the parser
    of a command line, a tenth of a broker's start.
    """
    package = find_spec("crc32c")
    folders = None if package is None else package.submodule_search_locations
    spec = PathFinder.find_spec("crc32c._crc32c", folders) if folders else None
    function: Checksum
    if spec is None or spec.loader is None:
        function = import_module("crc32c").crc32c
    else:
        extension = module_from_spec(spec)
        spec.loader.exec_module(extension)
        function = extension.crc32c
    return function


def load_crcmod() -> Checksum:
    """The same function made by crcmod, whose C part is optional too."""
    function: Checksum = import_module("crcmod.predefined").mkPredefinedCrcFun("crc-32c")
    return function


def choose(*loaders: tuple[str, Callable[[], Checksum]]) -> tuple[str, Checksum]:
    """The first backend that loads, with its name. ImportError names those that did not."""
    missing: list[str] = []
    for name, load in loaders:
        try:
            return name, load()
        except ImportError:
            missing.append(name)
    raise ImportError(f"no CRC-32C library can be imported; tried {', '.join(missing)}")


BACKEND: str
"""Which library computes the checksums: "crc32c" or "crcmod"."""

crc32c: Checksum
"""crc32c(data, value=0) -> int. The library's own function, not a wrapper: it is called for every batch."""

BACKEND, crc32c = choose(("crc32c", load_crc32c), ("crcmod", load_crcmod))


def measure_mb_per_s(seconds: Callable[[], float], checksum: Checksum = crc32c) -> float:
    """How fast `checksum` is here, in MB (10^6 bytes) per second. `seconds` is a clock: the core has none.

    Costs a few milliseconds with the slow backend, and tens with one in pure Python.
    """
    sample = memoryview(bytes(_SAMPLE_BYTES))
    rounds = 0
    started = seconds()
    while (elapsed := seconds() - started) < 0.002 or not rounds:
        checksum(sample)
        rounds += 1
    return rounds * _SAMPLE_BYTES / elapsed / 1e6


def fallback_warning(seconds: Callable[[], float], backend: str = BACKEND) -> str | None:
    """One line for the log when the slow backend has to serve, with its measured speed; None otherwise."""
    if backend == "crc32c":
        return None
    speed = measure_mb_per_s(seconds)
    return (
        f"the library crc32c cannot be imported, so checksums are computed by {backend} at {speed:.0f} MB/s, "
        "which bounds the throughput of this broker; `pip install crc32c` to change that"
    )
