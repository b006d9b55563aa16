"""Where the broker is, and how to log in there: one argument of whatever the pipeline does, `bootstrap`.

    read_topic(spark, "orders", bootstrap="broker:9092")
    read_topic(spark, "orders", bootstrap=Brokers("broker:9094", command_config="client.properties"))

Without one it is what the environment names: HALFMOON_BOOTSTRAP_SERVER, or 127.0.0.1:9092, and HALFMOON_COMMAND_CONFIG.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from halfmoon.pipeline.errors import PipelineError
from halfmoon.securing import PLAINTEXT, Security, SecurityError, read
from halfmoon.securing.clients import java, librdkafka

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE = "HALFMOON_BOOTSTRAP_SERVER"
CONFIG_VARIABLE = "HALFMOON_COMMAND_CONFIG"


class Brokers:
    """The brokers of one cluster. Printed, it shows their addresses and no password.

    `servers`: HOST:PORT, several separated by commas; None: what the environment names. `command_config`: a
    client.properties; None: what the environment names. `security`: in place of a file.
    Raises PipelineError for a file that cannot be used.
    """

    def __init__(
        self,
        servers: str | None = None,
        *,
        command_config: str | Path | None = None,
        security: Security | None = None,
    ) -> None:
        self.servers = servers or os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP
        file = command_config or os.environ.get(CONFIG_VARIABLE)
        try:
            self.security = security or (read(Path(file)) if file else PLAINTEXT)
            self._librdkafka, self._java = librdkafka(self.security), java(self.security)
        except OSError as error:
            raise PipelineError(f"{file}: {error.strerror}") from None
        except SecurityError as error:
            raise PipelineError(str(error)) from None

    def confluent(self, **more: Any) -> dict[str, Any]:
        """The configuration of a client of confluent-kafka, quiet; `more` with underscores for dots."""
        named = {name.replace("_", "."): value for name, value in more.items()}
        return {"bootstrap.servers": self.servers, "log_level": 0, **self._librdkafka, **named}

    def spark(self) -> dict[str, str]:
        """Options of Spark's Kafka source and sink."""
        return {f"kafka.{name}": value for name, value in {"bootstrap.servers": self.servers, **self._java}.items()}

    def __str__(self) -> str:
        return self.servers

    def __repr__(self) -> str:
        return f"Brokers({self.servers!r}, security={self.security!r})"


Bootstrap = str | Brokers | None
"""HOST:PORT; the brokers; what the environment names."""


def brokers(given: Bootstrap = None) -> Brokers:
    """Raises PipelineError."""
    return given if isinstance(given, Brokers) else Brokers(given)
