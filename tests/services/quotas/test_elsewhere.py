"""Quotas that several processes share."""

from __future__ import annotations

from halfmoon.services.quotas.elsewhere import FORGOTTEN_MS, UsedElsewhere
from halfmoon.services.quotas.service import CONNECTIONS, IP, MUTATIONS, PRODUCED, REQUEST_TIME, USER, Alteration
from tests.adapters.rig import BrokerRig


def test_a_quota_is_divided_among_those_who_have_seen_its_client() -> None:
    elsewhere = UsedElsewhere()
    use = (PRODUCED, "alice", None)
    assert elsewhere.parts(use, 0) == 1
    elsewhere.heard(1, [use], 0)
    elsewhere.heard(2, [use, (PRODUCED, "bob", None)], 1_000)
    elsewhere.heard(2, [use], 2_000)
    assert elsewhere.parts(use, 3_000) == 3
    assert elsewhere.parts((PRODUCED, "bob", None), 3_000) == 2
    assert elsewhere.parts(use, FORGOTTEN_MS + 1) == 2, "of the first nobody has heard since"
    elsewhere.forget(FORGOTTEN_MS + 1_001)
    assert elsewhere.parts((PRODUCED, "bob", None), 3_000) == 1
    elsewhere.forget(FORGOTTEN_MS + 2_001)
    assert elsewhere.parts(use, 2_000) == 1


def test_each_process_allows_its_part() -> None:
    rig = BrokerRig()
    quotas = rig.broker.quotas
    quotas.alter(Alteration([(USER, "alice")], [(PRODUCED, 1_000), (MUTATIONS, 10), (REQUEST_TIME, 50)]))
    quotas.alter(Alteration([(IP, "10.0.0.1")], [(CONNECTIONS, 8)]))
    assert quotas.limit(PRODUCED, "c", "alice") == (1_000, ("alice", None))
    quotas.elsewhere = UsedElsewhere()
    assert quotas.limit(PRODUCED, "c", "alice") == (1_000, ("alice", None)), "nobody else has seen her"
    uses = [(key, "alice", None) for key in (PRODUCED, MUTATIONS, REQUEST_TIME)]
    quotas.elsewhere.heard(1, [*uses, (CONNECTIONS, None, "10.0.0.1")], rig.clock.mono_ms())
    assert quotas.limit(PRODUCED, "c", "alice") == (500, ("alice", None))
    assert quotas.limit(MUTATIONS, "c", "alice") == (5, ("alice", None))
    assert quotas.limit(REQUEST_TIME, "c", "alice") == (50, ("alice", None)), "of this process's time"
    limits = rig.broker.settings.limits
    allowed = 4 * limits.quota_windows * limits.quota_window_ms // 1_000
    waits = [quotas.connect("10.0.0.1") for _ in range(allowed + 1)]
    assert waits[-1] > 0
    assert not any(waits[: allowed // 2])


def test_what_was_used_of_late_is_what_others_are_told() -> None:
    rig = BrokerRig()
    quotas = rig.broker.quotas
    quotas.alter(Alteration([(USER, "alice")], [(PRODUCED, 1_000), (MUTATIONS, 10)]))
    quotas.alter(Alteration([(USER, "bob")], [(PRODUCED, 1_000)]))
    assert quotas.in_use(FORGOTTEN_MS) == []
    quotas.record(PRODUCED, "c", 10, "bob")
    rig.clock.now_ms += FORGOTTEN_MS + 1
    quotas.record(PRODUCED, "c", 10, "alice")
    quotas.mutate("c", 1, "alice", strict=False)
    assert sorted(quotas.in_use(FORGOTTEN_MS)) == sorted([(PRODUCED, "alice", None), (MUTATIONS, "alice", None)])
