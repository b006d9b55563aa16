"""The services that a cluster stands on, as its nodes are told of them: PostgreSQL and an object store.

asyncpg and obstore are imported here, and nowhere before: whoever has no cluster has not to have them
(`pip install 'halfmoon[cluster]'`).
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from halfmoon.errors import StartError
from halfmoon.server.nodes import keys
from halfmoon.server.nodes.patience import until_it_answers
from halfmoon.server.workers.routes import TlsRoutes, contexts

if TYPE_CHECKING:
    import asyncio

    from halfmoon.cluster.engine.database import LogDatabase
    from halfmoon.cluster.engine.objects import ObjectStore
    from halfmoon.cluster.postgres.connecting import Access
    from halfmoon.cluster.store import CatalogStore, Cluster
    from halfmoon.config.cluster_settings import ClusterSettings
    from halfmoon.config.settings import Settings
    from halfmoon.server.workers.routes import Routes

AddressOf = Callable[[int], "tuple[str, int] | None"]


class Engines(Protocol):
    """What follows `open` is there after it."""

    database: LogDatabase
    store: ObjectStore
    catalog: CatalogStore
    cluster: Cluster

    async def open(self) -> None:
        """Waits until the database answers. Raises StartError."""
        ...

    async def close(self) -> None:
        """But for the catalog, which whoever uses it closes."""
        ...

    def routes(self, loop: asyncio.AbstractEventLoop, address_of: AddressOf) -> Routes:
        """To the other nodes. Raises StartError."""
        ...


class ServiceEngines:
    """See Engines; of `$.cluster`."""

    database: LogDatabase
    store: ObjectStore
    catalog: CatalogStore
    cluster: Cluster

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._is_open = False

    async def open(self) -> None:
        try:
            from halfmoon.cluster.postgres.catalog import PostgresStore, read_cluster
            from halfmoon.cluster.postgres.logs import PostgresLogs
        except ImportError as error:
            raise _lacks(error) from None
        access = database_access(self._settings.cluster)
        self.store = object_store(self._settings.cluster)
        self.cluster = await until_it_answers(partial(read_cluster, access))
        self.catalog = PostgresStore(access, self.cluster)
        self.database = await PostgresLogs.open(access)
        self._is_open = True

    async def close(self) -> None:
        if self._is_open:
            await self.database.close()

    def routes(self, loop: asyncio.AbstractEventLoop, address_of: AddressOf) -> TlsRoutes:
        cluster, number = self._settings.cluster, self._settings.node.id
        assert number is not None
        found = keys.of_node(Path(cluster.keys), number)
        self._check_secrets_key(Path(cluster.keys) / keys.SECRETS_KEY)
        try:
            pair = contexts(found.authority, found.certificate, found.key)
        except (OSError, ssl.SSLError) as error:
            raise StartError(f"$.cluster.keys: {found.certificate}: {error}") from error
        return TlsRoutes(loop, cluster.bind, address_of, *pair)

    @staticmethod
    def _check_secrets_key(path: Path) -> None:
        """A node that made one of its own would know no token or secret of the others. Raises StartError."""
        try:
            path.read_bytes()
        except FileNotFoundError:
            raise StartError(f"$.cluster.keys: {path} is missing: copy it from another node") from None
        except OSError as error:
            raise StartError(f"$.cluster.keys: {path}: {error.strerror}") from error


def database_access(settings: ClusterSettings) -> Access:
    """Raises StartError."""
    try:
        from halfmoon.cluster.postgres.connecting import Access
    except ImportError as error:
        raise _lacks(error) from None
    assert settings.database is not None
    secure: ssl.SSLContext | None = None
    if settings.database_ca is not None:
        try:
            secure = ssl.create_default_context(cafile=settings.database_ca)
        except (OSError, ssl.SSLError) as error:
            raise StartError(f"$.cluster.database_ca: {settings.database_ca}: {error}") from error
    password = None
    if settings.database_password is not None:
        _secret("database_password", settings.database_password)
        # A later connection takes what is there then: a password can be changed while the node runs.
        password = partial(_content, settings.database_password)
    return Access(settings.database, password, secure)


def object_store(settings: ClusterSettings, *, patient: bool = False) -> ObjectStore:
    """`patient`: as of S3. Raises StartError."""
    try:
        from halfmoon.cluster.s3 import S3
    except ImportError as error:
        raise _lacks(error) from None
    assert settings.store is not None
    more: dict[str, Any] = {"region": settings.store_region}
    if settings.store_endpoint is not None:
        more["endpoint"] = settings.store_endpoint
    if settings.store_access_key is not None and settings.store_secret is not None:
        more["access_key_id"] = settings.store_access_key
        more["secret_access_key"] = _secret("store_secret", settings.store_secret)
    authorities = None
    if settings.store_ca is not None:
        try:
            authorities = Path(settings.store_ca).read_bytes()
        except OSError as error:
            raise StartError(f"$.cluster.store_ca: {settings.store_ca}: {error.strerror}") from error
    try:
        return S3.open(settings.store, more, authorities, patient=patient)
    except Exception as error:  # the library's own, of what it cannot make of the settings
        raise StartError(f"$.cluster.store: {error}") from error


def _secret(setting: str, path: str) -> str:
    """Raises StartError."""
    try:
        return _content(path)
    except OSError as error:
        raise StartError(f"$.cluster.{setting}: {path}: {error}") from error


def _content(path: str) -> str:
    """Raises OSError."""
    try:
        return Path(path).read_text().strip()
    except UnicodeDecodeError as error:
        raise OSError(str(error)) from None


def _lacks(error: ImportError) -> StartError:
    return StartError(f"a cluster needs more libraries ({error.name}): pip install 'halfmoon[cluster]'")
