"""Plugins outside a broker: what a client needs of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from halfmoon.config.sections import suggestion
from halfmoon.config.settings import Settings, load_settings
from halfmoon.errors import StartError
from halfmoon.hooks.checks import check_hooks, new_manager, register
from halfmoon.hooks.collect import Registered, collect, section_of
from halfmoon.hooks.context import PluginContext
from halfmoon.hooks.guard import Guard
from halfmoon.hooks.plugins import Plugins, load_plugins
from halfmoon.hooks.settings import SettingsReader
from halfmoon.hooks.sources import find_sources, installed_entry_points
from halfmoon.hooks.types import Command, FilterCompiler
from halfmoon.services.groups.allocation import AnyAllocator


def find_commands(settings: Settings, built_in: Mapping[str, str]) -> dict[str, Command]:
    """The commands of plugins that are on and not built in. Only these are imported. Raises StartError."""
    given = settings.plugins
    manager = new_manager()
    reader = SettingsReader(given)
    registered = []
    for source in find_sources(given.sections, built_in, installed_entry_points(), (), given.base_dir):
        if source.enabled and source.kind != "built-in":
            plugin = register(manager, source)
            check_hooks(manager, source, plugin)
            settings_of = reader.read(source, section_of(manager, source, plugin))
            registered.append(Registered(source, plugin, PluginContext(source.name, settings_of)))
    fields_ = [each for each in fields(Plugins) if each.name == "commands"]
    found: dict[str, Command] = collect(fields_, manager, registered, Guard())["commands"]
    return found


def find_filter(built_in: Mapping[str, str], name: str) -> FilterCompiler:
    """The filter language called `name`, of a built-in plugin or of an installed package; the one of its name is asked
    first. Raises StartError where nobody offers it."""
    points = sorted(installed_entry_points(), key=lambda point: point.name != name)
    loaded = load_plugins(load_settings({}, {}, {}), built_in, installed=[])
    offered = dict(loaded.filters)
    failures: list[str] = []
    for point in points:
        if name in offered:
            break
        try:
            settings = load_settings({"plugins": {point.name: True}}, {}, {})
            offered |= load_plugins(settings, built_in, installed=[point]).filters
        except StartError as error:
            failures.append(str(error))
    if name not in offered:
        raise StartError("; ".join([f"no plugin has the filter language {name}{suggestion(name, offered)}", *failures]))
    return offered[name]


def find_allocator(
    built_in: Mapping[str, str], name: str, settings: Mapping[str, object] | None = None, *, plugin: str | None = None
) -> AnyAllocator:
    """The strategy called `name`, of a built-in plugin (name → module) or of an installed package.

    `settings`: the plugin's section, as in broker.yaml. `plugin`: who offers it, where that has another name than the
    strategy; without it, all installed plugins are asked. Raises StartError where nobody offers it.
    """
    points = {point.name: point for point in installed_entry_points()}
    wanted = plugin or name
    if settings and wanted not in built_in and wanted not in points:
        raise StartError(f"no plugin is called {wanted}{suggestion(wanted, [*built_in, *points])}")
    others = [] if plugin else [candidate for candidate in points if candidate != wanted]
    offered: set[str] = set(built_in)
    failures: list[str] = []
    for candidate in (wanted, *others):
        section = settings if candidate == wanted and settings else True
        known = candidate in built_in or candidate in points
        try:
            loaded = load_plugins(
                load_settings({"plugins": {candidate: section} if known else {}}, {}, {}),
                built_in,
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
