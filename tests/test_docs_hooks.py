"""docs/plugins.md says every hook with its exact arguments, and what it says can be run."""

from __future__ import annotations

import re
from inspect import getdoc, signature
from pathlib import Path

import pytest
import yaml

import halfmoon.plugin
from halfmoon.core import hookspecs
from halfmoon.core.config import load_settings
from halfmoon.core.plugins import HOOKS, load_plugins
from halfmoon.plugins import BUILT_IN
from halfmoon.server.app import CALLED_HOOKS

ROOT = Path(__file__).parents[1]
DOCS = (ROOT / "docs/plugins.md").read_text(encoding="utf-8")
BLOCKS: dict[str, str] = dict(re.findall(r"```(\w+)\n(.*?)```", DOCS, re.DOTALL)[::-1])
"""The first block of each language."""


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_is_documented_with_its_arguments(hook: str) -> None:
    arguments = ", ".join(signature(getattr(hookspecs, hook)).parameters)
    assert f"### `{hook}({arguments})`\n" in DOCS


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_says_when_it_is_called_what_it_costs_and_what_an_error_does(hook: str) -> None:
    text = getdoc(getattr(hookspecs, hook)) or ""
    section = DOCS.partition(f"### `{hook}(")[2].partition("\n#")[0]
    for word in ("Called", "Cost", "Error"):
        assert f"{word}" in text, f"{word} is missing in the specification of {hook}"
        assert f"*{word}*" in section, f"{word} is missing in the documentation of {hook}"


def test_the_hooks_this_version_calls_are_named() -> None:
    sentence = DOCS.partition("**This version calls**")[2].partition(".")[0]
    assert sorted(re.findall(r"`(halfmoon_\w+)`", sentence)) == sorted(CALLED_HOOKS)


def test_no_hook_is_documented_that_does_not_exist() -> None:
    assert re.findall(r"^### `(halfmoon_\w+)\(", DOCS, re.MULTILINE) == list(HOOKS)
    assert set(re.findall(r"halfmoon_\w+", DOCS)) <= set(HOOKS)


def test_every_built_in_allocator_is_documented() -> None:
    for name in load_plugins(load_settings(None, {}, {}), BUILT_IN, installed=[]).allocators:
        assert f"| `{name}` |" in DOCS


def test_the_plugin_in_one_minute_works(tmp_path: Path) -> None:
    (tmp_path / "my_plugin.py").write_text(BLOCKS["python"], encoding="utf-8")
    (tmp_path / "broker.yaml").write_text(BLOCKS["yaml"], encoding="utf-8")
    loaded = load_plugins(load_settings(tmp_path / "broker.yaml", {}, {}), BUILT_IN, installed=[])
    queue = halfmoon.plugin.Queue("t", "b", 0)
    assert loaded.allocators["one_for_all"](["a", "b"], [queue]) == {"a": [], "b": [queue]}
    assert yaml.safe_load(BLOCKS["yaml"])["plugins"]["./my_plugin.py"] == {"favourite": "b"}


def test_the_example_of_a_checked_filter_runs() -> None:
    (example,) = [block for block in re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL) if "check_filter" in block]
    exec(compile(example, "docs/plugins.md", "exec"), {})


def test_what_a_plugin_author_imports_is_listed() -> None:
    # "@…": what pytest puts into modules of an installed distribution with a pytest plugin.
    names = {name for name in vars(halfmoon.plugin) if not name.startswith(("_", "@"))}
    public = names - {"annotations", "pluggy", "PROJECT"}
    assert public == set(halfmoon.plugin.__all__)
