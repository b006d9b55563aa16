"""A broker for tests that are coroutines: what takes time is awaited, so clients of the same loop go on meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any

from halfmoon.testing.broker import Broker

if TYPE_CHECKING:
    from halfmoon.testing.controlled import Duration, Failure
    from halfmoon.testing.record import Record


class AsyncBroker:
    """As `Broker`, whose methods of the same names say what each does; with any event loop that runs asyncio.

        async with AsyncBroker() as broker:
            async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
                …

    What takes no time is that of `broker` itself: addresses, configurations of clients, users and rules.
    """

    def __init__(self, broker: Broker | None = None, **given: Any) -> None:
        """`broker`: one that there is, which may run. Else one is made as `Broker(**given)`."""
        self.broker = Broker(**given) if broker is None else broker

    @classmethod
    def from_snapshot(cls, path: str | PathLike[str], **given: Any) -> AsyncBroker:
        return cls(Broker.from_snapshot(path, **given))

    @property
    def bootstrap_servers(self) -> str:
        return self.broker.bootstrap_servers

    def client_config(self, user: str = "test") -> dict[str, Any]:
        return self.broker.client_config(user)

    def kafka_python_config(self, user: str = "test") -> dict[str, Any]:
        """For aiokafka, too."""
        return self.broker.kafka_python_config(user)

    @property
    def now_ms(self) -> int:
        return self.broker.now_ms

    async def start(self) -> AsyncBroker:
        await asyncio.to_thread(self.broker.start)
        return self

    async def stop(self) -> None:
        await asyncio.to_thread(self.broker.stop)

    async def restart(self, node: int | None = None) -> None:
        await asyncio.to_thread(self.broker.restart, node)

    async def kill(self, node: int | None = None) -> None:
        await asyncio.to_thread(self.broker.kill, node)

    async def save(self, path: str | PathLike[str]) -> None:
        await asyncio.to_thread(self.broker.save, path)

    async def advance(self, duration: Duration, *, silent: bool = False) -> None:
        await asyncio.to_thread(self.broker.advance, duration, silent=silent)

    async def fail_next(self, api: str, error: str | int, n: int = 1, *, client: str | None = None) -> Failure:
        return await asyncio.to_thread(self.broker.fail_next, api, error, n, client=client)

    async def latency(self, delay: Duration, *apis: str, client: str | None = None) -> Failure:
        return await asyncio.to_thread(self.broker.latency, delay, *apis, client=client)

    async def disconnect(
        self, api: str | None = None, n: int = 1, *, handled: bool = False, client: str | None = None
    ) -> Failure | None:
        return await asyncio.to_thread(self.broker.disconnect, api, n, handled=handled, client=client)

    async def heal(self) -> None:
        await asyncio.to_thread(self.broker.heal)

    async def records(
        self,
        topic: str,
        *,
        partition: int | None = None,
        committed: bool = False,
        at_least: int = 0,
        timeout_s: float = 10.0,
    ) -> list[Record]:
        return await asyncio.to_thread(
            self.broker.records, topic, partition=partition, committed=committed, at_least=at_least, timeout_s=timeout_s
        )

    async def produce(
        self,
        topic: str,
        value: bytes | str | None,
        *,
        key: bytes | str | None = None,
        headers: Mapping[str, bytes | str | None] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Record:
        return await asyncio.to_thread(
            self.broker.produce, topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
        )

    async def __aenter__(self) -> AsyncBroker:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
