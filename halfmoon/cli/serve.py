"""`halfmoon serve`: the broker in the foreground. Settings: flags > environment > broker.yaml > defaults."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Annotated

import typer


def serve(
    config: Annotated[Path | None, typer.Option("--config", metavar="FILE", help="A broker.yaml.")] = None,
    data_dir: Annotated[str | None, typer.Option("--data-dir", metavar="DIR", help="Where the log lies.")] = None,
    kafka: Annotated[
        str | None, typer.Option("--kafka", metavar="HOST:PORT", help="Where Kafka clients connect; port 0 = any free.")
    ] = None,
    advertise: Annotated[
        str | None,
        typer.Option(
            "--advertise", metavar="HOST:PORT", help="What clients are told; without it, the address they came to."
        ),
    ] = None,
    rocketmq: Annotated[
        str | None,
        typer.Option("--rocketmq", metavar="HOST:PORT", help="Where RocketMQ clients are sent to; off without it."),
    ] = None,
    namesrv: Annotated[
        str | None,
        typer.Option("--namesrv", metavar="HOST:PORT", help="RocketMQ's name service: their namesrvAddr."),
    ] = None,
    http: Annotated[
        str | None, typer.Option("--http", metavar="HOST:PORT", help="Serve /healthz and /metrics there.")
    ] = None,
    unset_config: Annotated[
        list[str] | None,
        typer.Option(
            "--unset-config",
            metavar="NAME",
            help="Forget what was set for the node at run time under this name; may be given again.",
        ),
    ] = None,
) -> int:
    """Run a broker until SIGTERM or Ctrl-C. Prints `ready kafka=HOST:PORT data=DIR` when it takes requests."""
    # The broker and its dependencies are imported by nobody but this command. All of that stays, so there is no garbage
    # to look for meanwhile: that would take a twentieth of the start.
    gc.disable()
    try:
        from halfmoon.core.config import load_settings
        from halfmoon.server.app import main
        from halfmoon.services.configs.broker_configs import BrokerConfigs
        from halfmoon.services.topic_configs import topic_configs
    finally:
        gc.enable()

    flags = {
        "node.data_dir": data_dir,
        "listeners.kafka.bind": kafka,
        "listeners.kafka.advertise": advertise,
        "listeners.rocketmq.bind": rocketmq,
        "listeners.rocketmq.namesrv": namesrv,
        "listeners.http.bind": http,
    }
    table = BrokerConfigs(topic_configs())
    for name in unset_config or ():
        table.find(name)
    return main(load_settings(config, os.environ, flags), unset_configs=unset_config or ())
