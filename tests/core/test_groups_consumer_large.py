"""Large groups of the new protocol: what they may cost the others."""

from __future__ import annotations

from tests.core.consumer_script import Script


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
