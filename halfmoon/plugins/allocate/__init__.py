"""Allocation strategies: one file each, a pure function and the hook that offers it."""

from __future__ import annotations

from collections.abc import Mapping

from halfmoon.hooks import outside
from halfmoon.plugin import AnyAllocator
from halfmoon.plugins import BUILT_IN


def find_allocator(
    name: str, settings: Mapping[str, object] | None = None, *, plugin: str | None = None
) -> AnyAllocator:
    """The strategy called `name`, of a built-in plugin or of an installed package, for use outside a broker.

    `settings`: the plugin's section, as in broker.yaml. `plugin`: who offers it, where that has another name than the
    strategy; without it, all installed plugins are asked. Raises StartError where nobody offers it.
    """
    return outside.find_allocator(BUILT_IN, name, settings, plugin=plugin)
