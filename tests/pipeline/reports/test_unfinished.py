"""halfmoon.pipeline.reports.unfinished: the page while a report is computed, and what is left when it is not made."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from html import unescape
from pathlib import Path

import pytest

from halfmoon.pipeline.reports.page import Section, write_page
from halfmoon.pipeline.reports.report import Report
from halfmoon.pipeline.reports.unfinished import WRITE_EVERY_S, UnfinishedPage, unfinished_page
from halfmoon.pipeline.steps import Step
from tests.pipeline.reports.test_page import HOSTILE, Page

AT = datetime(2026, 1, 31, 14, 0, 5, tzinfo=UTC)
PLAN = ("Reading orders", "Orders paid late", "Tables, charts and the page")


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out" / "success-rate.html"


def unfinished(path: Path, clock: Clock, title: str = "Success rate", source: str = "topic orders") -> UnfinishedPage:
    return UnfinishedPage(path, title, source, clock=clock, now=lambda: AT)


def run(path: Path) -> AbstractContextManager[UnfinishedPage]:
    return unfinished_page(path.parent, path.stem, "Success rate", "topic orders")


def interrupted(page: UnfinishedPage) -> None:
    page(Step(PLAN, 2))
    raise KeyboardInterrupt


def earlier(path: Path) -> bytes:
    """A page of an earlier report."""
    path.parent.mkdir(parents=True, exist_ok=True)
    section = Section(Report("r", "Rates", ("orders",), ((7,),), 0))
    write_page(path, "Success rate", [("orders", "7")], [section], made_at=AT, source="topic orders")
    return path.read_bytes()


def reload_s(page: Page) -> list[str | None]:
    return [attrs["content"] for tag, attrs in page.elements if attrs.get("http-equiv") == "refresh"]


def text(path: Path) -> str:
    """What a reader sees."""
    body = path.read_text(encoding="utf-8").partition("<main>")[2]
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", body)).split())


def test_where_no_page_is_yet_it_shows_the_steps_and_reloads(path: Path, clock: Clock) -> None:
    page = unfinished(path, clock)
    assert not path.exists(), "nothing has begun"
    page(Step(PLAN, 1))
    clock.now_s += 12.34
    page(Step(PLAN, 2))
    clock.now_s += 2
    page(Step(PLAN, 2, 3, 8, "tasks"))
    found = Page(path)
    assert reload_s(found) == ["2"]
    said = text(path)
    assert said.startswith("Success rate topic orders · being made Reading orders · 12.3 s Orders paid late")
    assert "Orders paid late · 3 of 8 tasks · 2.0 s Tables, charts and the page This page reloads every 2 s" in said
    assert "Written 2026-01-31 14:00:05 UTC" in said
    items = [attrs for tag, attrs in found.elements if tag == "li"]
    assert items == [{}, {"class": "now", "aria-current": "step"}, {"class": "later"}]
    [bar] = [attrs for tag, attrs in found.elements if tag == "progress"]
    assert bar == {"max": "8", "value": "3", "aria-label": "Orders paid late"}
    assert not {tag for tag, _ in found.elements} & {"script", "link", "img", "iframe"}


def test_news_within_a_step_is_written_now_and_then_and_a_new_step_at_once(path: Path, clock: Clock) -> None:
    page = unfinished(path, clock)
    page(Step(PLAN, 1))
    page(Step(PLAN, 1, 1, 9, "tasks"))
    assert "1 of 9 tasks" not in text(path)
    clock.now_s += WRITE_EVERY_S
    page(Step(PLAN, 1, 2, 9, "tasks"))
    assert "2 of 9 tasks" in text(path)
    page(Step(PLAN, 2))
    assert "Reading orders · 1.0 s Orders paid late · 0.0 s" in text(path)


def test_another_plan_begins_anew(path: Path, clock: Clock) -> None:
    page = unfinished(path, clock)
    page(Step(("Reading orders",), 1, 5, None, "records"))
    clock.now_s += 7
    page(Step(PLAN, 1))
    clock.now_s += 3
    page(Step(PLAN, 2))
    assert "Reading orders · 3.0 s Orders paid late · 0.0 s" in text(path)


def test_an_earlier_page_stays_below_one_line(path: Path, clock: Clock) -> None:
    before = earlier(path)
    page = unfinished(path, clock)
    page(Step(PLAN, 1))
    page(Step(PLAN, 2))
    clock.now_s += WRITE_EVERY_S
    page(Step(PLAN, 2, 3, 8, "tasks"))
    found = Page(path)
    assert reload_s(found) == ["10"], "a reader of the earlier report is not disturbed all the time"
    assert text(path).startswith(
        "A new report is being made: step 2 of 3, Orders paid late (3 of 8 tasks). Below is the one before."
        " Written 2026-01-31 14:00:05 UTC. Success rate topic orders · made"
    )
    assert (found.texts["h2"], found.texts["dd"], found.cells()) == (["Rates"], ["7"], [["orders"], ["7"]])
    page.failed()
    assert path.read_bytes() == before


def test_what_a_killed_run_has_left_goes_with_the_next(path: Path, clock: Clock) -> None:
    before = earlier(path)
    unfinished(path, clock)(Step(PLAN, 2))
    page = unfinished(path, clock)
    page(Step(PLAN, 1))
    assert text(path).count("A new report is being made") == 1
    page.failed()
    assert path.read_bytes() == before


def test_a_page_of_steps_that_a_killed_run_has_left_is_no_earlier_report(path: Path, clock: Clock) -> None:
    unfinished(path, clock)(Step(PLAN, 2))
    unfinished(path, clock)(Step(PLAN, 1))
    assert "Below is the one before" not in text(path)
    assert "This page reloads" in text(path)


def test_a_run_that_fails_says_so_where_no_page_was(path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), run(path) as page:
        interrupted(page)
    found = Page(path)
    assert reload_s(found) == []
    assert "in step 2 of 3, Orders paid late, before the report was made. The terminal says why." in text(path)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_what_fails_before_the_first_step_leaves_nothing(path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), run(path):
        raise KeyboardInterrupt
    assert not path.parent.exists()


def test_a_finished_report_is_left_alone(path: Path, clock: Clock) -> None:
    page = unfinished(path, clock)
    page(Step(PLAN, 3))
    made = earlier(path)
    page.finished()
    clock.now_s += 60
    page(Step(PLAN, 1))
    page.failed()
    assert path.read_bytes() == made


def test_a_disk_that_refuses_does_not_end_the_run(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "out").write_text("a file where the directory should be")
    unfinished(tmp_path / "out" / "a.html", clock)(Step(PLAN, 1))


@pytest.mark.parametrize("hostile", HOSTILE)
def test_names_are_text_here_too(hostile: str, path: Path, clock: Clock) -> None:
    plan = (hostile, hostile, hostile)
    unfinished(path, clock, hostile, hostile)(Step(plan, 2, 1, 2, hostile))
    kinds = {tag for tag, _ in Page(path).elements}
    path.unlink()
    unfinished(path, clock)(Step(PLAN, 2, 1, 2, "tasks"))
    assert kinds == {tag for tag, _ in Page(path).elements}
    earlier(path)
    unfinished(path, clock, hostile, hostile)(Step(plan, 2, 1, 2, hostile))
    assert "script" not in {tag for tag, _ in Page(path).elements}
