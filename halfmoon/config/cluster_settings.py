"""`$.cluster`: one of several nodes that share their topics over a database and an object store (docs/cluster.md)."""

from __future__ import annotations

import re
from typing import Annotated

from msgspec import Meta

from halfmoon.config.listener_settings import FilePath
from halfmoon.config.sections import Section, SettingError
from halfmoon.config.units import DURATION, SIZE, Address, HostPort, PositiveDuration, PositiveSize

Text = Annotated[str, Meta(min_length=1)]
DATABASE_SCHEMES = ("postgresql://", "postgres://")
STORE_SCHEME = "s3://"


class ClusterSettings(Section, frozen=True, kw_only=True):
    """What all nodes of a cluster say alike, but for `bind`, `advertise` and `rack`."""

    database: Text | None = None
    """postgresql://USER@HOST/NAME, with more hosts where one may take over from another. None: no cluster."""
    database_password: FilePath | None = None
    """A file with the password."""
    database_ca: FilePath | None = None
    """Authorities by which the database's certificate is verified: it is connected to with TLS only, then."""
    store: Text | None = None
    """s3://BUCKET/PREFIX, as all nodes reach it."""
    store_endpoint: Text | None = None
    """The URL of a store that is not Amazon's."""
    store_region: Text = "us-east-1"
    store_access_key: Text | None = None
    """None: by what Amazon's clients look for (environment, the machine's role)."""
    store_secret: FilePath | None = None
    """A file with the access key's secret."""
    store_ca: FilePath | None = None
    """Authorities by which the store's certificate is verified; None: the system's."""
    keys: FilePath = "./cluster-keys"
    """The folder that `halfmoon cluster init` has made: the cluster's authority, this node's certificate, the key that
    secrets are kept encrypted with."""
    bind: HostPort = Address("127.0.0.1", 9190)
    """Where the other nodes connect."""
    advertise: HostPort | None = None
    """What they are told of it; None: `bind`."""
    rack: str = ""
    """As consumers' client.rack: the zone that this node is in (KIP-392)."""
    object_interval_ms: Annotated[int, Meta(ge=10, le=10_000, extra={"unit": DURATION})] = 200
    """Messages wait so long for others that go into the same object."""
    object_bytes: Annotated[int, Meta(ge=64 << 10, le=64 << 20, extra={"unit": SIZE})] = 4 << 20
    """With so many they do not wait."""
    cache_bytes: PositiveSize = 16 << 30
    """Of `node.data_dir`'s disk, for what is read and was written. What came longest ago makes way."""
    read_cache_bytes: PositiveSize = 64 << 20
    """Of memory, for what was read last of partitions that other nodes lead, for consumers of this one's rack."""
    row_age_ms: PositiveDuration = 60_000
    """Messages that are in the database are brought into an object after so long, however few they are."""
    keep_deleted_ms: Annotated[int, Meta(ge=600_000, extra={"unit": DURATION})] = 3_600_000
    """Objects that are not needed any more stay in the store for so long: so far back the database can be brought."""

    def __post_init__(self) -> None:
        if self.database is None:
            return
        if not self.database.startswith(DATABASE_SCHEMES):
            raise SettingError("database", f"{_got(self.database)}, expected postgresql://USER@HOST/NAME")
        if self.store is None or not self.store.startswith(STORE_SCHEME):
            raise SettingError("store", f"{_got(self.store)}, expected s3://BUCKET/PREFIX")
        if (self.store_access_key is None) != (self.store_secret is None):
            raise SettingError("store_secret", "expected together with store_access_key, and only then")
        if not self.told.port:
            raise SettingError("bind", "got port 0, expected one that the other nodes know")

    @property
    def told(self) -> Address:
        """Where the other nodes are told to connect."""
        return self.advertise or self.bind


def _got(url: str | None) -> str:
    """Without what may be a password."""
    scheme = re.match(r"[a-z][a-z0-9+.-]*://", url or "", re.IGNORECASE)
    if scheme is not None:
        return f"got '{scheme[0]}…'"
    return "got nothing" if url is None else "got no URL"
