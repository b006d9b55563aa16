"""halfmoon.demo.stages, the parts without broker and JVM (tests/spark/test_demo.py runs them all)."""

from __future__ import annotations

import json

from halfmoon.demo.stages import summary_records
from halfmoon.pipeline.reports.report import Report


def test_summary_records_are_named_by_report_and_row() -> None:
    report = Report("by", "", ("a", "b", "n"), (("x", 1, 2.5), ("y", 2, None)), 2)
    whole = Report("all", "", ("n",), ((7,),), 0)
    records = summary_records([report, whole])
    assert [(key, tag) for key, _, tag in records] == [("by/x/1", "by"), ("by/y/2", "by"), ("all", "all")]
    assert json.loads(records[1][1]) == {"a": "y", "b": 2, "n": None}
