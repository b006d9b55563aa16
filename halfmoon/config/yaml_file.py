"""A YAML file as nested dicts, with every mistake in one line that says where it is."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from halfmoon.errors import StartError


def read_text(path: Path) -> str:
    """Raises StartError."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise StartError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise StartError(f"{path}: is not UTF-8 text") from None


def read_yaml(path: Path, text: str | None = None) -> dict[str, Any]:
    """The file's content, or that of `text`, which has stood in it; an empty file has none. Raises StartError."""
    if text is None:
        text = read_text(path)
    try:
        content = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise StartError(f"{path}: {_yaml_problem(error)}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise StartError(f"{path}: expected settings, one to a line, such as `log: {{retention: 7d}}`")
    return content


def _yaml_problem(error: yaml.YAMLError) -> str:
    """PyYAML's error in one line, with the line and column counted from 1."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "is not YAML"
    return f"{problem}" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: {problem}"


class _Loader(yaml.SafeLoader):
    """SafeLoader that refuses a key given twice, which PyYAML would let the last one win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[object] = set()
        for key_node, _ in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key is not None and key in seen and key_node.tag != "tag:yaml.org,2002:merge":
                raise yaml.constructor.ConstructorError(None, None, f"{key} is given twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)
