"""A package whose `__init__` waits until somebody wants something of it.

kafka-python's `__init__` imports all its clients. The broker needs its protocol classes alone, and importing
`kafka.protocol` would run that `__init__` first: 20 ms of start-up and 4 MB, a tenth of the broker's own. And
`kafka.protocol.admin` imports messages of ACLs, quotas, users and transactions: 6 ms. So such a package is put in place
unexecuted. Whoever asks it for a name that is not there, as `from kafka import KafkaConsumer` does, has it executed
then, in the same module object.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec, module_from_spec
from threading import RLock
from types import ModuleType

_lock = RLock()


class _Unexecuted(ModuleType):
    """Stands in `sys.modules` with its path, so that submodules can be imported."""

    def __getattr__(self, name: str) -> object:
        # Only names that are missing come here. Those in underscores are looked for by the import system itself.
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        with _lock:
            if "_executing" in self.__dict__:
                # Its own code asks while it is executed: what is missing is missing.
                raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
            if type(self) is _Unexecuted:
                self._execute()
        return getattr(self, name)

    def _execute(self) -> None:
        spec = self.__spec__
        assert spec is not None
        assert spec.loader is not None
        self._executing = True
        try:
            spec.loader.exec_module(self)
            self.__class__ = ModuleType  # type: ignore[assignment]
        finally:
            del self._executing


def defer(name: str) -> None:
    """Put a package in place without executing it, unless it is there already or not installed."""
    spec = find_spec(name) if name not in sys.modules else None
    if spec is not None:
        module = module_from_spec(spec)
        module.__class__ = _Unexecuted
        sys.modules[name] = module
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, module)
