"""The plugin manager: what it loads, what it refuses and how it says so, and what becomes of what plugins give."""

from __future__ import annotations

import logging
from importlib.metadata import EntryPoint
from inspect import unwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Struct, structs

from halfmoon.config.settings import Settings, load_settings
from halfmoon.errors import BrokerError, Fault, StartError
from halfmoon.hooks.errors import PluginErrors
from halfmoon.hooks.plugins import Plugins, installed_plugins, load_plugins
from halfmoon.plugin import (
    Complete,
    ConfigSection,
    Dispatcher,
    Duration,
    HoldPolicy,
    Observer,
    PluginContext,
    PutInterceptor,
    Relay,
    Section,
    Service,
    SettingError,
    hookimpl,
    moving,
)
from halfmoon.plugins import BUILT_IN


def load(*plugins: object, config: dict[str, Any] | None = None, **options: Any) -> Plugins:
    env = options.pop("env", {})
    overrides = options.pop("overrides", {})
    settings = load_settings(config or {}, env, overrides)
    return load_plugins(settings, BUILT_IN, installed=options.pop("installed", []), extra=plugins, **options)


def refused(*plugins: object, **options: Any) -> str:
    with pytest.raises(StartError) as caught:
        load(*plugins, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


class Base:
    api_version = 1

    def __init__(self, name: str = "mine") -> None:
        self.name = name

    def __repr__(self) -> str:
        return "a test"


def plugin(name: str = "mine", **hooks: Any) -> object:
    """A plugin whose hooks are the given functions."""
    made = Base(name)
    for hook, function in hooks.items():
        setattr(made, hook, hookimpl(function))
    return made


# ---------------------------------------------------------------------------------------------- what is on, from where


def test_without_a_word_the_built_in_plugins_are_on() -> None:
    loaded = load()
    assert [info.name for info in loaded.infos if info.enabled] == list(BUILT_IN)
    others = {"delay", "retry", "schedule", "transaction", "tag", "sql92", "view"}
    assert set(loaded.allocators) == set(BUILT_IN) - others
    assert set(loaded.filters) == {"tag", "sql92"}
    assert all("halfmoon_allocators" in info.hooks for info in loaded.infos if info.name not in others)
    assert [interceptor.name for interceptor in loaded.interceptors] == [
        "retry",
        "schedule",
        "transaction-half",
        "transaction-end",
        "delay",
    ]
    assert [relay.source for relay in loaded.relays] == ["RMQ_SYS_TRANS_HALF_TOPIC"]
    assert loaded.observers == ()


def test_a_built_in_plugin_can_be_switched_off() -> None:
    loaded = load(config={"plugins": {"machine_room": False}})
    assert "machine_room" not in loaded.allocators
    assert next(info for info in loaded.infos if info.name == "machine_room").enabled is False


def test_an_installed_plugin_is_off_until_it_is_named() -> None:
    point = EntryPoint("elsewhere", "halfmoon.plugins.allocate.averagely", "halfmoon")
    unread = EntryPoint("broken", "no.such.module", "halfmoon")
    settings = load_settings({"plugins": {"averagely": True}}, {}, {})
    infos = {info.name: info for info in installed_plugins(settings, BUILT_IN, [point, unread])}
    assert infos["averagely"].enabled
    assert not infos["elsewhere"].enabled
    assert "elsewhere" not in [info.name for info in load(installed=[point, unread]).infos if info.enabled]
    named: dict[str, Any] = {"plugins": {"elsewhere": True}}
    assert "is plugin averagely once more" in refused(config=named, installed=[point])
    named["plugins"]["averagely"] = False
    assert "elsewhere" in [info.name for info in load(config=named, installed=[point]).infos if info.enabled]


def test_a_path_is_relative_to_the_file_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from halfmoon.plugin import hookimpl\n"
        "api_version = 1\n"
        "@hookimpl\n"
        "def halfmoon_allocators(ctx):\n"
        "    return {'mine': lambda members, queues: {}}\n",
        encoding="utf-8",
    )
    path = tmp_path / "broker.yaml"
    path.write_text("plugins: {./mine.py: true}\ngroups: {default_assignor: mine}\n", encoding="utf-8")
    loaded = load_plugins(load_settings(path, {}, {}), BUILT_IN, installed=[])
    assert "mine" in loaded.allocators
    assert loaded.infos[-1].origin == str(tmp_path / "mine.py")


def test_files_that_are_no_plugins(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def f(:\n", encoding="utf-8")
    assert "there is no file" in refused(config={"plugins": {str(tmp_path / "none.py"): True}})
    assert "SyntaxError" in refused(config={"plugins": {str(tmp_path / "bad.py"): {}}})


def test_a_class_is_a_plugin_too() -> None:
    class Mine:
        api_version = 1

        @hookimpl
        def halfmoon_allocators(self, ctx: PluginContext) -> dict[str, Any]:
            return {"mine": lambda members, queues: {}}

    assert "mine" in load(Mine).allocators


def test_sections_of_unknown_plugins() -> None:
    assert refused(config={"plugins": {"stickly": True}}) == (
        "$.plugins.stickly: no such plugin is installed; did you mean sticky?"
    )
    message = refused(config={"plugins": {"sticky": 7}})
    assert message == "$.plugins.sticky: got 7, expected the plugin's settings, true or false"
    assert refused(overrides={"plugins.stickly.x": 1}) == "$.plugins.stickly: no such plugin is enabled"


def test_two_plugins_of_one_name() -> None:
    assert refused(plugin("sticky")).startswith("two plugins are called sticky: halfmoon.plugins.allocate.sticky and ")


# ---------------------------------------------------------------------------------------------- mistakes stop the start


def test_an_import_that_fails() -> None:
    point = EntryPoint("broken", "no_such_module_anywhere", "halfmoon")
    message = refused(config={"plugins": {"broken": True}}, installed=[point])
    assert message.startswith("plugin broken (no_such_module_anywhere): ModuleNotFoundError")


@pytest.mark.parametrize(
    ("version", "message"), [(None, "declares no api_version"), (2, "is written for api_version 2"), ("1", "'1'")]
)
def test_another_api_version(version: object, message: str) -> None:
    mine = plugin()
    mine.api_version = version
    assert message in refused(mine)
    assert "this broker needs `api_version = 1`" in refused(mine)


def test_a_misspelt_hook() -> None:
    assert refused(plugin(halfmoon_allocator=lambda ctx: {})) == (
        "plugin mine (a test): there is no hook halfmoon_allocator; did you mean halfmoon_allocators?"
    )


def test_a_misspelt_argument() -> None:
    message = refused(plugin(halfmoon_allocators=lambda context: {}))
    assert message.startswith("plugin mine (a test): ")
    assert "context" in message


def test_a_hook_without_its_mark() -> None:
    mine = plugin()
    mine.halfmoon_allocators = lambda ctx: {}
    assert refused(mine) == "plugin mine (a test): halfmoon_allocators is not marked with @hookimpl"


def test_a_wrapper() -> None:
    mine = plugin()

    def halfmoon_allocators(ctx: PluginContext) -> Any:
        return (yield)

    mine.halfmoon_allocators = hookimpl(halfmoon_allocators, wrapper=True)
    assert "halfmoon_allocators is a wrapper" in refused(mine)


def test_a_name_offered_twice() -> None:
    first = plugin("first", halfmoon_filters=lambda ctx: {"sql": lambda expression: None})
    second = plugin("second", halfmoon_filters=lambda ctx: {"sql": lambda expression: None})
    assert refused(first, second) == (
        "plugin second (a test): halfmoon_filters offers sql, and so does plugin first (a test); switch one off"
    )
    relay = Relay("r", "topic", lambda message: Complete("seen"))
    one, other = (plugin(name, halfmoon_relays=lambda ctx: [relay]) for name in ("first", "second"))
    assert "halfmoon_relays offers r, and so does plugin first" in refused(one, other)


@pytest.mark.parametrize(
    ("hook", "given", "message"),
    [
        ("halfmoon_relays", 5, "halfmoon_relays gave 5, expected a list of Relay"),
        ("halfmoon_relays", ["x"], "halfmoon_relays gave 'x', expected a Relay"),
        ("halfmoon_topic_configs", 5, "gave 5, expected a list of TopicConfig or TopicConfigPrefix"),
        ("halfmoon_topic_configs", ["x"], "gave 'x', expected a TopicConfig or TopicConfigPrefix"),
        ("halfmoon_group_configs", ["x"], "gave 'x', expected a GroupConfig"),
        ("halfmoon_allocators", None, "halfmoon_allocators gave None, expected names with their functions"),
        ("halfmoon_allocators", {"x": 1}, "halfmoon_allocators gave {'x': 1}, expected names"),
        ("halfmoon_config", Settings, "expected a ConfigSection"),
    ],
)
def test_a_result_of_the_wrong_type(hook: str, given: object, message: str) -> None:
    function = (lambda: given) if hook in ("halfmoon_config", "halfmoon_topic_configs") else (lambda ctx: given)
    assert message in refused(plugin(**{hook: function}))


def test_a_hook_that_raises() -> None:
    def halfmoon_allocators(ctx: PluginContext) -> dict[str, Any]:
        raise RuntimeError("no luck")

    assert refused(plugin(halfmoon_allocators=halfmoon_allocators)) == (
        "plugin mine (a test): halfmoon_allocators: RuntimeError: no luck"
    )


def test_the_default_assignor_must_be_offered() -> None:
    assert refused(config={"groups": {"default_assignor": "averagly"}}) == (
        "$.groups.default_assignor: got 'averagly', which no enabled plugin offers; did you mean averagely?"
    )
    assert refused(config={"plugins": {"averagely": False}}).startswith("$.groups.default_assignor: got 'averagely'")


# ---------------------------------------------------------------------------------------------- settings


class Inner(Section, frozen=True, kw_only=True):
    wait_ms: Duration = 5


class Mine(Section, frozen=True, kw_only=True):
    levels: str = "1s 5s"
    timeout_ms: Duration = 6_000
    inner: Inner = Inner()

    def __post_init__(self) -> None:
        if "x" in self.levels:
            raise SettingError("levels", f"got {self.levels!r}, expected durations")


def configured(**options: Any) -> Mine:
    seen: list[PluginContext] = []
    mine = plugin(halfmoon_config=lambda: ConfigSection(Mine), halfmoon_started=lambda ctx: seen.append(ctx))
    load(mine, **options).started()
    return seen[0].settings_as(Mine)


def test_a_plugins_settings_come_from_all_layers() -> None:
    assert configured() == Mine()
    config = {"plugins": {"mine": {"levels": "2s", "timeout": "7s"}}}
    env = {"HALFMOON_PLUGINS_MINE_TIMEOUT": "8s", "HALFMOON_PLUGINS_MINE_INNER_WAIT": "9ms"}
    assert configured(config=config).timeout_ms == 7_000
    assert configured(config=config, env=env) == Mine(levels="2s", timeout_ms=8_000, inner=Inner(wait_ms=9))
    assert configured(config=config, env=env, overrides={"plugins.mine.timeout": "1s"}).timeout_ms == 1_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"config": {"plugins": {"mine": {"levels": 5}}}},
            "$.plugins.mine.levels: got 5, expected text",
        ),
        (
            {"config": {"plugins": {"mine": {"levels": "1x"}}}},
            "$.plugins.mine.levels: got '1x', expected durations",
        ),
        (
            {"env": {"HALFMOON_PLUGINS_MINE_LEVELS": "1x"}},
            "$.plugins.mine.levels (from HALFMOON_PLUGINS_MINE_LEVELS): got '1x', expected durations",
        ),
        (
            {"config": {"plugins": {"mine": {"level": "1s"}}}},
            "$.plugins.mine.level: no such setting; did you mean levels?",
        ),
        (
            {"config": {"plugins": {"mine": {"inner": {"wait": 1}}}}},
            "$.plugins.mine.inner.wait: got 1, expected a duration such as 100ms, 30s or 7d",
        ),
        (
            {"env": {"HALFMOON_PLUGINS_MINE_LEVEL": "1s"}},
            "environment: HALFMOON_PLUGINS_MINE_LEVEL: no enabled plugin has this setting",
        ),
    ],
)
def test_wrong_plugin_settings(options: dict[str, Any], message: str) -> None:
    assert refused(plugin(halfmoon_config=lambda: ConfigSection(Mine)), **options) == message


def test_settings_for_a_plugin_that_has_none() -> None:
    message = "$.plugins.averagely.size: this plugin has no settings"
    assert refused(config={"plugins": {"averagely": {"size": 1}}}) == message


def test_a_context_knows_the_type_of_its_settings() -> None:
    with pytest.raises(TypeError, match="mine: settings are NoneType, not Mine"):
        PluginContext("mine").settings_as(Mine)


def test_a_top_level_section_needs_a_plugin_that_claims_it() -> None:
    class View(Section, frozen=True, kw_only=True):
        source: str

    config = {"views": {"orders.paid": {"source": "orders"}}, "plugins": {"view": False}}
    assert refused(config=config) == "$.views: no enabled plugin has such a section"
    mine = plugin(halfmoon_config=lambda: ConfigSection(Mine, {"views": dict[str, View]}))
    loaded = load(mine, config=config)
    assert loaded.extensions == {"views": {"orders.paid": View(source="orders")}}
    assert [context.sections for context in loaded.contexts if context.sections] == [loaded.extensions]
    assert refused(mine, config=config | {"views": {"orders.paid": {}}}) == '$.views["orders.paid"].source: missing'


# ---------------------------------------------------------------------------------------------- what plugins give


def unguarded(given: Struct) -> Struct:
    """With the functions that the plugin gave (hooks/guard.py)."""
    fields = {field: getattr(given, field) for field in given.__struct_fields__}
    return structs.replace(given, **{name: unwrap(each) for name, each in fields.items() if callable(each)})


def test_everything_given_is_resolved_into_tuples_and_dicts() -> None:
    given: dict[str, Any] = {
        "halfmoon_commitlog": PutInterceptor("i", ("DELAY",), lambda put: put.batch),
        "halfmoon_dispatch": Dispatcher("d", lambda batches: None, lambda: b""),
        "halfmoon_hold": HoldPolicy("h", lambda held: None, lambda held, partition, arrival: True, lambda held: None),
        "halfmoon_relays": Relay("r", "source", lambda message: Complete("seen")),
        "halfmoon_services": Service("s", lambda: None),
        "halfmoon_observers": Observer("o"),
    }
    hooks: dict[str, Any] = {hook: (lambda ctx, item=item: [item]) for hook, item in given.items()}
    loaded = load(plugin(**hooks, halfmoon_commands=lambda ctx: {"hello": print}))
    assert given["halfmoon_commitlog"] in [unguarded(each) for each in loaded.interceptors]
    assert [unguarded(each) for each in loaded.dispatchers] == [given["halfmoon_dispatch"]]
    assert [unguarded(each) for each in loaded.hold_policies] == [given["halfmoon_hold"]]
    assert unguarded(loaded.relays[-1]) == given["halfmoon_relays"]
    assert [unguarded(each) for each in loaded.services] == [given["halfmoon_services"]]
    assert loaded.observers == (given["halfmoon_observers"],)
    assert loaded.commands == {"hello": print}
    assert set(loaded.infos[-1].hooks) == {*given, "halfmoon_commands"}


def test_order_is_the_plugins_unless_they_ask_otherwise() -> None:
    def observer(name: str, **marks: bool) -> object:
        made = Base(name)
        made.halfmoon_observers = hookimpl(lambda ctx: [Observer(name)], **marks)
        return made

    loaded = load(observer("late", trylast=True), observer("a"), observer("b"), observer("early", tryfirst=True))
    assert [one.name for one in loaded.observers] == ["early", "a", "b", "late"]


def test_events_reach_every_plugin_with_its_own_context() -> None:
    heard: list[tuple[Any, ...]] = []
    first = plugin(
        "first",
        halfmoon_started=lambda ctx: heard.append(("started", ctx.name)),
        halfmoon_stopping=lambda ctx: heard.append(("stopping", ctx.name)),
        halfmoon_topic_changed=lambda topic, ctx: heard.append((topic, ctx.name)),
    )
    second = plugin(
        "second",
        halfmoon_started=lambda: heard.append(("started", "second")),
        halfmoon_stopping=lambda: heard.append(("stopping", "second")),
        halfmoon_topic_changed=lambda topic, change: heard.append((topic, change)),
    )
    loaded = load(first, second)
    loaded.started()
    loaded.topic_changed("orders", "created")
    loaded.stopping()
    assert heard == [
        ("started", "first"),
        ("started", "second"),
        ("orders", "first"),
        ("orders", "created"),
        ("stopping", "second"),
        ("stopping", "first"),
    ]


def raising(*_: object) -> None:
    raise RuntimeError("no luck")


def test_a_plugin_that_cannot_start_stops_the_start() -> None:
    loaded = load(plugin(halfmoon_started=lambda ctx: raising()))
    with pytest.raises(StartError, match="plugin mine: halfmoon_started: RuntimeError: no luck"):
        loaded.started()


def test_other_events_survive_a_plugin_that_raises(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[str] = []
    bad = plugin("bad", halfmoon_stopping=lambda ctx: raising(), halfmoon_topic_changed=lambda topic: raising())
    good = plugin(
        "good",
        halfmoon_stopping=lambda: heard.append("stopping"),
        halfmoon_topic_changed=lambda topic: heard.append(topic),
    )
    loaded = load(good, bad)
    with caplog.at_level(logging.ERROR):
        loaded.topic_changed("orders", "deleted")
        loaded.stopping()
    assert heard == ["orders", "stopping"]
    assert [record.getMessage() for record in caplog.records] == [
        "event=hook_failed hook=halfmoon_topic_changed plugin=bad",
        "event=hook_failed hook=halfmoon_stopping plugin=bad",
    ]


@pytest.mark.parametrize(
    ("verdicts", "allowed"),
    [
        ([], None),
        ([None], None),
        ([True], True),
        ([True, None], True),
        ([True, False], False),
        ([False, True], False),
        ([True, "raise"], False),
    ],
)
def test_one_objection_denies(verdicts: list[object], allowed: bool | None) -> None:
    def authorizer(number: int, verdict: object) -> object:
        def halfmoon_authorize(operation: str, resource: str) -> Any:
            assert (operation, resource) == ("read", "orders")
            return raising() if verdict == "raise" else verdict

        return plugin(f"p{number}", halfmoon_authorize=halfmoon_authorize)

    loaded = load(*(authorizer(number, verdict) for number, verdict in enumerate(verdicts)))
    assert loaded.verdict(None, "127.0.0.1", "read", "topic", "orders") is allowed


def test_an_authorizer_that_takes_every_argument_is_called_directly() -> None:
    def halfmoon_authorize(principal: str, client_host: str, operation: str, resource_type: str, resource: str) -> bool:
        return client_host == "127.0.0.1"

    loaded = load(plugin(halfmoon_authorize=halfmoon_authorize))
    assert unwrap(loaded.authorizers[0].call) is halfmoon_authorize
    assert not loaded.verdict(None, "192.0.2.1", "read", "topic", "orders")


def test_a_context_reaches_the_broker_once_it_runs(tmp_path: Path) -> None:
    class Host:
        counted: list[tuple[str, str, int]] = []  # noqa: RUF012

        def append(self, topic: str, partition: int, batch: bytes) -> int:
            raise BrokerError(Fault.UNKNOWN_TOPIC_OR_PARTITION)

        def read(self, topic: str, partition: int, queue_offset: int, max_bytes: int) -> list[bytes]:
            return [topic.encode()]

        def count(self, plugin: str, name: str, amount: int) -> None:
            self.counted.append((plugin, name, amount))

        def state_dir(self, plugin: str) -> Path:
            return tmp_path / plugin

    seen: list[PluginContext] = []
    loaded = load(plugin(halfmoon_allocators=lambda ctx: seen.append(ctx) or {}))
    (context,) = seen
    assert context.logger.name == "halfmoon.plugin.mine"
    for early in (lambda: context.state_dir, lambda: context.count("x"), lambda: context.read("t", 0, 0, 1)):
        with pytest.raises(RuntimeError, match="plugin mine: there is no running broker yet"):
            early()
    host = Host()
    loaded.attach(host)
    assert context.state_dir == tmp_path / "mine"
    assert context.read("t", 0, 0, 1) == [b"t"]
    context.count("seen", 2)
    assert host.counted == [("mine", "seen", 2)]
    with pytest.raises(BrokerError):
        context.append("t", 0, b"")


def test_a_module_is_a_plugin() -> None:
    module = SimpleNamespace(api_version=1, name="module", halfmoon_commands=hookimpl(lambda: {"hello": print}))
    assert load(module).commands == {"hello": print}


def test_the_toolbox_of_plugins_that_move_messages_is_whole() -> None:
    assert sorted(moving.__all__) == sorted(set(moving.__all__))
    assert all(hasattr(moving, name) for name in moving.__all__)
    assert len(moving.__all__) > 30


def test_what_plugins_raise_is_counted() -> None:
    """By plugin and hook; a BrokerError refuses something, and is none."""
    made = plugin("bad", halfmoon_authorize=raising, halfmoon_topic_changed=raising, halfmoon_stopping=raising)
    loaded = load(made)
    loaded.verdict(None, "127.0.0.1", "read", "topic", "orders")
    loaded.topic_changed("orders", "created")
    loaded.stopping()
    hooks = ("halfmoon_authorize", "halfmoon_topic_changed", "halfmoon_stopping")
    assert loaded.errors.counts == {("bad", hook): 1 for hook in hooks}


def test_what_objects_of_plugins_raise_is_counted() -> None:
    def decide(message: Any) -> Any:
        raise BrokerError(Fault.POLICY_VIOLATION) if message else RuntimeError

    errors = PluginErrors({("halfmoon_relays", "r"): "mine"})
    (relay,) = errors.watch("halfmoon_relays", [Relay("r", "waiting", decide)], "decide", "begin")
    assert relay.begin is None
    with pytest.raises(BrokerError):
        relay.decide(True)  # type: ignore[arg-type]
    assert not errors.counts
    for _ in range(2):
        with pytest.raises(RuntimeError):
            relay.decide(None)  # type: ignore[arg-type]
    assert errors.counts == {("mine", "halfmoon_relays"): 2}
