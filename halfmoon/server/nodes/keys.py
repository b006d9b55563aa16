"""The folder of keys that the nodes of a cluster have in common, `$.cluster.keys`.

ca.crt, ca.key          the cluster's authority; its key is needed for new nodes only, and may be kept elsewhere
node-N.crt, node-N.key  what node N shows the others
node.key                what users' secrets are kept encrypted with; all nodes have the same
node.key.before         the one of before, where an import has put another one in its place
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from halfmoon.auth import key_files
from halfmoon.core.storage.files import OsFileSystem
from halfmoon.errors import StartError
from halfmoon.services.credentials.node_key import NodeKey

CA, CA_KEY, SECRETS_KEY = "ca.crt", "ca.key", "node.key"
SECRETS_KEY_BEFORE: Final = f"{SECRETS_KEY}.before"
_CERTIFICATE: Final = "node-{}.crt"
_KEY: Final = "node-{}.key"


class NodeKeys(NamedTuple):
    authority: Path
    certificate: Path
    key: Path


def of_node(folder: Path, number: int) -> NodeKeys:
    return NodeKeys(folder / CA, folder / _CERTIFICATE.format(number), folder / _KEY.format(number))


def make_common(folder: Path, random_bytes: Callable[[int], bytes]) -> list[str]:
    """The authority, and the key of secrets. What is there stays; the names of what was made. Raises StartError,
    OSError."""
    _make_folder(folder)
    made = [name for name in (CA, SECRETS_KEY) if not (folder / name).exists()]
    if CA in made:
        make_authority(folder)
    NodeKey(OsFileSystem(folder), random_bytes).make()
    return made


def _make_folder(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def make_authority(folder: Path) -> None:
    """In the place of the one that is there, if any: what that has signed is worth nothing from then on. Raises
    StartError, OSError."""
    _make_folder(folder)
    made = _development().make_authority(datetime.now(UTC), "Halfmoon cluster CA")
    key_files.write(folder / CA_KEY, made.key, 0o600)
    key_files.write(folder / CA, made.certificate, 0o644)


def set_secrets_key(folder: Path, content: bytes) -> None:
    """In the place of the one that is there, if any, which is kept beside it. Raises StartError where one is kept
    already, OSError."""
    path, kept = folder / SECRETS_KEY, folder / SECRETS_KEY_BEFORE
    if path.exists():
        if (before := path.read_bytes()) == content:
            return
        if kept.exists() and kept.read_bytes() != before:
            raise StartError(f"{kept} is there, of an earlier import: move it away")
        key_files.write(kept, before, 0o600)
    key_files.write(path, content, 0o600)


def make_node(folder: Path, number: int) -> NodeKeys:
    """A node's own. Raises StartError, OSError."""
    paths = of_node(folder, number)
    development = _development()
    try:
        authority = development.Pair(paths.authority.read_bytes(), (folder / CA_KEY).read_bytes())
    except FileNotFoundError as error:
        why = "it may be kept elsewhere"
        if not paths.authority.exists():
            why = (
                "`halfmoon cluster init` makes one with a new cluster, and `halfmoon cluster certificate N "
                "--new-authority` for a cluster that has lost it"
            )
        raise StartError(f"{error.filename} is missing: {why}") from error
    try:
        made = development.make_node(authority, f"node-{number}", datetime.now(UTC))
    except ValueError as error:
        raise StartError(f"{folder}: {error}") from error
    key_files.write(paths.key, made.key, 0o600)
    key_files.write(paths.certificate, made.certificate, 0o644)
    return paths


def _development() -> Any:
    try:
        from halfmoon.auth import development
    except ImportError:
        raise StartError("making keys needs more libraries: pip install 'halfmoon[cluster]'") from None
    return development
