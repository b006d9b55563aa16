"""halfmoon.pipeline.jobs.reporting: reports as a whole, over what a broker has really done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow.parquet
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from halfmoon.demo import load, source
from halfmoon.pipeline import PipelineError
from halfmoon.pipeline.admin import Admin
from halfmoon.pipeline.jobs.report_kinds import DeadLetters, Delays, Kind, SuccessRate
from halfmoon.pipeline.jobs.reporting import flight_report, report, report_stream
from halfmoon.pipeline.reports.publish import Published
from halfmoon.pipeline.reports.success_rate import Rules
from halfmoon.pipeline.steps import Step
from halfmoon.testing import Broker
from tests.crash.serving import wait_until

LEVELS = "100ms 250ms"


@pytest.fixture(scope="module")
def own() -> Iterator[str]:
    """A broker of this module's own: nobody else has dead letters or groups in it."""
    with Broker(config={"plugins": {"delay": {"levels": LEVELS}}}) as broker:
        yield broker.bootstrap_servers


def produce(bootstrap: str, topic: str, *headers: Mapping[str, str]) -> None:
    """A record for each of these headers."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for n, each in enumerate(headers):
        producer.produce(topic, b"%d" % n, headers=dict(each))
    assert producer.flush(20) == 0


def ends(bootstrap: str, topic: str) -> int:
    return sum(Admin(bootstrap).ends(topic).values())


def tables(published: Published) -> dict[str, list[dict[str, object]]]:
    """The reports' rows, which are what the Parquet files hold."""
    found = {each.name: each.dicts() for each in published.reports}
    for name, rows in found.items():
        assert pyarrow.parquet.read_table(published.page.parent / "tables" / f"{name}.parquet").num_rows == len(rows)
    assert published.page.read_text().startswith("<!DOCTYPE html>")
    return found


def test_delays_of_a_broker_by_batch_and_by_stream(spark, own: str, tmp_path: Path) -> None:
    assert load.ensure_topic(own, "reminders", 1) == 1
    asked = [{"DELAY": "1"}, {"DELAY": "2"}, {"DELAY": "2"}, {"TIMER_DELAY_MS": "50"}, {}]
    produce(own, "reminders", *asked)
    # Of a batch in which some records wait, their offsets stay empty; they get others when they are delivered.
    wait_until(lambda: ends(own, "reminders") == 5 + 4, 20, "all are delivered")
    kind = Delays("reminders", LEVELS)
    batch = report(spark, kind, tmp_path / "batch", bootstrap=own)
    first = report_stream(spark, kind, tmp_path / "stream", bootstrap=own)
    assert first.records == 5
    for published in (batch, first):
        rows = tables(published)["delay_by_level"]
        assert [(row["asked"], row["wait_s"], row["messages"]) for row in rows] == [
            ("DELAY=1", 0.1, 1), ("DELAY=2", 0.25, 2), ("TIMER_DELAY_MS", None, 1)
        ]  # fmt: skip
        assert all(-1 <= row["p50_ms"] <= row["max_ms"] < 10_000 for row in rows), "by one clock: hardly ever early"
        assert dict(published.facts)["delayed messages"] == "4"
        assert (published.page.parent / "charts" / "delay_by_level.png").read_bytes()[1:4] == b"PNG"
    produce(own, "reminders", {"DELAY": "1"})
    wait_until(lambda: ends(own, "reminders") == 5 + 4 + 1, 20, "it is delivered")
    again = report_stream(spark, kind, tmp_path / "stream", bootstrap=own)
    assert again.records == 1, "only what is new is read"
    assert [row["messages"] for row in tables(again)["delay_by_level"]] == [2, 2, 1]


def test_dead_letters_of_a_broker_that_has_none_yet(spark, own: str, tmp_path: Path) -> None:
    """The topics dlq.<group> are made with the first letter: a report that is there before has to find them."""
    kind, out = DeadLetters(), tmp_path / "stream"
    for published in (
        report(spark, kind, tmp_path / "batch", bootstrap=own),
        report_stream(spark, kind, out, bootstrap=own),
    ):
        assert (dict(published.facts), published.records) == ({"dead letters": "0", "groups": "0"}, 0)
        assert tables(published)["dlq_by_group"] == []
    given_up = {"DELAY": "-1", "RETRY_OF": "orders/0/7"}
    produce(own, "retry.billing", given_up, given_up | {"RETRY_OF": "orders/0/8"})
    produce(own, "retry.post", {"DELAY": "-1"})
    wait_until(lambda: {"dlq.billing", "dlq.post"} <= set(Admin(own).topics()), 20, "the topics are there")
    wait_until(lambda: ends(own, "dlq.billing") == 2 and ends(own, "dlq.post") == 1, 20, "all are given up")
    for published, read in (
        (report(spark, kind, tmp_path / "batch", bootstrap=own), 0),
        (report_stream(spark, kind, out, bootstrap=own), 3),
        (report_stream(spark, kind, out, bootstrap=own), 0),
    ):
        assert published.records == read
        found = tables(published)
        assert [(row["group"], row["letters"]) for row in found["dlq_by_group"]] == [("billing", 2), ("post", 1)]
        assert [(row["group"], row["topic"], row["letters"]) for row in found["dlq_by_reason"]] == [
            ("billing", "orders", 2), ("post", "?", 1)
        ]  # fmt: skip
        assert sum(row["letters"] for row in found["dlq_over_time"]) == 3


class Watched:
    """A listener that looks at the report's page at each step."""

    def __init__(self, page: Path) -> None:
        self._page = page
        self.steps: list[Step] = []
        self.pages: list[str] = []

    def __call__(self, step: Step) -> None:
        if not self.steps or (step.plan, step.number) != (self.steps[-1].plan, self.steps[-1].number):
            self.steps.append(step)
            self.pages.append(self._page.read_text() if self._page.exists() else "")


def test_a_report_says_how_far_it_is_and_so_does_its_page(
    spark, own: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load.ensure_topic(own, "watched", 1) == 1
    produce(own, "watched", {"DELAY": "1"})
    wait_until(lambda: ends(own, "watched") == 1, 20, "it is delivered")
    kind = Delays("watched", LEVELS)
    plan = ("Reading watched", "Lateness by delay asked for", "Lateness over time", "Tables, charts and the page")
    first = Watched(tmp_path / "delay.html")
    published = report(spark, kind, tmp_path, bootstrap=own, on_step=first)
    assert [(step.plan, step.number) for step in first.steps] == [(plan, number) for number in range(1, 5)]
    assert first.pages[0] == ""
    assert all("being made" in page and plan[3] in page for page in first.pages[1:])
    made = published.page.read_text()
    assert "being made" not in made

    stream = Watched(published.page)
    report_stream(spark, kind, tmp_path, bootstrap=own, on_step=stream)
    again = ("Reading what was kept", *plan[1:])
    assert [(step.plan, step.number) for step in stream.steps] == [
        (plan[:1], 1), *((again, number) for number in range(1, 5))
    ]  # fmt: skip
    assert stream.pages[0] == made
    assert all("A new report is being made: step" in page and "<section" in page for page in stream.pages[1:])
    made = published.page.read_text()
    assert "A new report" not in made

    monkeypatch.setattr(Delays, "facts", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        report(spark, kind, tmp_path, bootstrap=own)
    assert published.page.read_text() == made, "as if nothing had been tried"


def test_flights_of_the_demo(spark, own: str, tmp_path: Path) -> None:
    load.load(own, source.flights_dataset(), rows=2_000)
    for dataset in source.reference_datasets():
        load.load(own, dataset)
    steps: list[Step] = []
    published = flight_report(spark, source.FLIGHTS_TOPIC, tmp_path, bootstrap=own, on_step=steps.append)
    assert {step.number for step in steps} == set(range(1, 9))
    assert (steps[0].what, steps[-1].what) == ("Reading flights", "Tables, charts and the page")
    assert dict(published.facts)["flights"] == "2,000"
    assert len(published.facts) == 9
    assert "–" not in dict(published.facts).values()
    assert tables(published)["overview"][0]["flights"] == 2_000
    assert len(list((tmp_path / "charts").glob("*.png"))) >= 4


def test_what_is_kept_of_one_thing_is_not_gone_on_with_for_another(spark, own: str, tmp_path: Path) -> None:
    assert load.ensure_topic(own, "shop", 1) == 1
    assert load.ensure_topic(own, "other-shop", 1) == 1

    def run(kind: Kind, bootstrap: str = own) -> Published:
        return report_stream(spark, kind, tmp_path, bootstrap=bootstrap)

    run(SuccessRate("shop"))
    run(SuccessRate("shop"))
    with pytest.raises(PipelineError, match=r"_success-rate was kept with other topics .*give another --out"):
        run(SuccessRate("other-shop"))
    with pytest.raises(PipelineError, match="was kept with other rules"):
        run(SuccessRate("shop", rules=Rules(pay_within="1 hour")))
    admin = AdminClient({"bootstrap.servers": own})
    admin.delete_topics(["shop"])["shop"].result(20)
    assert load.ensure_topic(own, "shop", 1) == 1
    with pytest.raises(PipelineError, match="was kept with other topics"):
        run(SuccessRate("shop"))
    with Broker() as elsewhere:
        load.ensure_topic(elsewhere.bootstrap_servers, "shop", 1)
        with pytest.raises(PipelineError, match="was kept with other clusters"):
            run(SuccessRate("shop"), elsewhere.bootstrap_servers)
