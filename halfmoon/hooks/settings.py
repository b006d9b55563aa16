"""A plugin's settings from all layers: flags > environment > broker.yaml > the defaults of its section."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from halfmoon.config.sections import Given, SettingError, decode, decode_section, join, leaves
from halfmoon.config.settings import ENVIRONMENT_PREFIX, PluginSettings, overlay
from halfmoon.errors import StartError
from halfmoon.hooks.sources import Source
from halfmoon.hooks.types import ConfigSection


class SettingsReader:
    """Reads one plugin's section after the other, and at the end complains of what nobody wanted."""

    def __init__(self, given: PluginSettings) -> None:
        self._sections = given.sections
        self._environment = dict(given.environment)
        self._overrides = dict(given.overrides)
        self._unclaimed = dict(given.extensions)
        self.extensions: dict[str, Any] = {}
        """Top-level sections, typed by the plugin that claimed them."""

    def read(self, source: Source, section: ConfigSection | None) -> Struct | None:
        """The settings of `source`, of the type that its `halfmoon_config` gave; None where it has none."""
        path = join("$.plugins", source.key)
        raw = self._sections.get(source.key)
        tree: dict[str, Any] = dict(raw) if isinstance(raw, Mapping) else {}
        if section is not None:
            for leaf in leaves(section.settings):
                variable = environment_name(source.name, leaf.path)
                if variable in self._environment:
                    overlay(tree, leaf.path, Given(self._environment.pop(variable), variable))
        tree.update(self._overrides.pop(source.key, {}))
        if section is None:
            if tree:
                raise SettingError(join(path, str(next(iter(tree)))), "this plugin has no settings")
            return None
        for name, kind in (section.extensions or {}).items():
            if name in self._unclaimed:
                self.extensions[name] = decode(kind, self._unclaimed.pop(name), f"$.{name}")
        return decode_section(section.settings, tree, path)

    def refuse_leftovers(self) -> None:
        """Raise for what no plugin that is on has."""
        for name in self._unclaimed:
            raise SettingError(f"$.{name}", "no enabled plugin has such a section")
        for variable in self._environment:
            raise StartError(f"environment: {variable}: no enabled plugin has this setting")
        for name in self._overrides:
            raise SettingError(join("$.plugins", name), "no such plugin is enabled")


def environment_name(plugin: str, path: tuple[str, ...]) -> str:
    """`delay`, `("levels",)` → `HALFMOON_PLUGINS_DELAY_LEVELS`; what is no letter or digit becomes `_`."""
    return ENVIRONMENT_PREFIX + re.sub(r"[^A-Z0-9]", "_", "_".join(("plugins", plugin, *path)).upper())
