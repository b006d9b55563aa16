"""What mypyc makes of the modules that `tool.halfmoon.compiled` of pyproject.toml lists."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from halfmoon.server.build import build

ROOT = Path(__file__).parents[2]
MODULES = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["halfmoon"]["compiled"]

compiled = pytest.mark.skipif(build() != "compiled", reason="they are not compiled here: make test-compiled")


def test_the_list_is_sorted_and_names_what_there_is():
    assert sorted(set(MODULES)) == MODULES
    assert all((ROOT / path).is_file() for path in MODULES)


def test_no_class_that_is_not_compiled_has_a_base_that_is():
    """Its first instance would be a TypeError."""
    compiled_modules = {path.removesuffix(".py").replace("/", ".") for path in MODULES}
    found = []
    for path in sorted((ROOT / "halfmoon").rglob("*.py")):
        if str(path.relative_to(ROOT)) in MODULES:
            continue
        tree = ast.parse(path.read_text())
        origin = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                origin |= {name.asname or name.name: (node.module, f"{node.module}.{name.name}") for name in node.names}
        for node in ast.walk(tree):
            for base in node.bases if isinstance(node, ast.ClassDef) else ():
                first = ast.unparse(base).split("[")[0].split(".")[0]
                if compiled_modules.intersection(origin.get(first, ())):
                    found.append(f"{path.relative_to(ROOT)}: {node.name}({ast.unparse(base)})")
    assert not found


@compiled
@pytest.mark.parametrize("path", MODULES)
def test_each_can_be_imported_first(path):
    """In a process of its own, by its exit code: what is wrong may be a segmentation fault, which prints nothing."""
    module = path.removesuffix(".py").replace("/", ".")
    program = f"import sys, {module} as it; sys.exit(0 if it.__file__.endswith('.so') else 'it is not compiled')"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@compiled
def test_the_environment_can_ask_for_python(monkeypatch):
    monkeypatch.setenv("HALFMOON_PURE", "1")
    program = "from halfmoon.server.app import App; from halfmoon.server.build import build; print(build())"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said == "pure\n"
    program = "import halfmoon.core.append as it, halfmoon.core.records.walk as walk; print(it.__file__, walk.FORM)"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.endswith("append.py python\n")
