"""tests/scheduling.py: what stays together, and what comes first."""

from __future__ import annotations

from pathlib import Path

from tests import scheduling
from tests.scheduling import EXPECTED_S, LONG, unit_of

ROOT = Path(__file__).parents[1]


def test_files_stay_together_and_so_do_those_that_share_a_jvm() -> None:
    assert unit_of("tests/core/storage/test_scan.py::test_a[b::c]") == "tests/core/storage/test_scan.py"
    assert unit_of("tests/core/test_model.py::TestModel::runTest") == "tests/core/test_model.py"
    assert unit_of("tests/spark/test_topics.py::test_a") == unit_of("tests/spark/test_audit.py::test_b")
    assert unit_of("tests/spark/test_topics.py::test_a") != unit_of("tests/spark/test_demo.py::test_b")
    assert unit_of("tests/clients/rocketmq/test_admin.py::a") == unit_of("tests/clients/rocketmq/test_groups.py::b")


def test_what_takes_longest_comes_first() -> None:
    left = scheduling._Longest()
    left["one"] = {"a": False}
    left["many"] = dict.fromkeys("abc", False)
    left["tests/spark/test_cluster.py"] = {"a": False}
    assert [left.popitem(last=False)[0] for _ in range(3)] == ["tests/spark/test_cluster.py", "many", "one"]
    assert not left


def test_what_is_named_is_there() -> None:
    units = {unit_of(f"{path.relative_to(ROOT)}::test") for path in ROOT.glob("tests/**/test_*.py")}
    assert set(EXPECTED_S) <= units
    assert all((ROOT / path).exists() for path in scheduling._TOGETHER)


def test_what_is_long_is_there() -> None:
    for entry in LONG:
        path, _, name = entry.partition("::")
        text = (ROOT / path).read_text()
        assert not name or f"def {name.partition('[')[0]}" in text, entry
