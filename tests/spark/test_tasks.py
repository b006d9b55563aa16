"""halfmoon.pipeline.tasks: Spark's tasks are told while a query runs, and nothing is left when it has ended."""

from __future__ import annotations

import threading

import pytest

from halfmoon.pipeline import tasks
from halfmoon.pipeline.tasks import tasks_told

TASKS = 8
SLOW = "java_method('java.lang.Thread', 'sleep', CAST(100 + 0 * id AS BIGINT))"


def test_tasks_are_told_while_a_query_runs(spark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "POLL_S", 0.05)
    told: list[tuple[int, int]] = []
    with tasks_told(spark, lambda done, of: told.append((done, of))):
        assert len(spark.range(0, TASKS, 1, TASKS).selectExpr(SLOW).collect()) == TASKS
    assert {of for _, of in told} == {TASKS}
    assert told == sorted(told), "never back"
    assert any(done < TASKS for done, _ in told), "before the query has ended"
    assert "halfmoon-tasks" not in {thread.name for thread in threading.enumerate()}


def test_a_query_that_fails_says_why_itself(spark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "POLL_S", 0.05)
    with pytest.raises(Exception, match="division by zero"), tasks_told(spark, lambda _done, _of: None):
        spark.range(1).selectExpr("raise_error('division by zero')").collect()
    assert "halfmoon-tasks" not in {thread.name for thread in threading.enumerate()}
