"""`halfmoon serve`: the broker in the foreground. Settings: flags > environment > broker.yaml > defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from halfmoon.cli.starting import start


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
    workers: Annotated[
        int | None,
        typer.Option("--workers", metavar="N", min=1, help="Processes that share the topics. Default: one, alone."),
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
    return start(
        config=config, unset_configs=unset_config or (), data_dir=data_dir, kafka=kafka, advertise=advertise,
        rocketmq=rocketmq, namesrv=namesrv, http=http, workers=None if workers is None else str(workers),
    )  # fmt: skip
