"""Allocation strategies: one file each, a pure function and the hook that offers it."""

from __future__ import annotations

from collections.abc import Mapping

from halfmoon.core.config import load_settings
from halfmoon.core.errors import StartError
from halfmoon.core.plugin_sources import installed_entry_points
from halfmoon.core.plugins import load_plugins
from halfmoon.core.sections import suggestion
from halfmoon.plugin import AnyAllocator
from halfmoon.plugins import BUILT_IN


def find_allocator(
    name: str, settings: Mapping[str, object] | None = None, *, plugin: str | None = None
) -> AnyAllocator:
    """The strategy called `name`, of a built-in plugin or of an installed package, for use outside a broker.

    `settings`: the plugin's section, as in broker.yaml. `plugin`: who offers it, where that has another name than the
    strategy; without it, all installed plugins are asked. Raises StartError where nobody offers it.
    """
    points = {point.name: point for point in installed_entry_points()}
    wanted = plugin or name
    if settings and wanted not in BUILT_IN and wanted not in points:
        raise StartError(f"no plugin is called {wanted}{suggestion(wanted, [*BUILT_IN, *points])}")
    others = [] if plugin else [candidate for candidate in points if candidate != wanted]
    offered: set[str] = set(BUILT_IN)
    failures: list[str] = []
    for candidate in (wanted, *others):
        section = settings if candidate == wanted and settings else True
        known = candidate in BUILT_IN or candidate in points
        try:
            loaded = load_plugins(
                load_settings({"plugins": {candidate: section} if known else {}}, {}, {}),
                BUILT_IN,
                installed=[points[candidate]] if candidate in points else [],
            )
        except StartError as error:
            # Another package's mistake is not this consumer's, unless nobody else has the strategy.
            if candidate == wanted:
                raise
            failures.append(str(error))
            continue
        if name in loaded.allocators:
            return loaded.allocators[name]
        offered.update(loaded.allocators)
    raise StartError("; ".join([f"no plugin offers the allocator {name}{suggestion(name, offered)}", *failures]))
