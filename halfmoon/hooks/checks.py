"""Checks a plugin passes before any of its hooks is called.

pluggy ignores a function whose name is no hook until it is asked (`check_pending`), and one without the mark for ever.
Both are a feature that silently does nothing, so both stop the start here.
"""

from __future__ import annotations

from types import FunctionType, MethodType, ModuleType

import pluggy

from halfmoon.config.sections import suggestion
from halfmoon.errors import StartError
from halfmoon.hooks import specs
from halfmoon.hooks.sources import Source

API_VERSION = 1
"""Raised when a plugin written for the version before would no longer work."""

HOOKS: tuple[str, ...] = tuple(name for name in vars(specs) if name.startswith("halfmoon_"))


class _Manager(pluggy.PluginManager):
    """Looks at a module's functions only. pluggy finds the same, but looks for everything that a module imports in ways
    that take some milliseconds for all plugins."""

    def parse_hookimpl_opts(self, plugin: object, name: str) -> pluggy.HookimplOpts | None:
        if isinstance(plugin, ModuleType) and not isinstance(vars(plugin).get(name), _HOOKABLE):
            return None
        return super().parse_hookimpl_opts(plugin, name)


_HOOKABLE = (FunctionType, MethodType, staticmethod, classmethod)


def new_manager() -> pluggy.PluginManager:
    """A pluggy manager that knows our hooks and no plugin."""
    manager = _Manager(specs.PROJECT)
    manager.add_hookspecs(specs)
    return manager


def register(manager: pluggy.PluginManager, source: Source) -> object:
    """Import the plugin and register it; gives the plugin. Raises StartError."""
    plugin = source.load()
    version = getattr(plugin, "api_version", None)
    if version != API_VERSION:
        said = "declares no api_version" if version is None else f"is written for api_version {version!r}"
        raise StartError(f"{where(source)}: {said}; this broker needs `api_version = {API_VERSION}`")
    namesake = manager.get_name(plugin)
    if namesake is not None:
        raise StartError(f"{where(source)}: is plugin {namesake} once more; switch one off")
    try:
        manager.register(plugin, source.name)
    except pluggy.PluginValidationError as error:
        raise StartError(f"{where(source)}: {' '.join(str(error).split())}") from None
    return plugin


def check_hooks(manager: pluggy.PluginManager, source: Source, plugin: object) -> tuple[str, ...]:
    """The plugin's hooks, by name. Raises StartError for one that is misspelt, unmarked or a wrapper."""
    callers = manager.get_hookcallers(plugin) or []
    for caller in callers:
        if not caller.has_spec():
            raise StartError(f"{where(source)}: there is no hook {caller.name}{suggestion(caller.name, HOOKS)}")
        for implementation in caller.get_hookimpls():
            if implementation.plugin is plugin and (implementation.wrapper or implementation.hookwrapper):
                raise StartError(f"{where(source)}: {caller.name} is a wrapper, but there is no call to wrap")
    for name in dir(plugin):
        unmarked = name.startswith("halfmoon_") and callable(getattr(plugin, name))
        if unmarked and manager.parse_hookimpl_opts(plugin, name) is None:
            raise StartError(f"{where(source)}: {name} is not marked with @hookimpl")
    return tuple(caller.name for caller in callers)


def where(source: Source) -> str:
    """How an error names the plugin."""
    return f"plugin {source.name} ({source.origin})"
