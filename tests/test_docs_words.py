"""Docs, help texts, messages and public names use the field's words (docs/decisions/0101)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from itertools import chain
from pathlib import Path

import pytest

from halfmoon.server.catalogue import NARROW, WIDE

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("docs/*.md"), *ROOT.glob("examples/*/README.md"), ROOT / "README.md", ROOT / "broker.yaml"])
SOURCES = sorted((ROOT / "halfmoon").rglob("*.py"))

OURS: dict[str, str] = {
    r"(?<!dead )(?<!dead-)(?<!case )\bletters?\b(?!,? (and )?digits)": "dead letter",
    r"\bhand(s|ed|ing)? (\w+ )?back\b|\bsent back\b": "negatively acknowledge (nack)",
    r"\bcomes? again\b|\bcame again\b": "is redelivered",
    r"\bg(i|a)v(e|es|en|ing) (\w+ )?up\b": "dead-letter",
    r"\bbur(y|ies|ied)\b": "write the dead letter",
    r"\bow(es|ed)\b": "dead letter pending",
    r"\bgoodbye\b": "unregister",
    r"\bdivert\w*": "redirect",
    r"\bput(s|ting)? (\w+ )?off\b": "reschedule",
    r"\bsettle(s|d)?\b": "complete",
    r"\bzombies?\b": "deferred deletion",
    r"\bcondemned\b": "pending deletion",
    r"\bsalvage\w*": "repair",
    r"\bset back\b": "reset",
    r"\blook(s|ed|ing)? into\b": "inspect",
    r"\blies?\b": "is located",
    r"\bas (it|they) came\b": "unchanged",
    r"\bby (itself|themselves)\b": "automatically",
    r"\b(whoever|somebody|anybody)\b": "the caller, a client",
}
"""What we once said → what the field says. Only words without another meaning here: nobody keeps a list with false
alarms."""
_OURS = {re.compile(pattern.replace(" ", r"\s"), re.IGNORECASE): word for pattern, word in OURS.items()}

NAMES = re.compile(r"hand_?(ed_?)?back|sent_?back|giv(e|en)_?up|put_?off|divert|zombie|settle", re.IGNORECASE)
"""The same in public names."""
MESSAGES = {"note", "debug", "info", "warning", "error", "exception", "critical", "fail"}
"""Functions, beside exceptions, whose texts people read."""


def found(text: str) -> list[str]:
    return [f"{match[0]!r}: say {word}" for pattern, word in _OURS.items() for match in pattern.finditer(text)]


def prose(page: Path) -> str:
    """Without code in backquotes, and without the lines about deprecated names."""
    lines = page.read_text(encoding="utf-8").splitlines()
    return "\n".join(re.sub(r"`[^`]*`", "", line) for line in lines if "deprecated" not in line.lower())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_has_the_fields_words(page: Path) -> None:
    assert found(prose(page)) == []


def messages(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Texts of exceptions, of log lines, and of notes of the command line."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        name = ast.unparse(call.func).rpartition(".")[2]
        if name in MESSAGES or name.endswith("Error") or name == "Option":
            for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
                for node in ast.walk(argument):
                    if isinstance(node, ast.Constant) and isinstance(node.value, str):
                        yield node.lineno, node.value


def test_messages_have_the_fields_words() -> None:
    wrong = [
        f"{source.relative_to(ROOT)}:{line}: {each}"
        for source in SOURCES
        for line, text in messages(ast.parse(source.read_text(encoding="utf-8")))
        for each in found(text)
    ]
    assert wrong == []


@pytest.mark.parametrize("module", ["halfmoon.plugin", "halfmoon.kafka", "halfmoon.client", "halfmoon.client.aio"])
def test_public_names_have_the_fields_words(module: str) -> None:
    """Deprecated ones say so in their docstring, or in the comment behind the field."""
    package = import_module(module)
    wrong = []
    for name in package.__all__:
        offered = getattr(package, name)
        inside_of = vars(offered) if isinstance(offered, type) else ()
        for attribute in (name, *(each for each in inside_of if each[0] != "_")):
            inside = "" if attribute == name else str(getattr(offered, attribute).__doc__)
            if NAMES.search(attribute) and "deprecated" not in inside.lower() and attribute not in DEPRECATED:
                wrong.append(f"{name}.{attribute}")
    assert wrong == []


DEPRECATED = {"diverted", "handed_back", "settle", "give_up", "sent_back"}
"""Fields and methods that only warn; they go with the next version."""


def test_metrics_have_the_fields_words() -> None:
    wrong = [
        name for name in chain(NARROW, WIDE) if NAMES.search(name) or re.search("clean_|waiting|looked|rolled", name)
    ]
    assert wrong == []


def test_the_list_finds_what_it_is_for() -> None:
    assert found("A letter that was handed back lies there by itself.") == [
        "'letter': say dead letter",
        "'handed back': say negatively acknowledge (nack)",
        "'lies': say is located",
        "'by itself': say automatically",
    ]
    assert found("dead letters, 1 to 127 letters, digits and -, negatively acknowledged") == []
