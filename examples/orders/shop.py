"""Place an order in one database, clear the cart in another, and have them agree, whoever crashes in between.

    python examples/orders/shop.py put ann tea=2 bread
    python examples/orders/shop.py order ann --crash after-commit
    python examples/orders/shop.py work
    python examples/orders/shop.py show

README.md tells the story. The name server is the environment's NAMESRV_ADDR, else 127.0.0.1:9876.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stores import PLACED, Carts, Items, Orders, Refused

from halfmoon.client import (
    ConsumeFrom,
    Context,
    Message,
    PushConsumer,
    ReceivedMessage,
    Status,
    TransactionProducer,
    TransactionState,
)

TOPIC = "orders"
PRODUCERS, CONSUMERS = "shop", "carts"
"""Groups."""


def say(line: str) -> None:
    print(line, flush=True)


def crash(point: str, wanted: str | None) -> None:
    """Not even `finally` is run."""
    if point == wanted:
        say(f"crash {point}")
        os._exit(1)


class Shop:
    """A TransactionListener: the order's side."""

    def __init__(self, orders: Orders, crash_at: str | None = None) -> None:
        self._orders = orders
        self._crash_at = crash_at

    def execute_local_transaction(self, message: Message, argument: Any) -> TransactionState:
        """The half message is stored. What the database says is what the broker is told; if anything else goes wrong,
        the broker asks."""
        number, customer, items = argument
        try:
            self._orders.place(number, customer, items, lambda: crash("before-commit", self._crash_at))
        except Refused as why:
            say(f"order {number}: refused, {why}")
            return TransactionState.ROLLBACK
        crash("after-commit", self._crash_at)
        say(f"order {number}: placed")
        return TransactionState.COMMIT

    def check_local_transaction(self, message: ReceivedMessage) -> TransactionState:
        """The broker was not told: whoever is there of the group answers for the one who is not."""
        order = json.loads(message.body)
        state = self._orders.settle(order["number"], order["customer"])
        say(f"order {order['number']}: the broker asks; it is {state}")
        return TransactionState.COMMIT if state == PLACED else TransactionState.ROLLBACK


class CartClearer:
    """The cart's side. It may be told of an order more than once."""

    def __init__(self, carts: Carts, crash_at: str | None) -> None:
        self._carts = carts
        self._crash_at = crash_at

    def __call__(self, messages: Sequence[ReceivedMessage], context: Context) -> Status:
        for message in messages:
            order = json.loads(message.body)
            is_new = self._carts.clear(order["number"], order["customer"], order["items"])
            say(f"order {order['number']}: {'taken out of the cart' if is_new else 'seen before'}")
            crash("after-clearing", self._crash_at)
        return Status.SUCCESS


def put(orders: Orders, carts: Carts, options: argparse.Namespace) -> None:
    items: dict[str, int] = {}
    for each in options.items:
        item, _, count = each.partition("=")
        items[item] = items.get(item, 0) + int(count or 1)
    carts.put(options.customer, items)


def order(orders: Orders, carts: Carts, options: argparse.Namespace) -> None:
    items: Items = carts.content(options.customer)
    if not items:
        sys.exit(f"the cart of {options.customer} is empty")
    number = secrets.token_hex(4)
    body = json.dumps({"number": number, "customer": options.customer, "items": items}).encode()
    with TransactionProducer(PRODUCERS, Shop(orders, options.crash)) as producer:
        message = Message(TOPIC, body, tags=PLACED, keys=number)
        producer.send_in_transaction(message, (number, options.customer, items))


def work(orders: Orders, carts: Carts, options: argparse.Namespace) -> None:
    """Until Ctrl-C."""
    clearer = CartClearer(carts, options.crash)
    try:
        with (
            # It sends nothing. The topic is named so that brokers know of it, and can ask it.
            TransactionProducer(PRODUCERS, Shop(orders), topics=[TOPIC]),
            PushConsumer(CONSUMERS, clearer, {TOPIC: PLACED}, consume_from=ConsumeFrom.FIRST),
        ):
            threading.Event().wait()
    except KeyboardInterrupt:
        pass


def show(orders: Orders, carts: Carts, options: argparse.Namespace) -> None:
    for customer in carts.customers():
        say(f"cart of {customer}: {', '.join(f'{n} {item}' for item, n in carts.content(customer).items())}")
    cleared = carts.cleared()
    placed = set()
    for number, customer, state in orders.all():
        placed |= {number} if state == PLACED else set()
        say(f"order {number} of {customer}: {state}{', taken out of the cart' if number in cleared else ''}")
    say("they agree" if placed == cleared else "they do not agree")


def main() -> None:
    parser = argparse.ArgumentParser(description="An order in one database, a cart in another.")
    parser.add_argument("--dir", type=Path, default=Path("out/orders"), help="where the databases are (%(default)s)")
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("put", help="put things into a cart")
    command.set_defaults(run=put)
    command.add_argument("customer")
    command.add_argument("items", nargs="+", metavar="ITEM[=COUNT]")
    command = commands.add_parser("order", help="order what is in a cart")
    command.set_defaults(run=order)
    command.add_argument("customer")
    command.add_argument("--crash", choices=["before-commit", "after-commit"])
    command = commands.add_parser("work", help="answer the broker, and clear carts")
    command.set_defaults(run=work)
    command.add_argument("--crash", choices=["after-clearing"])
    commands.add_parser("show", help="do orders and carts agree?").set_defaults(run=show)
    options = parser.parse_args()
    options.dir.mkdir(parents=True, exist_ok=True)
    options.run(Orders(options.dir / "orders.sqlite"), Carts(options.dir / "carts.sqlite"), options)


if __name__ == "__main__":
    main()
