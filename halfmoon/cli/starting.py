"""What `halfmoon serve` does. Its plain options are read here, without the parser of all other commands, which would be
a tenth of a broker's start; whatever else is said to it the parser reads (cli/serve.py), and explains."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from halfmoon.config.settings import Settings

FLAGS: Final = {
    "data_dir": "node.data_dir",
    "kafka": "listeners.kafka.bind",
    "advertise": "listeners.kafka.advertise",
    "rocketmq": "listeners.rocketmq.bind",
    "namesrv": "listeners.rocketmq.namesrv",
    "http": "listeners.http.bind",
    "workers": "workers.count",
}
"""The setting of each option."""


def options(arguments: Sequence[str]) -> dict[str, Any] | None:
    """What `start` takes, of `serve --kafka HOST:PORT …`. None where anything is there that has to be explained, or is
    not `serve`."""
    if not arguments or arguments[0] != "serve":
        return None
    found: dict[str, Any] = {}
    words = iter(arguments[1:])
    for word in words:
        name, equals, value = word.partition("=")
        key = name.removeprefix("--").replace("-", "_")
        if not equals:
            value = next(words, "")
        if name == key or "_" in name or not value or value.startswith("-"):
            return None
        if key == "unset_config":
            found.setdefault("unset_configs", []).append(value)
        elif key == "config":
            found["config"] = Path(value)
        elif key in FLAGS:
            found[key] = value
        else:
            return None
    return found


def start(*, config: Path | None = None, unset_configs: Sequence[str] = (), **flags: str | None) -> int:
    """Run a broker until SIGTERM or Ctrl-C; the exit code. `flags`: by the names of FLAGS."""
    # What is imported and made until the broker is ready stays, so there is no garbage to look for meanwhile, which
    # would take a twentieth of the start. From then on server/garbage.py says when.
    gc.disable()
    try:
        from halfmoon.config.settings import load_settings
        from halfmoon.server.process import main
        from halfmoon.services.configs.broker_configs import BrokerConfigs
        from halfmoon.services.topic_configs import topic_configs

        table = BrokerConfigs(topic_configs())
        for name in unset_configs:
            table.find(name)
        given = {FLAGS[name]: value for name, value in flags.items()}
        read = partial(load_settings, config, os.environ, given)
        if _says(read, lambda settings: settings.workers.count is not None):
            from halfmoon.server.workers.supervisor import supervise  # few want it

            return supervise(read, config, given, unset_configs)
        if _says(read, lambda settings: settings.cluster.database is not None):
            from halfmoon.server.nodes.making import make_node  # few want it

            return main(read, config=config, unset_configs=unset_configs, make=make_node)
        return main(read, config=config, unset_configs=unset_configs)
    finally:
        gc.enable()


def _says(read: Callable[[], Settings], what: Callable[[Settings], bool]) -> bool:
    """Whether the settings do. What is wrong with them `main` says."""
    from halfmoon.errors import HalfmoonError

    try:
        return what(read())
    except HalfmoonError:
        return False
