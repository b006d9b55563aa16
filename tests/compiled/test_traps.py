"""What mypyc does otherwise than Python without a word (2.4.1), looked for in the source of what it compiles."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator

import pytest

from tests.compiled.test_modules import MODULES, ROOT

Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def names(tree: ast.AST, context: type[ast.expr_context]) -> set[str]:
    """Those that are read or set in it; comprehensions have names of their own."""
    own = {
        each.id for part in ast.walk(tree) if isinstance(part, Comprehension) for generator in part.generators
        for each in ast.walk(generator.target) if isinstance(each, ast.Name)
    }  # fmt: skip
    found = {each.id for each in ast.walk(tree) if isinstance(each, ast.Name) and isinstance(each.ctx, context)}
    return found - own


def changing_loops(tree: ast.AST) -> Iterator[str]:
    """A loop goes over what its variable is now, not over what it was when the loop began: `for _ in range(n)` ends
    earlier or later where its body sets `n`."""
    for loop in ast.walk(tree):
        if isinstance(loop, ast.For):
            changed = names(loop.iter, ast.Load) & set().union(*(names(each, ast.Store) for each in loop.body))
            if changed:
                yield f"line {loop.lineno}: the loop goes over {', '.join(sorted(changed))}, which its body sets"


def hiding_imports(tree: ast.Module) -> Iterator[str]:
    """A name that is imported in a function becomes one of the module."""
    known = {
        each.id for part in tree.body if not isinstance(part, ast.FunctionDef | ast.ClassDef)
        for each in ast.walk(part) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    }  # fmt: skip
    known |= {part.name for part in tree.body if isinstance(part, ast.FunctionDef | ast.ClassDef)}
    known |= {name.asname or name.name for part in tree.body if isinstance(part, ast.ImportFrom) for name in part.names}
    for function in ast.walk(tree):
        for part in ast.walk(function) if isinstance(function, ast.FunctionDef) else ():
            if isinstance(part, ast.Import | ast.ImportFrom):
                hidden = known & {name.asname or name.name for name in part.names}
                if hidden:
                    yield f"line {part.lineno}: imports {', '.join(sorted(hidden))}, which the module has, too"


def knots(tree: ast.Module) -> Iterator[str]:
    """A function within a function that names another one beside it, or itself, makes a cycle of all variables that
    such functions share: what they hold stays until a garbage collection."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            inner = [part for part in ast.walk(function) if isinstance(part, ast.FunctionDef) and part is not function]
            known = {part.name for part in inner}
            for part in ast.walk(function):
                if isinstance(part, ast.FunctionDef | ast.Lambda) and part is not function:
                    tied = known & {each for body in _body(part) for each in names(body, ast.Load)}
                    if tied:
                        yield f"line {part.lineno}: names {', '.join(sorted(tied))}, which is made beside it"


def _body(function: ast.FunctionDef | ast.Lambda) -> list[ast.stmt] | list[ast.expr]:
    return function.body if isinstance(function, ast.FunctionDef) else [function.body]


@pytest.mark.parametrize("path", MODULES)
def test_none_is_met(path):
    tree = ast.parse((ROOT / path).read_text())
    assert [*changing_loops(tree), *hiding_imports(tree), *knots(tree)] == []


def test_they_are_found():
    loops = """
        def a(n, items):
            for _ in range(n):
                n += 1
            for each in enumerate(items):
                items = [x for x in items]
            for each in [x for x in items]:
                x = each
    """
    assert len(list(changing_loops(ast.parse(textwrap.dedent(loops))))) == 2
    functions = """
        def a():
            def one():
                return two()
            def two():
                return 2
            return one
        def b():
            def one():
                return 1
            return lambda: one()
        def c():
            def one():
                return 1
            return one
    """
    assert len(list(knots(ast.parse(textwrap.dedent(functions))))) == 2
    imports = """
        from elsewhere import walk
        def load():
            from here import walk, other
    """
    assert len(list(hiding_imports(ast.parse(textwrap.dedent(imports))))) == 1
