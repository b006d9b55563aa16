"""ARCHITECTURE.md is a map that fits the code, decisions are complete and listed, and links between documents lead
somewhere.
"""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAP = ROOT / "ARCHITECTURE.md"
MAX_MAP_BYTES = 15 << 10
DECISIONS = ROOT / "docs" / "decisions"
RECORDS = sorted(DECISIONS.glob("[0-9]*.md"))
PAGES = sorted(chain((MAP, ROOT / "README.md", ROOT / "CONTRIBUTING.md"), (ROOT / "docs").rglob("*.md")))

_FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`[^`\n]+`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.*?) *$", re.MULTILINE)
_ENTRY = re.compile(r"^- \[(\d{4})\]\((\1-[a-z0-9-]+\.md)\): \S.*$", re.MULTILINE)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(page: Path) -> str:
    """The page without its blocks of code."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them: small letters, hyphens for spaces, no other signs."""
    found: set[str] = set()
    for heading in _HEADING.findall(prose(page)):
        base = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        anchor, again = base, 0
        while anchor in found:
            again += 1
            anchor = f"{base}-{again}"
        found.add(anchor)
    return found


# -------------------------------------------------------------------------------------------------------------- the map


def test_the_map_is_small() -> None:
    assert MAP.stat().st_size <= MAX_MAP_BYTES


def test_paths_on_the_map_exist() -> None:
    paths = {code.strip("`") for code in _CODE.findall(prose(MAP))}
    paths = {path for path in paths if path.endswith((".py", "/"))}
    assert len(paths) > 20
    assert [path for path in sorted(paths) if not ((ROOT / path).exists() or (ROOT / "halfmoon" / path).exists())] == []


def test_every_package_is_on_the_map() -> None:
    text = prose(MAP)
    packages = sorted(path.parent for path in (ROOT / "halfmoon").glob("*/__init__.py"))
    assert [path.name for path in packages if f"`{path.name}/" not in text] == []


# ------------------------------------------------------------------------------------------------------------ decisions


def test_every_decision_is_in_the_index_once() -> None:
    listed = _ENTRY.findall((DECISIONS / "README.md").read_text(encoding="utf-8"))
    assert sorted(file for _, file in listed) == [record.name for record in RECORDS]
    numbers = [record.name[:4] for record in RECORDS]
    assert len(set(numbers)) == len(numbers) > 50


@pytest.mark.parametrize("record", RECORDS, ids=name)
def test_a_decision_has_a_title_and_its_sections(record: Path) -> None:
    text = record.read_text(encoding="utf-8")
    assert re.match(rf"# {record.name[:4]}\. \S", text)
    parts = re.split(r"^## (.*)$", _FENCE.sub("a picture", text), flags=re.MULTILINE)[1:]
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    assert [section for section in sections if section != "Figures"] == ["Context", "Decision", "Consequences"]
    assert [section for section, body in sections.items() if not body.strip()] == []


# ---------------------------------------------------------------------------------------------------------------- links


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in _LINK.findall(_CODE.sub("", prose(page))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and (target.suffix != ".md" or anchor not in anchors(target))):
            broken.append(link)
    assert broken == []
