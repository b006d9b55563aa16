"""Large groups of the new protocol: what they may cost the others."""

from __future__ import annotations

from halfmoon.schema import control
from halfmoon.schema.groups import ConsumerGroupChange
from halfmoon.services.groups.consumer.messages import ConsumerHeartbeat
from halfmoon.services.groups.messages import Persist
from tests.services.groups.consumer_script import Script


def test_the_pause_between_assignments_grows_with_members_times_topics() -> None:
    script = Script()
    names = [f"x{number}" for number in range(1_000)]
    for name in names:
        script.run(f"topic {name} 1")
    script.run(f"beat m0 topics={','.join(names)}")
    for number in range(1, 10):
        script.run(f"beat m{number} topics={','.join(names)}")
    script.run("tick 200")
    assert "m9 epoch=1 stable has - target -" in "".join(script.run("beat m9 epoch=1") + script.run("describe"))
    script.run("tick 1")
    assert len(script.run("beat m9 epoch=1")) == 2, "written down, and told"
    assert script.run("describe")[0].startswith("Reconciling epoch=10 assignment=10")


def test_who_names_many_topics_says_so_to_the_log_once() -> None:
    script = Script()
    for number in range(300):
        script.run(f"topic topic-{number} 1")
    written: list[int] = []

    def beat(member_id: str, epoch: int, names: tuple[str, ...] | None) -> None:
        script.now += 1_000
        joins = epoch == 0
        beat = ConsumerHeartbeat(
            "g", member_id, epoch, topics=names, owned=frozenset(), rebalance_timeout_ms=60_000 if joins else -1
        )
        for effect in script.coordinator.consumer_heartbeat(beat, member_id, script.now):
            if isinstance(effect, Persist):
                assert isinstance(effect.record, ConsumerGroupChange)
                written.append(len(control.encode(control.ConsumerGroupSaved(effect.record, 0))))
                script.remembered.save(effect.record)

    def names() -> tuple[str, ...]:
        return tuple(f"topic-{number}" for number in range(300))

    beat("a", 0, names())
    beat("b", 0, names())
    group = script.coordinator.rebalancing.groups["g"]
    assert group.members["a"].topics is group.members["b"].topics
    joined = len(written)
    assert min(written) > 3_000
    beat("a", 1, None)  # what is to be b's is given up
    beat("a", 1, None)
    beat("b", 2, None)
    assert [member.epoch for member in group.members.values()] == [2, 2]
    assert [len(member.assigned) for member in group.members.values()] == [150, 150]
    assert len(written) > joined
    assert sum(written[joined:]) < 150 * 2 * 10, "places, and no names"
    assert script.remembered.consumer["g"].members == group.members
    script.run("restart")
    assert script.coordinator.rebalancing.groups["g"].members == group.members
