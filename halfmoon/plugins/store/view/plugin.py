"""The hooks of filtered views: what defines one (`configs`), what fills it (`views`), and those of broker.yaml.

Views that broker.yaml names are there when the broker starts, or as soon as their source is.

    views:
      orders.paid:
        source: orders
        tag: "paid || refunded"            # or sql: "…", or any filter language that a plugin offers
        from: latest                       # without it, earliest: with what the source holds already
        configs: {retention.ms: 86400000}  # the view's own, as of every topic

A view that is there already must be the one that is named: views never change. One that is not named any more stays,
until somebody deletes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from halfmoon.plugin import (
    BrokerError,
    ConfigSection,
    Feature,
    FeatureContext,
    PluginContext,
    Section,
    SettingError,
    TopicChange,
    TopicConfigPrefix,
    hookimpl,
    setting_path,
)
from halfmoon.plugins.store.view.configs import VIEW_CONFIGS
from halfmoon.plugins.store.view.definition import VIEW_FROM, VIEW_PREFIX, VIEW_SOURCE, view_configs
from halfmoon.plugins.store.view.views import Views

api_version = 1

NAMED = ("source", "configs")
"""What `$.views.NAME` says beside its filter and where it begins."""

Definition = dict[str, Any]


class ViewSettings(Section, frozen=True, kw_only=True):
    """`$.plugins.view`: there is nothing to set."""


@hookimpl
def halfmoon_config() -> ConfigSection:
    return ConfigSection(settings=ViewSettings, extensions={"views": dict[str, dict[str, Any]]})


@hookimpl
def halfmoon_topic_configs() -> list[TopicConfigPrefix]:
    return [VIEW_CONFIGS]


@hookimpl
def halfmoon_features(ctx: FeatureContext) -> list[Feature]:
    return [Views(ctx).feature()]


@hookimpl
def halfmoon_started(ctx: PluginContext) -> None:
    views = _views(ctx)
    _refuse_circles(views)
    for name, wanted in _sources_first(views):
        _make(ctx, name, wanted)


@hookimpl
def halfmoon_topic_changed(ctx: PluginContext, topic: str, change: TopicChange) -> None:
    if change == "created":
        for name, wanted in _views(ctx).items():
            if wanted.get("source") == topic and ctx.topic_configs(name) is None:
                _make(ctx, name, wanted)


def _views(ctx: PluginContext) -> dict[str, Definition]:
    found: dict[str, Definition] = ctx.sections.get("views") or {}
    return found


def _make(ctx: PluginContext, name: str, wanted: Definition) -> None:
    """Make the view if it is not there and can be made. Raises SettingError."""
    path = setting_path("$.views", name)
    definition, configs = _configs(path, wanted)
    known = ctx.topic_configs(name)
    try:
        if known is not None:
            _compare(path, definition, known)
        elif ctx.topic_configs(str(wanted["source"])) is None:
            ctx.check_view(definition | configs)
            ctx.logger.info("event=view_waits view=%s source=%s", name, wanted["source"])
        else:
            ctx.create_topic(name, definition | configs)
    except BrokerError as error:
        raise SettingError(path, error.message) from None


def _configs(path: str, wanted: Definition) -> tuple[dict[str, str], dict[str, str]]:
    """The configurations of the topic: those that define the view, and the others. Raises SettingError."""
    source, configs = wanted.get("source"), wanted.get("configs") or {}
    if not isinstance(source, str) or not source:
        raise SettingError(f"{path}.source", f"got {source!r}, expected the name of a topic")
    if not isinstance(configs, Mapping):
        raise SettingError(f"{path}.configs", f"got {configs!r}, expected topic configurations by name")
    definition = {VIEW_SOURCE: source}
    for key, value in wanted.items():
        if key not in NAMED:
            if not isinstance(value, str):
                raise SettingError(setting_path(path, key), f"got {value!r}, expected text")
            definition[VIEW_PREFIX + key] = value
    return definition, {str(key): _text(value) for key, value in configs.items()}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _compare(path: str, wanted: Mapping[str, str], known: Mapping[str, str]) -> None:
    """Where a view begins is of no interest any more once it is there. Raises SettingError."""
    here = {key: value for key, value in view_configs(known).items() if key != VIEW_FROM}
    if not here:
        raise SettingError(path, "there is a topic of that name, which is no view")
    if here != {key: value for key, value in wanted.items() if key != VIEW_FROM}:
        said = ", ".join(f"{key.removeprefix(VIEW_PREFIX)}: {value!r}" for key, value in sorted(here.items()))
        raise SettingError(
            path, f"there is a view of that name with {said}, and views never change: delete it, or choose another name"
        )


def _refuse_circles(views: Mapping[str, Definition]) -> None:
    for name in views:
        passed = [name]
        while (source := views.get(passed[-1], {}).get("source")) in views:
            if source in passed:
                raise SettingError(setting_path("$.views", name), f"a circle: {' from '.join([*passed, str(source)])}")
            passed.append(str(source))


def _sources_first(views: Mapping[str, Definition]) -> Iterator[tuple[str, Definition]]:
    """So that a view of a view finds it. There are no circles."""

    def depth(name: str) -> int:
        source = views[name].get("source")
        return 1 + depth(str(source)) if source in views else 0

    for name in sorted(views, key=depth):
        yield name, views[name]
