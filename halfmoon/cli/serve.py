"""`halfmoon serve`: the broker in the foreground. Settings: flags > environment > broker.yaml > defaults."""

from __future__ import annotations

import gc
import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer


def serve(
    config: Annotated[Path | None, typer.Option("--config", metavar="FILE", help="A broker.yaml.")] = None,
    data_dir: Annotated[str | None, typer.Option("--data-dir", metavar="DIR", help="Directory of the log.")] = None,
    kafka: Annotated[
        str | None,
        typer.Option("--kafka", metavar="HOST:PORT", help="Address for Kafka clients. Port 0: any free port."),
    ] = None,
    advertise: Annotated[
        str | None,
        typer.Option(
            "--advertise",
            metavar="HOST:PORT",
            help="Address advertised to clients. Default: the address the client connected to.",
        ),
    ] = None,
    rocketmq: Annotated[
        str | None,
        typer.Option("--rocketmq", metavar="HOST:PORT", help="Address for RocketMQ clients. Default: off."),
    ] = None,
    namesrv: Annotated[
        str | None,
        typer.Option("--namesrv", metavar="HOST:PORT", help="Address of RocketMQ's name service (namesrvAddr)."),
    ] = None,
    http: Annotated[
        str | None, typer.Option("--http", metavar="HOST:PORT", help="Address of /healthz and /metrics. Default: off.")
    ] = None,
    unset_config: Annotated[
        list[str] | None,
        typer.Option(
            "--unset-config",
            metavar="NAME",
            help="Remove this dynamic configuration of the node. Repeatable.",
        ),
    ] = None,
) -> int:
    """Run a broker until SIGTERM or Ctrl-C. Prints `ready kafka=HOST:PORT data=DIR` when it accepts requests.

    SIGHUP reloads the settings that can change while it runs.
    """
    # The broker and its dependencies are imported by nobody but this command. All of that stays, so there is no garbage
    # to look for meanwhile: that would take a twentieth of the start.
    gc.disable()
    try:
        from halfmoon.config.settings import load_settings
        from halfmoon.server.process import main
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
    read = partial(load_settings, config, os.environ, flags)
    return main(read, config=config, unset_configs=unset_config or ())
