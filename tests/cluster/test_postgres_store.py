from __future__ import annotations

import asyncio
from functools import partial

import pytest

from halfmoon.cluster.store import CatalogStore
from halfmoon.errors import StartError
from tests.cluster.catalog_contract import CatalogContract, Open
from tests.cluster.servers import postgres


def _open(dsn: str) -> CatalogStore:
    from halfmoon.cluster.postgres.catalog import PostgresStore
    from halfmoon.cluster.postgres.connecting import Access

    return PostgresStore(Access(dsn))


@pytest.fixture
def dsn() -> str:
    return asyncio.run(postgres().new_database())


class TestPostgresStore(CatalogContract):
    @pytest.fixture
    def open_store(self, dsn: str) -> Open:
        from halfmoon.cluster.postgres.connecting import Access
        from halfmoon.cluster.postgres.schema import create

        asyncio.run(create(Access(dsn), "a-cluster", 2, 2))
        return partial(_open, dsn)

    def test_it_knows_the_cluster(self, store: CatalogStore) -> None:
        assert store.cluster == ("a-cluster", 4)


def test_a_database_without_a_cluster_is_refused(dsn: str) -> None:
    with pytest.raises(StartError, match="halfmoon cluster init"):
        _open(dsn)


def test_a_cluster_is_made_once(dsn: str) -> None:
    from halfmoon.cluster.postgres.connecting import Access
    from halfmoon.cluster.postgres.schema import NEWEST, create, upgrade

    access = Access(dsn)
    with pytest.raises(StartError, match="cluster init"):
        asyncio.run(upgrade(access))
    asyncio.run(create(access, "a-cluster", 1, 0))
    with pytest.raises(StartError, match="has a cluster"):
        asyncio.run(create(access, "another", 1, 0))
    assert asyncio.run(upgrade(access)) == (NEWEST, NEWEST)
    store = _open(dsn)
    assert store.cluster == ("a-cluster", 1)
    store.close()


def test_a_newer_format_is_refused(dsn: str) -> None:
    import asyncpg

    from halfmoon.cluster.postgres.connecting import Access
    from halfmoon.cluster.postgres.schema import NEWEST, create

    async def make() -> None:
        await create(Access(dsn), "a-cluster", 1, 0)
        connection = await asyncpg.connect(dsn)
        await connection.execute(f"insert into format (number) values ({NEWEST + 2})")
        await connection.close()

    asyncio.run(make())
    with pytest.raises(StartError, match="install the version of the other nodes"):
        _open(dsn)


@pytest.mark.parametrize("kinds", [(0, 4), (1, 256), (257, 0)])
def test_numbers_of_shards_that_cannot_be(dsn: str, kinds: tuple[int, int]) -> None:
    from halfmoon.cluster.postgres.connecting import Access
    from halfmoon.cluster.postgres.schema import create

    with pytest.raises(StartError, match="shards"):
        asyncio.run(create(Access(dsn), "a-cluster", *kinds))
