"""Calls each plugin's hooks once and puts what they give into plain tuples and dicts.

Every implementation is called directly, with its own plugin's context; pluggy's own call would hand one context to all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import Field, field
from functools import partial
from inspect import signature
from types import UnionType
from typing import Any, Literal, TypeVar, get_args

import pluggy
from msgspec import Struct

from halfmoon.errors import StartError
from halfmoon.hooks import specs
from halfmoon.hooks.checks import HOOKS, where
from halfmoon.hooks.context import PluginContext
from halfmoon.hooks.guard import Guard
from halfmoon.hooks.sources import Source
from halfmoon.hooks.types import ConfigSection

T = TypeVar("T")
Kind = Literal["list", "mapping", "event", "late"]


def given(hook: str, kind: Kind | type | UnionType = "event") -> Any:
    """A field of `Plugins` that a hook fills: with a list of objects of a type, each of which has a `name`; with a
    mapping of names; or with functions to be called when there is reason to. "late": these get another context."""
    return field(default_factory=dict if kind == "mapping" else tuple, metadata={"hook": hook, "kind": kind})


_ARGUMENTS = {hook: tuple(signature(getattr(specs, hook)).parameters) for hook in HOOKS}


class Registered(Struct, frozen=True):
    """A plugin that passed the checks."""

    source: Source
    plugin: object
    context: PluginContext


class Listener(Struct, frozen=True):
    """One plugin's function for an event, taking all the arguments of the hook but its context."""

    plugin: str
    call: Callable[..., Any]


class Late(Struct, frozen=True):
    """One plugin's function for a hook whose context is made later."""

    context: PluginContext
    call: Callable[[Any], Any]


class _Names:
    """Who offered a name; a second offer of the same kind stops the start."""

    def __init__(self) -> None:
        self.owners: dict[tuple[str, str], Source] = {}

    def claim(self, hook: str, name: str, source: Source) -> None:
        other = self.owners.setdefault((hook, name), source)
        if other is not source:
            raise StartError(f"{where(source)}: {hook} offers {name}, and so does {where(other)}; switch one off")


def section_of(manager: pluggy.PluginManager, source: Source, plugin: object) -> ConfigSection | None:
    """What the plugin's `halfmoon_config` gives; None without one."""
    implementation = _implementation(manager, "halfmoon_config", plugin)
    if implementation is None:
        return None
    section = _call(source, "halfmoon_config", implementation.function)
    if not isinstance(section, ConfigSection):
        raise StartError(f"{where(source)}: halfmoon_config gave {section!r}, expected a ConfigSection")
    return section


def collect(
    fields: Iterable[Field[Any]], manager: pluggy.PluginManager, registered: Sequence[Registered], guard: Guard
) -> dict[str, Any]:
    """What hooks fill of these fields of `Plugins`, guarded, and `owners`. Raises StartError for a wrong result or a
    name offered twice."""
    names = _Names()
    found: dict[str, Any] = {}
    for each in fields:
        if "hook" not in each.metadata:
            continue
        hook, kind = each.metadata["hook"], each.metadata["kind"]
        if kind == "mapping":
            found[each.name] = {
                name: _guarded(guard, one, hook, function)
                for name, (one, function) in _mapped(manager, registered, names, hook).items()
            }
        elif kind == "event":
            found[each.name] = tuple(
                Listener(one.source.name, _guarded(guard, one, hook, _bound(hook, implementation, one.context)))
                for one, implementation in _implementations(manager, registered, hook)
            )
        elif kind == "late":
            found[each.name] = tuple(
                Late(one.context, partial(_late, implementation))
                for one, implementation in _implementations(manager, registered, hook)
            )
        else:
            found[each.name] = tuple(
                _guarded(guard, one, hook, item) for one, item in _listed(manager, registered, names, hook, kind)
            )
    return found | {"owners": {key: source.name for key, source in names.owners.items()}}


def _guarded(guard: Guard, one: Registered, hook: str, thing: T) -> T:
    """Commands have a process of their own, and built-in plugins are ours."""
    if one.source.kind == "built-in" or hook == "halfmoon_commands":
        return thing
    return guard.given(one.source.name, hook, thing)


def _listed(
    manager: pluggy.PluginManager, registered: Sequence[Registered], names: _Names, hook: str, kind: type | UnionType
) -> Iterator[tuple[Registered, Any]]:
    kinds = " or ".join(each.__name__ for each in (get_args(kind) or (kind,)))
    for one, implementation in _implementations(manager, registered, hook):
        given = _call(one.source, hook, _bound(hook, implementation, one.context))
        if isinstance(given, str | bytes) or not isinstance(given, Sequence):
            raise StartError(f"{where(one.source)}: {hook} gave {given!r}, expected a list of {kinds}")
        for item in given:
            if not isinstance(item, kind):
                raise StartError(f"{where(one.source)}: {hook} gave {item!r}, expected a {kinds}")
            names.claim(hook, getattr(item, "name"), one.source)  # noqa: B009  (every such type has a name)
            yield one, item


def _mapped(
    manager: pluggy.PluginManager, registered: Sequence[Registered], names: _Names, hook: str
) -> dict[str, tuple[Registered, Any]]:
    found: dict[str, tuple[Registered, Any]] = {}
    for one, implementation in _implementations(manager, registered, hook):
        given = _call(one.source, hook, _bound(hook, implementation, one.context))
        if not isinstance(given, Mapping) or not all(isinstance(n, str) and callable(f) for n, f in given.items()):
            raise StartError(f"{where(one.source)}: {hook} gave {given!r}, expected names with their functions")
        for name, function in given.items():
            names.claim(hook, name, one.source)
            found[name] = one, function
    return found


def _implementations(
    manager: pluggy.PluginManager, registered: Sequence[Registered], hook: str
) -> list[tuple[Registered, pluggy.HookImpl]]:
    """In the plugins' order; `tryfirst` before, `trylast` after all others."""
    found = [
        (one, implementation)
        for one in registered
        if (implementation := _implementation(manager, hook, one.plugin)) is not None
    ]
    return sorted(found, key=lambda pair: (not pair[1].tryfirst, pair[1].trylast))


def _implementation(manager: pluggy.PluginManager, hook: str, plugin: object) -> pluggy.HookImpl | None:
    for implementation in getattr(manager.hook, hook).get_hookimpls():
        if implementation.plugin is plugin:
            return implementation  # type: ignore[no-any-return]
    return None


def _bound(hook: str, implementation: pluggy.HookImpl, context: PluginContext) -> Callable[..., Any]:
    """The function with its context put in; it takes the hook's other arguments, named in the plugin or not."""
    arguments = [name for name in _ARGUMENTS[hook] if name != "ctx"]
    function, wanted = implementation.function, list(implementation.argnames)
    if wanted == arguments:
        return function
    if wanted == ["ctx", *arguments]:
        return partial(function, context)

    def pick(*given: Any) -> Any:
        named = dict(zip(arguments, given, strict=True), ctx=context)
        return function(*(named[name] for name in wanted))

    return pick


def _late(implementation: pluggy.HookImpl, context: Any) -> Any:
    return implementation.function(context) if implementation.argnames else implementation.function()


def _call(source: Source, hook: str, function: Callable[[], Any]) -> Any:
    try:
        return function()
    except StartError:
        raise
    except (Exception, SystemExit) as error:
        raise StartError(f"{where(source)}: {hook}: {type(error).__name__}: {error}") from error
