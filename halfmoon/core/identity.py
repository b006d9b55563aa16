"""Who this node is: in the data directory, made once, never changed.

`meta.json` is the first thing looked at in a data directory, so it also says which program may open it.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from halfmoon.config.settings import NEW_NODE
from halfmoon.core.storage.files import FileSystem, read_file, write_file
from halfmoon.errors import StartError
from halfmoon.uuids import new_uuid

PATH = "meta.json"
FORMAT = 1
"""Version of the data directory as a whole. Raised when an older program could not open it safely."""


class Identity(msgspec.Struct, frozen=True):
    format: int
    cluster_id: str
    node_id: int

    @classmethod
    def load_or_make(
        cls, fs: FileSystem, node_id: int | None, random_bytes: Callable[[int], bytes], cluster_id: str | None = None
    ) -> Identity:
        """`node_id` None: whatever the directory says, NEW_NODE for a new one. `cluster_id` None: a new one for a new
        directory. Raises StartError where the directory is another node's or cluster's, of a newer program, or
        unreadable."""
        data = read_file(fs, PATH)
        if data is None:
            if fs.listdir("log"):
                raise StartError(
                    f"{PATH} is missing from the data directory, but there is a log: the broker refuses to start; "
                    "`halfmoon log repair` makes a new one"
                )
            if cluster_id is None:
                cluster_id = new_uuid(random_bytes)
            identity = cls(FORMAT, cluster_id, NEW_NODE if node_id is None else node_id)
            write_file(fs, PATH, [msgspec.json.encode(identity)])
            return identity
        try:
            format_version = msgspec.json.decode(data, type=dict[str, object]).get("format")
            if isinstance(format_version, int) and format_version > FORMAT:
                raise StartError(
                    f"the data directory is of format {format_version}, of a newer version; "
                    f"this version supports up to {FORMAT}"
                )
            identity = msgspec.json.decode(data, type=cls)
        except msgspec.DecodeError as error:
            raise StartError(f"{PATH} in the data directory cannot be read: {error}") from error
        if node_id is not None and identity.node_id != node_id:
            raise StartError(f"the data directory belongs to node {identity.node_id}, $.node.id says {node_id}")
        if cluster_id is not None and identity.cluster_id != cluster_id:
            raise StartError(f"the data directory belongs to cluster {identity.cluster_id}, not to {cluster_id}")
        return identity
