"""Arrays of snapshots, put together from elements that were encoded when they changed."""

from __future__ import annotations

import pytest

from halfmoon.schema.snapshot import encode
from halfmoon.services.common import encoded as module
from halfmoon.services.common.encoded import EncodedArray, EncodedLater


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


def test_what_has_changed_is_encoded_once_and_later() -> None:
    said = {"a": 1, "b": 2, "c": 3}
    asked: list[str] = []

    def element(key: str) -> bytes:
        asked.append(key)
        return encode(said[key])

    array: EncodedLater[str] = EncodedLater(element)
    for key in said:
        array.changed(key)
    assert bytes(array.raw()) == encode([1, 2, 3])
    assert asked == ["a", "b", "c"]
    said["a"] = 4
    array.changed("a")
    array.changed("b")
    array.drop("b")
    array.drop("never there")
    assert array.next_left() == "a"
    for _ in array.prepare(1):
        pass
    assert array.next_left() is None
    array.encode("c")  # which has not changed
    array.changed("b")
    assert bytes(array.raw()) == encode([4, 3, 2])
    assert asked == ["a", "b", "c", "a", "b"]


def test_one_that_cannot_be_encoded_is_left() -> None:
    def element(key: str) -> bytes:
        raise ValueError(key)

    array: EncodedLater[str] = EncodedLater(element)
    array.changed("a")
    with pytest.raises(ValueError, match="a"):
        array.raw()
    assert array.next_left() == "a"
