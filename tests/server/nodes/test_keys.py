"""Which keys a node needs at its start."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from halfmoon.config.settings import load_settings
from halfmoon.errors import StartError
from halfmoon.server.nodes import keys
from halfmoon.server.nodes.engines import ServiceEngines


def start(folder: Path) -> None:
    """What a node does with them."""

    async def routes() -> None:
        engines.routes(asyncio.get_running_loop(), lambda _number: None)

    sections = {
        "node": {"id": 1, "data_dir": str(folder / "data")}, "listeners": {"kafka": {"bind": "127.0.0.1:0"}},
        "cluster": {"database": "postgresql://nowhere/", "store": "s3://nowhere/", "keys": str(folder)},
    }  # fmt: skip
    engines = ServiceEngines(load_settings(sections, {}, {}))
    asyncio.run(routes())


def test_a_node_does_not_start_without_the_key_that_all_nodes_have(tmp_path: Path) -> None:
    """It would make one of its own: tokens of the others would be refused, and its secrets worth nothing to them."""
    pytest.importorskip("cryptography")
    assert keys.make_common(tmp_path, os.urandom) == [keys.CA, keys.SECRETS_KEY]
    assert keys.make_common(tmp_path, os.urandom) == []
    keys.make_node(tmp_path, 1)
    start(tmp_path)
    (tmp_path / keys.SECRETS_KEY).unlink()
    with pytest.raises(StartError, match=r"node\.key is missing: copy it from another node"):
        start(tmp_path)
    assert not (tmp_path / keys.SECRETS_KEY).exists()
    (tmp_path / keys.SECRETS_KEY).mkdir()
    with pytest.raises(StartError, match=r"node\.key: Is a directory"):
        start(tmp_path)
