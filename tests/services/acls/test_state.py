"""What a snapshot tells of access rules."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.schema.control import AclRule, AclsChanged
from halfmoon.schema.snapshot import encode
from halfmoon.services.acls.state import AclsState


def rule(name: str) -> AclRule:
    return AclRule(2, name, 3, "User:alice", "*", 3, 3)


def told(state: AclsState) -> list[str]:
    """The rules' topics, as somebody reads them who starts from the snapshot."""
    restored = AclsState()
    restored.restore("acls", msgspec.Raw(encode(state.save("acls"))))
    assert restored.save("acls") == state.save("acls")
    return [each.resource_name for each in restored.rules]


_names = st.lists(st.sampled_from("abcdefgh"), max_size=5)


@given(st.lists(st.tuples(_names, _names), max_size=8))
def test_a_snapshot_tells_the_rules_in_their_order(changes: list[tuple[list[str], list[str]]]) -> None:
    state = AclsState()
    expected: list[str] = []
    for added, removed in changes:
        state.apply(AclsChanged([rule(name) for name in added], [rule(name) for name in removed]))
        expected = [name for name in expected if name not in removed]
        expected = list(dict.fromkeys([*expected, *added]))
        assert told(state) == expected
