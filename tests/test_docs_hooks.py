"""docs/hooks.md says of every hook what halfmoon/hooks/specs.py says, word for word; and what it and docs/plugins.md
show can be run.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import re
import time
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import halfmoon.plugin
from halfmoon.config import topic_configs
from halfmoon.config.settings import load_settings
from halfmoon.core import features, hold
from halfmoon.core.records import record_codec
from halfmoon.hooks import specs, types
from halfmoon.hooks.context import PluginContext
from halfmoon.hooks.plugins import HOOKS, installed_plugins, load_plugins
from halfmoon.plugins import BUILT_IN
from halfmoon.services.common import filters, leaving_out
from halfmoon.services.configs import group_configs
from halfmoon.services.following import types as following_types
from halfmoon.services.groups import allocation
from halfmoon.services.waiting import types as waiting_types

ROOT = Path(__file__).parents[1]
REFERENCE = (ROOT / "docs/hooks.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs/plugins.md").read_text(encoding="utf-8")

SECTIONS: dict[str, str] = dict(re.findall(r"^### `(\w+)`\n(.*?)(?=^### |\Z)", REFERENCE, re.DOTALL | re.MULTILINE))
"""Hook → what docs/hooks.md says of it."""


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def words(text: str) -> str:
    return " ".join(text.split())


def module_tree(module: ModuleType) -> list[ast.stmt]:
    return ast.parse(inspect.getsource(module)).body


def signature(function: ast.stmt) -> tuple[str, str, str]:
    assert isinstance(function, ast.FunctionDef)
    assert function.returns is not None
    return function.name, ast.unparse(function.args), ast.unparse(function.returns)


# -------------------------------------------------------------------------------------------------------- the reference


def test_every_hook_has_a_section_in_the_order_of_the_specifications() -> None:
    assert list(SECTIONS) == list(HOOKS)


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_has_the_signature_that_is_shown(hook: str) -> None:
    (shown,) = ast.parse(blocks(SECTIONS[hook], "python")[0]).body
    specified = {statement.name: statement for statement in module_tree(specs) if hasattr(statement, "name")}
    assert signature(shown) == signature(specified[hook])


@pytest.mark.parametrize("hook", HOOKS)
def test_what_is_said_of_a_hook_is_what_its_specification_says(hook: str) -> None:
    """The sentence, and when it is called, what it costs, what an error does: word for word."""
    _, _, text = SECTIONS[hook].partition("```\n")
    summary = text.strip().partition("\n\n")[0]
    points = re.findall(r"^- \*(.+?)\*: (.*?)(?=^- \*|\n\n)", text, re.DOTALL | re.MULTILINE)
    assert [name.split()[0] for name, _ in points] == ["Called", "Cost", "Error"]
    said = " ".join([summary, *(f"{name}: {sentence}" for name, sentence in points)])
    assert words(said) == words(inspect.getdoc(getattr(specs, hook)) or "")


def test_every_hook_is_in_the_list() -> None:
    assert re.findall(r"^\| \[`(\w+)`\]\(#\1\) \|", REFERENCE, re.MULTILINE) == list(HOOKS)


# --------------------------------------------------------------------------------------------------- types and examples


def members(class_definition: ast.ClassDef) -> list[tuple[str, ...]]:
    """Fields with types and defaults, methods with their signatures."""
    found: list[tuple[str, ...]] = []
    for statement in class_definition.body:
        if isinstance(statement, ast.AnnAssign):
            default = "" if statement.value is None else ast.unparse(statement.value)
            found.append((ast.unparse(statement.target), ast.unparse(statement.annotation), default))
        elif isinstance(statement, ast.FunctionDef) and not statement.name.startswith("__"):
            found.append(signature(statement))
    return found


def types_in(statements: list[ast.stmt]) -> dict[str, object]:
    """Name → what can be compared, of classes and of aliases."""
    found: dict[str, object] = {}
    for statement in statements:
        if isinstance(statement, ast.ClassDef):
            found[statement.name] = members(statement)
        elif isinstance(statement, ast.Assign):
            found[ast.unparse(statement.targets[0])] = ast.unparse(statement.value)
    return found


EXAMPLES = [(hook, block) for hook in HOOKS for block in blocks(SECTIONS[hook], "python") if "@hookimpl" in block]
SHOWN_TYPES = {
    name: shown
    for hook in HOOKS
    for block in blocks(SECTIONS[hook], "python")[1:]
    if "@hookimpl" not in block
    for name, shown in types_in(ast.parse(block).body).items()
}


def test_types_are_as_they_are_shown() -> None:
    declared: dict[str, object] = {}
    for module in (
        record_codec,
        allocation,
        filters,
        leaving_out,
        waiting_types,
        following_types,
        hold,
        features,
        topic_configs,
        group_configs,
        types,
    ):
        declared |= types_in(module_tree(module))
    assert {name: declared[name] for name in SHOWN_TYPES} == SHOWN_TYPES


def test_every_type_of_a_hook_is_shown() -> None:
    declared = {
        name
        for name in types_in(
            [*module_tree(types), *module_tree(waiting_types), *module_tree(following_types), *module_tree(filters)]
        )
        if name in halfmoon.plugin.__all__
    }
    assert declared <= set(SHOWN_TYPES)
    assert len(declared) > 10


@pytest.mark.parametrize(("hook", "example"), EXAMPLES, ids=[hook for hook, _ in EXAMPLES])
def test_an_example_is_a_plugin(hook: str, example: str) -> None:
    module = ModuleType("example")
    vars(module).update({name: getattr(halfmoon.plugin, name) for name in halfmoon.plugin.__all__})
    vars(module).update(api_version=1, asyncio=asyncio, json=json, time=time)
    exec(compile(example, f"docs/hooks.md, {hook}", "exec", dont_inherit=True), vars(module))
    loaded = load_plugins(load_settings(None, {}, {}), BUILT_IN, installed=[], extra=[module])
    assert loaded.infos[-1].hooks == (hook,)


def test_most_hooks_have_an_example() -> None:
    assert {hook for hook, _ in EXAMPLES} == set(HOOKS)


# ------------------------------------------------------------------------------------------------------------ the guide


def test_all_that_a_context_offers_is_documented() -> None:
    offered = [
        name for name in dir(PluginContext) if not name.startswith("_") and name not in ("attach", "settings_as")
    ]
    assert len(offered) > 8
    for name in offered:
        member = getattr(PluginContext, name)
        arguments = list(inspect.signature(member).parameters.values())[1:] if inspect.isfunction(member) else None
        shown = "" if arguments is None else f"({', '.join(str(a.replace(annotation=a.empty)) for a in arguments)})"
        assert f"`ctx.{name}{shown}`" in GUIDE


def test_every_built_in_allocator_is_documented() -> None:
    for name in load_plugins(load_settings(None, {}, {}), BUILT_IN, installed=[]).allocators:
        assert f"| `{name}` |" in GUIDE


def test_how_plugins_are_switched_on() -> None:
    settings = load_settings(yaml.safe_load(blocks(GUIDE, "yaml")[0]), {}, {})
    installed = [EntryPoint(name, "not.imported", "halfmoon") for name in ("jsonpath", "another")]
    states = {info.name: info.enabled for info in installed_plugins(settings, BUILT_IN, installed)}
    expected = dict.fromkeys(BUILT_IN, True) | {"machine_room": False, "jsonpath": True, "another": False}
    assert states == expected | {"my_plugin": True}


def test_the_plugin_in_one_minute_works(tmp_path: Path) -> None:
    _, _, section = GUIDE.partition("## A plugin in one minute\n")
    code, config = blocks(section, "python")[0], blocks(section, "yaml")[0]
    (tmp_path / "my_plugin.py").write_text(code, encoding="utf-8")
    (tmp_path / "broker.yaml").write_text(config, encoding="utf-8")
    loaded = load_plugins(load_settings(tmp_path / "broker.yaml", {}, {}), BUILT_IN, installed=[])
    queue = halfmoon.plugin.Queue("t", "b", 0)
    assert loaded.allocators["one_for_all"](["a", "b"], [queue]) == {"a": [], "b": [queue]}
    assert yaml.safe_load(config)["plugins"]["./my_plugin.py"] == {"favourite": "b"}


def test_the_example_of_a_checked_filter_runs() -> None:
    (example,) = [block for block in blocks(GUIDE, "python") if "check_filter" in block]
    exec(compile(example, "docs/plugins.md", "exec"), {})


def test_the_example_of_the_toolbox_runs() -> None:
    (example,) = [block for block in blocks(GUIDE, "python") if "rewrite(" in block]
    exec(compile(example, "docs/plugins.md", "exec"), {})


def test_no_hook_is_named_that_does_not_exist() -> None:
    assert set(re.findall(r"halfmoon_\w+", REFERENCE + GUIDE)) <= set(HOOKS)


@pytest.mark.parametrize(
    "document", ["docs/hooks.md", "docs/plugins.md", "examples/halfmoon-filter-jsonpath/README.md"]
)
def test_links_lead_somewhere(document: str) -> None:
    links = re.findall(r"\]\((?!https?:)([^)]+)\)", (ROOT / document).read_text(encoding="utf-8"))
    assert links
    for link in links:
        file, _, anchor = link.partition("#")
        target = (ROOT / document).parent / file if file else ROOT / document
        assert target.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}, link


def test_what_a_plugin_author_imports_is_listed() -> None:
    # "@…": what pytest puts into modules of an installed distribution with a pytest plugin.
    names = {name for name in vars(halfmoon.plugin) if not name.startswith(("_", "@"))}
    public = names - {"annotations", "pluggy", "PROJECT", "moving", "warnings", "Any"}
    assert public == set(halfmoon.plugin.__all__)
