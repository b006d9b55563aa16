"""Each scenario finds nothing wrong with nodes as they are, and finds what was taken out of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.torture.cluster import scenarios
from tests.torture.cluster.mutated import MUTATIONS
from tests.torture.cluster.needed import need_servers
from tests.torture.cluster.scenarios import SCENARIOS, Stage

pytestmark = [pytest.mark.torture, pytest.mark.timeout(400)]


@pytest.fixture(autouse=True)
def servers() -> None:
    need_servers()


FINDS: dict[str, Callable[[Stage], None]] = {
    "no epoch": scenarios.wakes_too_late,
    "neither": scenarios.wakes_long_after,
    "no position": scenarios.a_statement_comes_late,
    "acknowledged too soon": scenarios.dies_before_it_commits,
    "not confirmed": scenarios.tells_of_before,
    "committed anew": scenarios.answers_are_lost,
    "no lock": scenarios.moves_too_late,
    "not stored": scenarios.the_store_refuses,
}


def test_each_mutation_is_looked_for() -> None:
    assert set(FINDS) == set(MUTATIONS)
    assert set(FINDS.values()) == set(SCENARIOS)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.__name__)
def test_nothing_is_wrong_with_nodes_as_they_are(scenario: Callable[[Stage], None], tmp_path: Path) -> None:
    assert scenarios.play(scenario, tmp_path / "cluster", "none") == []


@pytest.mark.parametrize("name", list(FINDS))
def test_what_was_taken_out_is_found(name: str, tmp_path: Path) -> None:
    assert scenarios.play(FINDS[name], tmp_path / "cluster", name) != []
