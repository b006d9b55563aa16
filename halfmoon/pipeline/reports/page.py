"""Reports as one HTML page: headline facts, and for each report a chart and a table.

The page is a single file that opens without a network: style and pictures stand in it, there is no script, and its
content security policy forbids it to load anything. Whatever comes from messages (names of groups, values of
properties, reasons) comes in through `escaped`, or in a chart, which an XML writer wrote.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from matplotlib.figure import Figure

from halfmoon.pipeline.reports.drawing import svg
from halfmoon.pipeline.reports.report import Report, headings, numeric, one_line, show, shown, whole_file

LONGEST_CELL = 300
"""Characters of a cell that are shown; the middle of a longer one is left out. The files have all of it."""

LONGEST_WORD = 24
"""Characters of a word that stays whole where a table has too little room."""

FIRST_ROWS = 13
"""Of a longer table; a click shows the others. A table that has three more is shown whole."""


@dataclass(slots=True, frozen=True)
class Section:
    """A report on the page: its charts, a sentence about it, and at most `max_rows` rows as a table."""

    report: Report
    figures: Sequence[Figure] = ()
    note: str = ""
    max_rows: int = 200


def write_page(
    path: Path,
    title: str,
    summary: Sequence[tuple[str, str]],
    sections: Sequence[Section],
    *,
    made_at: datetime,
    source: str,
) -> None:
    """Write the page to `path`, whole or not at all. `summary` are facts, (what, how much), shown above all else.

    `source` says what the reports are about; `made_at` stands beside it, in UTC. The directory must exist.
    """
    lines = _page(title, summary, sections, made_at, source)
    with whole_file(path) as part:
        part.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")


def _page(
    title: str, summary: Sequence[tuple[str, str]], sections: Sequence[Section], made_at: datetime, source: str
) -> Iterator[str]:
    yield from beginning(title)
    yield f'<header><h1>{escaped(title)}</h1><p class="small">{escaped(source)} · made {show(made_at)} UTC</p></header>'
    if summary:
        tiles = (f"<div><dt>{escaped(what)}</dt><dd>{escaped(how_much)}</dd></div>" for what, how_much in summary)
        yield f'<dl class="tiles">{"".join(tiles)}</dl>'
    if len(sections) > 2:
        links = (f'<a href="#s{n}">{escaped(section.report.title)}</a>' for n, section in enumerate(sections))
        yield f"<nav>{''.join(links)}</nav>"
    for n, section in enumerate(sections):
        yield from _section(section, n)
    yield "</main></body></html>"


def beginning(title: str, more: str = "") -> Iterator[str]:
    """The lines of every page up to its content; `more` is HTML for its head."""
    yield "<!DOCTYPE html>"
    yield '<html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    yield f"<title>{escaped(title)}</title>"
    yield f"<style>{_CSS}</style>{more}{CONTENT}"


def _section(section: Section, n: int) -> Iterator[str]:
    report = section.report
    yield f'<section id="s{n}"><h2>{escaped(report.title)}</h2>'
    if section.note:
        yield f"<p>{escaped(section.note)}</p>"
    for m, figure in enumerate(section.figures):
        yield f"<figure>{svg(figure, f'chart{n}-{m}')}</figure>"
    if report.rows:
        yield from _table(report, section.max_rows)
    else:
        yield f'<p class="small">{escaped(report.if_empty)}</p>'
    yield "</section>"


def _table(report: Report, max_rows: int) -> Iterator[str]:
    """A table; of a long one the first rows, how many these are of how many, and where the others are.

    It stands in a box of its own that scrolls, by keyboard too; cells that name a row are its headings.
    """
    total, there = len(report.rows), min(len(report.rows), max_rows)
    if there > FIRST_ROWS + 3:
        yield f'<details><summary><span class="closed">{FIRST_ROWS} of {total:,} rows; show {_all(there, total)}</span>'
        yield f'<span class="opened">{there:,} of {total:,} rows; show {FIRST_ROWS}</span></summary></details>'
    elif there < total:
        yield f'<p class="small">{there:,} of {total:,} rows</p>'
    side = [' class="n"' if number else "" for number in numeric(report)]
    head = (f'<th scope="col"{of}>{escaped(name)}</th>' for name, of in zip(headings(report), side, strict=True))
    yield f'<div class="scroll" tabindex="0" role="region" aria-label="{escaped(report.title)}: table"><table>'
    yield f"<thead><tr>{''.join(head)}</tr></thead><tbody>"
    kinds = ['th scope="row"' if at < report.key_columns else "td" for at in range(len(report.columns))]
    for cells in shown(report, slice(there)):
        sides = [of or (' class="w"' if _has_long_word(cell) else "") for of, cell in zip(side, cells, strict=True)]
        row = (f"<{kind}{of}>{escaped(cell)}</{kind[:2]}>" for kind, of, cell in zip(kinds, sides, cells, strict=True))
        yield f"<tr>{''.join(row)}</tr>"
    yield "</tbody></table></div>"
    if there < total:
        yield f'<p class="small">All {total:,} rows are in tables/{escaped(report.name)}.csv, .md and .parquet.</p>'


def _has_long_word(text: str) -> bool:
    return len(text) > LONGEST_WORD and any(len(word) > LONGEST_WORD for word in text.split())


def _all(there: int, total: int) -> str:
    return "all" if there == total else f"{there:,}"


def escaped(text: str) -> str:
    """As HTML: one line of at most 300 characters, escaped."""
    return html.escape(one_line(text, LONGEST_CELL))


CONTENT = "</head><body><main>"
"""Once in every page: what comes from messages is escaped."""

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"

_CSS = """
:root { color-scheme: light dark; --ink: #1c1f23; --soft: #5b636d; --line: #dde1e6; --ground: #f6f7f9; --card: #fff;
  --link: #0060a0; }
@media screen and (prefers-color-scheme: dark) {
  :root { --ink: #e6e8eb; --soft: #9aa3ad; --line: #353b43; --ground: #15181c; --card: #1d2126; --link: #6cb8ee; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif; }
main { max-width: 1140px; margin: 0 auto; padding: 28px 20px 60px; }
h1 { font-size: 27px; line-height: 1.25; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 19px; line-height: 1.3; margin: 0 0 10px; overflow-wrap: anywhere; }
p { margin: 0 0 12px; overflow-wrap: anywhere; }
a { color: var(--link); }
.small { color: var(--soft); font-size: 13px; }
section { margin-top: 40px; scroll-margin-top: 12px; }
.tiles { display: flex; flex-wrap: wrap; gap: 12px; margin: 22px 0 18px; }
.tiles div { min-width: 165px; max-width: 100%; /* as wide as its number */
  background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 12px 16px; }
dt { color: var(--soft); font-size: 13px; overflow-wrap: anywhere; }
dd { margin: 2px 0 0; font-size: 23px; line-height: 1.25; font-weight: 600; overflow-wrap: anywhere;
  font-variant-numeric: tabular-nums; }
nav { display: flex; flex-wrap: wrap; gap: 4px 20px; font-size: 14px; }
/* Charts are drawn for a white ground, in the dark too. */
figure { margin: 0 0 14px; padding: 14px; background: #fff; border: 1px solid var(--line); border-radius: 8px;
  overflow-x: auto; }
figure svg { display: block; width: 100%; height: auto; min-width: 620px; max-width: 1056px; margin: 0 auto; }
.scroll { overflow: auto; border: 1px solid var(--line); border-radius: 8px; background: var(--card); }
details:not([open]) + .scroll tbody tr:nth-child(n + FIRST_HIDDEN) { display: none; }
details[open] + .scroll { max-height: 80vh; }
details:not([open]) .opened, details[open] .closed { display: none; }
summary { width: fit-content; margin-bottom: 6px; color: var(--link); font-size: 13px; cursor: pointer; }
table { border-collapse: separate; border-spacing: 0; width: 100%; font-size: 13.5px; }
th, td { padding: 5px 12px; text-align: left; vertical-align: top; font-weight: normal; max-width: 30em;
  overflow-wrap: break-word; border-bottom: 1px solid var(--line); }
/* Long names without a space are broken where a table would be too wide, but not into single letters. */
.w { overflow-wrap: anywhere; min-width: 8em; }
thead th { position: sticky; top: 0; background: var(--card); color: var(--soft); font-weight: 600;
  vertical-align: bottom; }
tbody tr:last-child > * { border-bottom: 0; }
tbody tr:hover > * { background: var(--ground); }
.n { text-align: right; font-variant-numeric: tabular-nums; }
td.n, tbody th.n { white-space: nowrap; }
.scroll + .small { margin-top: 6px; }
.making { margin-bottom: 20px; padding: 10px 16px; background: var(--card); border: 1px solid var(--link);
  border-radius: 8px; }
.making p { margin: 0; }
.steps { margin: 24px 0; padding-left: 1.8em; }
.steps li { padding: 3px 0; }
.steps .now { font-weight: 600; }
.steps .later, .steps .took { color: var(--soft); font-weight: normal; }
progress { display: block; width: min(100%, 420px); height: 8px; margin-top: 4px; accent-color: var(--link); }
@media print {
  body { background: #fff; font-size: 11px; }
  main { max-width: none; padding: 0; }
  nav { display: none; }
  section { margin-top: 24px; }
  h2, h2 + p, thead { break-after: avoid; }
  figure, tr, .tiles div { break-inside: avoid; }
  figure { border: 0; padding: 0; overflow: visible; }
  figure svg { min-width: 0; }
  .scroll, details[open] + .scroll { max-height: none; overflow: visible; border: 0; }
  table { font-size: 10px; }
  th, td { padding: 2px 10px; }
  thead th { position: static; }
}
""".replace("FIRST_HIDDEN", str(FIRST_ROWS + 1))
