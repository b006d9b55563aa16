"""A shop that takes orders, one transaction each, and dies where it is told to: as a process of its own.

    python -m tests.outbox.program LIBRARY DSN SERVERS NAME [CRASH_AT]

LIBRARY: sqlalchemy, psycopg, aio-sqlalchemy or aio-psycopg. It prints `ready`, then the number of each order whose
block has ended. CRASH_AT: a step of the first order after which it is killed, and nothing of it runs any more.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from tests.crash.load import QUICK
from tests.outbox.servers import for_sqlalchemy

MESSAGES = 2
"""Of one order."""
STEPS = ["insert", "half message", "half messages", "commit", "end"]
"""`half message`: of the first; `end`: nothing is left to be lost."""

INSERT = "INSERT INTO orders VALUES ('{}')"


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()


def after(step: Callable[..., Any], count: int = 1) -> Callable[..., Any]:
    """The step, and the end of the process after so many."""
    left = itertools.count(1)

    def run(*given: Any, **named: Any) -> Any:
        found = step(*given, **named)
        if next(left) == count:
            die()
        return found

    async def run_awaited(*given: Any, **named: Any) -> Any:
        found = await step(*given, **named)
        if next(left) == count:
            die()
        return found

    return run_awaited if asyncio.iscoroutinefunction(step) else run


def crash_at(step: str, local: Any, channel: Any) -> None:
    """`local` and `channel`: the classes."""
    if step == "insert":
        local.insert = after(local.insert)
    elif step == "half message":
        wait = channel._wait

        # Half of them have an answer.
        if asyncio.iscoroutinefunction(wait):

            async def wait_awaited(self: Any, sent: Any) -> None:
                await wait(self, sent[:1])
                die()

            channel._wait = wait_awaited
        else:

            def wait_for_one(self: Any, sent: Any) -> None:
                wait(self, sent[:1])
                die()

            channel._wait = wait_for_one
    elif step == "half messages":
        channel._wait = after(channel._wait)
    elif step == "commit":
        local.commit = after(local.commit)
    elif step == "end":
        channel._end = after(channel._end)


def say(line: str) -> None:
    print(line, flush=True)


def run(library: str, dsn: str, servers: str, name: str, step: str) -> None:
    from confluent_kafka import Producer

    from halfmoon.outbox import channel

    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0, **QUICK})
    if library == "sqlalchemy":
        from sqlalchemy import create_engine, text

        from halfmoon.outbox import sqlalchemy as module

        outbox: Any = module.Outbox("shop", producer, create_engine(for_sqlalchemy(dsn)), timeout_s=30)
        insert = lambda tx, order: tx.session.execute(text(INSERT.format(order)))  # noqa: E731
    else:
        from halfmoon.outbox import psycopg as module  # type: ignore[no-redef]

        outbox = module.Outbox("shop", producer, dsn, timeout_s=30)
        insert = lambda tx, order: tx.connection.execute(INSERT.format(order))  # noqa: E731
    crash_at(step, module._Local, channel.KafkaChannel)
    say("ready")
    for number in itertools.count():
        order = f"{name}-{number}"
        with outbox.transaction() as tx:
            insert(tx, order)
            for index in range(MESSAGES):
                tx.send("orders", f"{order}/{index}".encode())
        say(order)


async def run_awaited(library: str, dsn: str, servers: str, name: str, step: str) -> None:
    from aiokafka import AIOKafkaProducer

    from halfmoon.outbox.aio import channel

    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        if library == "aio-sqlalchemy":
            from sqlalchemy import text
            from sqlalchemy.ext.asyncio import create_async_engine

            from halfmoon.outbox.aio import sqlalchemy as module

            outbox: Any = module.Outbox("shop", producer, create_async_engine(for_sqlalchemy(dsn)), timeout_s=30)
            insert = lambda tx, order: tx.session.execute(text(INSERT.format(order)))  # noqa: E731
        else:
            from halfmoon.outbox.aio import psycopg as module  # type: ignore[no-redef]

            outbox = module.Outbox("shop", producer, dsn, timeout_s=30)
            insert = lambda tx, order: tx.connection.execute(INSERT.format(order))  # noqa: E731
        crash_at(step, module._Local, channel.AsyncKafkaChannel)
        say("ready")
        for number in itertools.count():
            order = f"{name}-{number}"
            async with outbox.transaction() as tx:
                await insert(tx, order)
                for index in range(MESSAGES):
                    tx.send("orders", f"{order}/{index}".encode())
            say(order)


def main() -> None:
    library, dsn, servers, name, step = [*sys.argv[1:], ""][:5]
    if library.startswith("aio-"):
        asyncio.run(run_awaited(library, dsn, servers, name, step))
    else:
        run(library, dsn, servers, name, step)


if __name__ == "__main__":
    main()
