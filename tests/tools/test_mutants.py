"""tools/mutants.py mutates what is there: its texts do not rot when modules move or change."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def loaded() -> ModuleType:
    spec = spec_from_file_location("mutants", ROOT / "tools/mutants.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


mutants: Any = loaded()


@pytest.mark.parametrize("mutant", [*mutants.MUTANTS, *mutants.OF_TORTURE], ids=lambda mutant: mutant.name)
def test_its_text_stands_once_in_its_file(mutant: Any) -> None:
    assert mutants.occurrences(mutant) == 1
    assert mutant.new != mutant.old


def test_names_are_given_once() -> None:
    names = [mutant.name for mutant in mutants.MUTANTS]
    assert len(set(names)) == len(names) > 30
    names = [mutant.name for mutant in mutants.OF_TORTURE]
    assert len(set(names)) == len(names) > 10


@pytest.mark.parametrize("name", mutants.QUICKEST)
def test_the_quickest_tests_are_there(name: str) -> None:
    assert mutants.quickest(ROOT, name)
