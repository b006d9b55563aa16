"""Where plugins come from: the built-in ones, installed packages, files, and objects that a test hands over.

- Built-in plugins are on unless broker.yaml says `NAME: false`.
- An installed package offers plugins by entry points of the group `halfmoon`. They are off until broker.yaml names
  them: a `pip install` alone must not change what a broker does.
- A path (`./my_plugin.py`, relative to broker.yaml) is a plugin too, named after the file.

Nothing is imported before it is known to be on.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from msgspec import Struct

from halfmoon.config.sections import Given, SettingError, join, suggestion
from halfmoon.errors import StartError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINT_GROUP = "halfmoon"

Kind = Literal["built-in", "package", "path", "object"]


class Source(Struct, frozen=True):
    """One plugin that could be loaded."""

    name: str
    kind: Kind
    origin: str
    """Where it comes from, for people: a module, a distribution with its version, or a path."""
    enabled: bool
    target: object
    """What `load` needs: a module's name, an EntryPoint, a path, or the plugin itself."""
    key: str
    """Its key in `$.plugins`; a path's is not its name."""

    def load(self) -> object:
        """The plugin: a module, or an object with hook methods. Whatever its import raises becomes a StartError."""
        try:
            loaded = _load(self)
            return loaded() if isinstance(loaded, type) else loaded
        except StartError:
            raise
        except Exception as error:
            raise StartError(f"plugin {self.name} ({self.origin}): {type(error).__name__}: {error}") from error


def installed_entry_points() -> Sequence[EntryPoint]:
    """Every entry point of the group `halfmoon` that pip has put here. To look takes a twentieth of a start."""
    from importlib.metadata import entry_points

    return tuple(entry_points(group=ENTRY_POINT_GROUP))


def names_others(sections: Mapping[str, object], built_in: Mapping[str, str]) -> bool:
    """Whether a section may be of an installed package's plugin."""
    return any(key not in built_in and not _is_path(key) for key in sections)


def find_sources(
    sections: Mapping[str, object],
    built_in: Mapping[str, str],
    installed: Iterable[EntryPoint],
    extra: Iterable[object] = (),
    base_dir: str = ".",
) -> list[Source]:
    """All plugins that there are, on or off, in the order they are loaded in.

    Raises StartError for a name that two of them have, SettingError for a section that names none of them.
    """
    sources = [
        Source(name, "built-in", module, _switch(sections, name, default=True), module, name)
        for name, module in built_in.items()
    ]
    sources += [
        Source(name, "package", _distribution(point), _switch(sections, name, default=False), point, name)
        for name, point in ((point.name, point) for point in installed)
    ]
    for key in sections:
        if _is_path(key):
            path = Path(base_dir, key)
            sources.append(Source(path.stem, "path", str(path), _switch(sections, key, default=True), path, key))
    for plugin in extra:
        name = _object_name(plugin)
        sources.append(Source(name, "object", repr(plugin), _switch(sections, name, default=True), plugin, name))
    _refuse_namesakes(sources)
    keys = {source.key for source in sources}
    for key in sections:
        if key not in keys:
            raise SettingError(join("$.plugins", key), f"no such plugin is installed{suggestion(key, keys)}")
    return sources


def _load(source: Source) -> object:
    target = source.target
    if source.kind == "package":
        return cast("EntryPoint", target).load()
    if isinstance(target, Path):
        return _load_file(target, source.name)
    return importlib.import_module(target) if isinstance(target, str) else target


def _load_file(path: Path, name: str) -> object:
    if not path.is_file():
        raise StartError(f"plugin {name}: there is no file {path}")
    module_name = f"halfmoon_plugin_{name}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise StartError(f"plugin {name}: {path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and pickling look a class's module up by name, so it has to be there while the file runs.
    sys.modules[module_name] = module
    spec.loader.exec_module(module)
    return module


def _switch(sections: Mapping[str, object], key: str, default: bool) -> bool:
    value = sections.get(key, default)
    if isinstance(value, Given):
        value = value.value
    if isinstance(value, bool):
        return value
    if value is None or isinstance(value, Mapping):
        return True
    if isinstance(value, str) and value in ("true", "false"):
        return value == "true"
    raise SettingError(join("$.plugins", key), f"got {value!r}, expected the plugin's settings, true or false")


def _refuse_namesakes(sources: Iterable[Source]) -> None:
    seen: dict[str, Source] = {}
    for source in sources:
        other = seen.setdefault(source.name, source)
        if other is not source:
            raise StartError(f"two plugins are called {source.name}: {other.origin} and {source.origin}; remove one")


def _is_path(key: str) -> bool:
    return key.endswith(".py")


def _object_name(plugin: object) -> str:
    name = getattr(plugin, "name", None) or getattr(plugin, "__name__", None) or type(plugin).__name__
    return str(name).rpartition(".")[2]


def _distribution(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else point.value
