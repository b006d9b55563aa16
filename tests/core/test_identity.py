"""Who a data directory belongs to, and who may open it."""

from __future__ import annotations

import pytest

from halfmoon.config.settings import NEW_NODE
from halfmoon.core.identity import PATH, Identity
from halfmoon.core.storage.files import read_file, write_file
from halfmoon.errors import StartError
from tests.core.log_bench import new_fs


def constant(count: int) -> bytes:
    return b"\xff" * count


def test_it_is_made_once_and_never_changes() -> None:
    fs = new_fs()
    made = Identity.load_or_make(fs, 3, constant)
    assert made.node_id == 3
    assert made.cluster_id == "_____________________w", "22 letters of base64url, as Kafka's"
    assert Identity.load_or_make(fs.power_loss(), 3, lambda count: b"\0" * count) == made


def test_another_nodes_directory_is_refused() -> None:
    fs = new_fs()
    Identity.load_or_make(fs, 3, constant)
    with pytest.raises(StartError, match=r"belongs to node 3, \$\.node\.id says 4"):
        Identity.load_or_make(fs, 4, constant)


def test_a_directory_of_a_newer_format_is_refused_whatever_else_it_holds() -> None:
    fs = new_fs()
    write_file(fs, PATH, [b'{"format": 2, "cluster": {"new": "shape"}}'])
    with pytest.raises(StartError, match="of format 2, of a newer version; this version supports up to 1"):
        Identity.load_or_make(fs, 3, constant)


def test_what_a_newer_program_of_the_same_format_adds_is_passed_over() -> None:
    fs = new_fs()
    write_file(fs, PATH, [b'{"format": 1, "cluster_id": "c", "node_id": 3, "added": []}'])
    assert Identity.load_or_make(fs, 3, constant) == Identity(1, "c", 3)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"format": 1}', b'{"format": "1", "cluster_id": "c", "node_id": 3}']
)
def test_an_unreadable_one_is_said_in_a_line(content: bytes) -> None:
    fs = new_fs()
    write_file(fs, PATH, [content])
    with pytest.raises(StartError, match=r"meta\.json in the data directory cannot be read"):
        Identity.load_or_make(fs, 3, constant)
    assert read_file(fs, PATH) == content


def test_a_log_without_identity_is_not_guessed_about() -> None:
    fs = new_fs()
    fs.open("log/00000000000000000000", create=True)
    with pytest.raises(StartError, match="missing"):
        Identity.load_or_make(fs, 3, constant)


def test_a_node_that_is_not_given_an_id_is_the_directorys_and_1_where_that_is_new() -> None:
    fs = new_fs()
    assert Identity.load_or_make(fs, None, constant).node_id == NEW_NODE == 1
    assert Identity.load_or_make(fs, 1, constant).node_id == 1
    old = new_fs()
    Identity.load_or_make(old, 0, constant)
    assert Identity.load_or_make(old, None, constant).node_id == 0
