"""How often plugins have raised what the broker goes on after: `halfmoon_plugin_errors_total`, by plugin and hook."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from msgspec import Struct, structs

from halfmoon.errors import BrokerError

T = TypeVar("T", bound=Struct)


class PluginErrors:
    """One for all plugins of a broker."""

    def __init__(self, owners: Mapping[tuple[str, str], str]) -> None:
        """`owners`: (hook, name of an object) → the plugin that gave it."""
        self._owners = owners
        self.counts: Counter[tuple[str, str]] = Counter()
        """(plugin, hook) → times."""

    def count(self, hook: str, plugin: str) -> None:
        self.counts[plugin, hook] += 1

    def count_of(self, hook: str, name: str) -> None:
        """As `count`, of the plugin that gave the object of this name."""
        self.count(hook, self._owners.get((hook, name), name))

    def watch(self, hook: str, given: Iterable[T], *fields: str) -> tuple[T, ...]:
        """The same objects, of which these functions count what they raise, and raise it still. A BrokerError is no
        fault of a plugin's: it refuses so."""
        return tuple(
            structs.replace(each, **{
                field: self._counting(hook, each.name, call)  # type: ignore[attr-defined]
                for field in fields
                if (call := getattr(each, field)) is not None
            })
            for each in given
        )  # fmt: skip

    def _counting(self, hook: str, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*given: Any) -> Any:
            try:
                return call(*given)
            except BrokerError:
                raise
            except Exception:
                self.count_of(hook, name)
                raise

        return counting
