"""What the commands that speak RocketMQ's protocol share: reaching a name server, and its client's errors as one line.

The client is imported where it is used: it takes as long as all the rest of a command.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from halfmoon.cli.brokers import Brokers, addresses
from halfmoon.cli.connect import reach
from halfmoon.cli.errors import CliError, one_line

DEFAULT_PORT = 9876

_REFUSED = ("event=heartbeat_refused", "event=offset_commit_failed")


class Troubles(logging.Handler):
    """What a client that polls only logs, because it goes on trying, and a command ends with.

    A refusal does not go away by itself: of its heartbeat (the group belongs to the other protocol), of its pulls (an
    expression that only the broker finds wrong), of its progress.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._said: str | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Called by the client's threads."""
        from halfmoon.client import BrokerRefusedError

        if not isinstance(record.args, tuple) or not record.args:
            return
        why = record.args[-1]
        if str(record.msg).startswith(_REFUSED) or isinstance(why, BrokerRefusedError):
            # The first one is what the others come of.
            self._said = self._said or one_line(why)

    def check(self) -> None:
        """Raises CliError if there was one."""
        if self._said is not None:
            raise CliError(self._said)


@contextmanager
def explained() -> Iterator[Troubles]:
    """What the client raises becomes a CliError; what it logs is kept, and not written to stderr."""
    from halfmoon.client import BrokerRefusedError, ClientError

    troubles = Troubles()
    log = logging.getLogger("halfmoon.client")
    log.addHandler(troubles)
    try:
        yield troubles
    except BrokerRefusedError as error:
        raise CliError(one_line(error.remark or error)) from error
    except ClientError as error:
        raise CliError(one_line(error)) from error
    finally:
        log.removeHandler(troubles)


def client_options(namesrv: str, brokers: Brokers) -> dict[str, Any]:
    """Where the client begins, and what `--command-config` says of it. Raises CliError, SecurityError, OSError."""
    if brokers.command_config is None:
        return {"namesrv": name_servers(namesrv)}
    from halfmoon.securing.clients import rocketmq

    return {"namesrv": name_servers(namesrv), **rocketmq(brokers.security)}


def name_servers(namesrv: str) -> list[str]:
    """The `HOST:PORT`s in an option, beginning with one that accepts connections. Raises CliError if none does."""
    # RocketMQ separates them by semicolons.
    servers = addresses(namesrv.replace(";", ","), "name server", DEFAULT_PORT)
    first = reach(servers, _nobody)
    ordered = servers[first:] + servers[:first]
    return [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for _, (host, port) in ordered]


def _nobody(problem: str) -> CliError:
    return CliError(
        f"no name server answers at {problem}; start one (halfmoon serve --rocketmq HOST:PORT --namesrv HOST:PORT) or "
        "specify another address (--namesrv HOST:PORT)"
    )
