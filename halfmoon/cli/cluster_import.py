"""`halfmoon cluster import --config`: a data directory is brought into a cluster."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from halfmoon.cli import output
from halfmoon.cli.cluster_common import carried_out, settings_of
from halfmoon.cli.errors import CliError
from halfmoon.cli.options import Output
from halfmoon.errors import StartError
from halfmoon.server.nodes import engines, keys

if TYPE_CHECKING:
    from halfmoon.offline.key_protected import KeyProtected
    from halfmoon.server.nodes.importing import Imported


def bring_in(directory: Path, config: Path, patterns: Sequence[str], result: Output) -> int:
    """`patterns`: of names of topics whose messages go to shards of objects."""
    settings = settings_of(config)
    key = _Key(directory, Path(settings.keys))
    begun_s = time.monotonic()

    async def run() -> Imported:
        from halfmoon.cluster.postgres.tables import PostgresTables
        from halfmoon.server.nodes.importing import Importing

        store = engines.object_store(settings, patient=True)
        unused = PostgresTables(engines.database_access(settings))
        with output.progress("bringing in") as progress:
            return await Importing(
                directory, unused, store, on_objects=patterns, before_last=key.bring, progress=progress.update
            ).run()

    try:
        made = carried_out(settings, run)
    except OSError as error:
        raise CliError(f"{error.filename or directory}: {error.strerror or error}") from None
    finally:
        if key.said:
            output.note(f"halfmoon: {key.said}")
    seconds = time.monotonic() - begun_s
    found = {"directory": str(directory), **made._asdict(), "seconds": round(seconds, 1)}
    if result is Output.JSON:
        output.json_document(found)
    else:
        output.facts(found)
    output.note(f"halfmoon: start the nodes. Do not start a broker on {directory} any more: it would go its own way")
    return 0


class _Key:
    """With which secrets are kept encrypted: the directory's becomes the cluster's, if it has secrets."""

    def __init__(self, directory: Path, folder: Path) -> None:
        self._own = directory / keys.SECRETS_KEY
        self._common = folder / keys.SECRETS_KEY
        self.said = ""
        """For the user, also where the import fails afterwards: the key is another one then as well."""

    def bring(self, protected: KeyProtected) -> None:
        """Nothing is encrypted with the cluster's yet: nobody has used it. Raises StartError."""
        if not protected:
            return
        try:
            if not self._own.exists():
                self.said = f"there is no {self._own}: RocketMQ secrets and tokens have to be set anew"
                return
            keys.set_secrets_key(self._common.parent, self._own.read_bytes())
        except OSError as error:
            raise StartError(f"{error.filename}: {error.strerror}") from error
        self.said = (
            f"{self._common} is that of {self._own} now: copy it to all nodes, or secrets are worth nothing; "
            f"{keys.SECRETS_KEY_BEFORE} beside it is the one of before, if there was another"
        )
