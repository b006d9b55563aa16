"""Arrays of snapshots, put together from elements that were encoded when they changed."""

from __future__ import annotations

import pytest

from halfmoon.schema.snapshot import encode
from halfmoon.services.common import encoded as module
from halfmoon.services.common.encoded import EncodedArray


@pytest.mark.parametrize("count", [0, 1, 15, 16, (1 << 16) - 1, 1 << 16])
def test_nothing_is_encoded_when_it_is_put_together(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever MessagePack's head of an array is."""
    array: EncodedArray[int] = EncodedArray()
    for number in range(count):
        array.set(number, ("element", number))
    monkeypatch.setattr(module, "encode", None)
    assert bytes(array.raw()) == encode([("element", number) for number in range(count)])


def test_it_has_what_was_set_last_in_the_order_of_a_dict() -> None:
    array: EncodedArray[str] = EncodedArray()
    for key in "abc":
        array.set(key, key)
    array.set("a", "changed")
    array.drop("b")
    array.drop("never there")
    array.set("b", "again")
    assert bytes(array.raw()) == encode(["changed", "c", "again"])
