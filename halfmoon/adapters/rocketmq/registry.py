"""Which request is answered by which function, and what a handler is given.

A handler is a plain function (call) → Answer, or None where it answers later (`Call.reply`) or never. What it raises of
`Refused` and BrokerError is the answer. One module per request stands in `request/`, named after its code; importing
the package registers them all. What is not registered is answered with REQUEST_CODE_NOT_SUPPORTED.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Flag, auto
from typing import Any, ClassVar, Final, Protocol, TypeVar

from msgspec import Struct

from halfmoon.adapters.rocketmq.answers import DONE, Answer, refusal
from halfmoon.adapters.rocketmq.errors import Refused
from halfmoon.adapters.rocketmq.members import Client
from halfmoon.adapters.rocketmq.node import Node
from halfmoon.adapters.rocketmq.shards import Administered
from halfmoon.adapters.tcp.access import Recorded, Rights, Use, check
from halfmoon.adapters.tcp.core import Answered, Core
from halfmoon.adapters.tcp.steps import run_steps
from halfmoon.auth.principals import Principal
from halfmoon.core.steps import Slices
from halfmoon.errors import BrokerError, Fault
from halfmoon.remoting import lenient_json
from halfmoon.remoting.codes import Code
from halfmoon.remoting.command import Command
from halfmoon.remoting.errors import MalformedJson
from halfmoon.services.audit.lines import Who
from halfmoon.services.common.services import Services

QUERY_SHARE: Final = 4
"""What a request counts for in connection.MAX_WORKED_OUT that may read anything."""
LONGEST_GROUP: Final = 255
"""Validators.CHARACTER_MAX_LENGTH."""
MOST_JSON_BYTES: Final = 2 << 20
"""Of a body that is JSON: reading so much takes 10 ms …"""
MOST_JSON_OBJECTS: Final = 12_500
"""… unless it consists of empty objects: 700,000 took half a second. A heartbeat's 12,000 are the most that anybody
needs: 1,000 groups consumed, 1,000 produced, 10,000 subscriptions."""
_INT64: Final = range(-(1 << 63), 1 << 63)

Body = TypeVar("Body", bound=Struct)


class Port(Flag):
    """Where a request is answered."""

    BROKER = auto()
    NAMES = auto()
    """The name service."""


class Peer(Client, Protocol):
    """The connection a request came on, as handlers use it."""

    owner: object
    """Identifies the connection to the hold service."""
    principal: Principal
    """Who has sent the last request."""
    log: ClassVar[logging.Logger]
    client_id: str
    """As its heartbeats say."""
    born_header: bytes
    """What messages that are sent on it say of where they were born."""
    held: int
    """Pulls that wait for messages, …"""
    held_characters: int
    """… and of the expressions that they wait with."""

    @property
    def is_closed(self) -> bool: ...

    def who(self, principal: Principal) -> Who:
        """As audit records it."""

    def reply(self, command: Command, answer: Answer) -> None: ...

    def took(self, code: int, begun_s: float) -> None:
        """A request that came at `begun_s` is answered."""

    def awaits(self, more: int) -> None:
        """So many more of its requests wait for the log (or fewer)."""

    def works_out(self, more: int) -> None:
        """More of its requests are worked out in threads (or fewer): see `connection.MAX_WORKED_OUT`."""

    def soon(self, work: Callable[[], object]) -> None:
        """Run `work` in the loop when others have had their turn."""

    def in_thread(self, work: Callable[[], object], then: Callable[[object, BaseException | None], None]) -> None:
        """Run `work` off the loop; `then(result, error)` runs in the loop."""


class Call:
    """One request."""

    __slots__ = ("begun_s", "command", "connection", "node", "principal")

    def __init__(self, node: Node, connection: Peer, command: Command, begun_s: float) -> None:
        self.node = node
        self.begun_s = begun_s
        self.connection = connection
        self.command = command
        self.principal = connection.principal
        """Who sends it; while it waits, others may send some on the same connection."""

    @property
    def core(self) -> Core:
        return self.node.core

    @property
    def services(self) -> Services:
        return self.node.services

    def text(self, name: str, default: str | None = None) -> str:
        """A field. Raises Refused(INVALID_PARAMETER) where it is missing and has no default."""
        found = self.command.fields.get(name, default)
        if found is None:
            raise Refused(Code.INVALID_PARAMETER, f"the request has no field '{name}'")
        return found

    def group(self, name: str, default: str | None = None) -> str:
        """A field that names a group. Raises Refused(INVALID_PARAMETER)."""
        return checked_group(self.text(name, default))

    def number(self, name: str, default: int | None = None) -> int:
        """A field of 64 bits at most. Raises Refused(INVALID_PARAMETER)."""
        found = self.command.fields.get(name)
        if found is None and default is not None:
            return default
        try:
            number = int(self.text(name)) if found is None or len(found) <= 20 else 1 << 63
        except ValueError:
            raise Refused(Code.INVALID_PARAMETER, f"field '{name}' is no number") from None
        if number not in _INT64:
            raise Refused(Code.INVALID_PARAMETER, f"field '{name}' is too large")
        return number

    def flag(self, name: str, *, default: bool = False) -> bool:
        return self.command.fields.get(name, "true" if default else "false").lower() == "true"

    def body(self, kind: type[Body]) -> Body:
        """The body, which is JSON, read as leniently as RocketMQ does. Raises Refused(INVALID_PARAMETER)."""
        body = self.command.body
        if len(body) > MOST_JSON_BYTES:
            raise Refused(Code.INVALID_PARAMETER, f"a body of {len(body)} bytes")
        if len(body) > 3 * MOST_JSON_OBJECTS and bytes(body).count(b"{") > MOST_JSON_OBJECTS:
            raise Refused(Code.INVALID_PARAMETER, f"a body of more than {MOST_JSON_OBJECTS} objects")
        try:
            return lenient_json.decode(body, kind)
        except MalformedJson as error:
            raise Refused(Code.INVALID_PARAMETER, f"the body cannot be read: {error}") from None

    @property
    def rights(self) -> Rights | None:
        """What the client may do; None: everything."""
        access, audit = self.node.access, self.node.audit
        if access is None:
            return None
        if audit is None:
            return access.rights(str(self.principal), self.connection.peer_host)
        rights = access.rights(str(self.principal), self.connection.peer_host, self._refused)
        if audit.records_all or (audit.records_changes and REQUESTS[self.command.code].changes):
            return Recorded(rights, self._allowed)
        return rights

    def recorded(self, rights: Rights) -> Rights:
        """The same, of which audit is told what they allow: for a request of a kind that usually changes nothing."""
        audit = self.node.audit
        if audit is None or not audit.records_changes or isinstance(rights, Recorded):
            return rights
        return Recorded(rights, self._allowed)

    def _refused(self, uses: tuple[Use, ...]) -> None:
        audit, connection = self.node.audit, self.connection
        assert audit is not None
        audit.denied(connection.who(self.principal), connection.peer_host, REQUESTS[self.command.code].name, uses)

    def _allowed(self, uses: tuple[Use, ...]) -> None:
        audit, connection = self.node.audit, self.connection
        assert audit is not None
        if audit.records_all or not uses[-1][0].startswith("describe"):
            audit.allowed(connection.who(self.principal), connection.peer_host, REQUESTS[self.command.code].name, uses)

    def check(self, operation: str, resource_type: str, resource: str) -> None:
        """Raises BrokerError where it is refused."""
        self.check_either((operation, resource_type, resource))

    def check_either(self, *uses: Use) -> None:
        """Raises BrokerError with the fault of the last where none of these is allowed."""
        rights = self.rights
        if rights is not None:
            check(rights, *uses)

    def check_change(self, *uses: Use) -> None:
        """As `check_either`, where a request that usually changes nothing is about to."""
        self.check_either(*uses)
        audit = self.node.audit
        if audit is not None and audit.records_changes and not audit.records_all and self.node.access is not None:
            self._allowed(uses)

    def allows(self, operation: str, resource_type: str, resource: str) -> bool:
        rights = self.rights
        return rights is None or rights.allows((operation, resource_type, resource))

    def forget_content(self) -> None:
        """The request is going to wait, and has been read: what it said is not to be kept meanwhile."""
        command = self.command
        command.fields, command.body, command.remark = {}, b"", None

    def reply(self, answer: Answer) -> None:
        self.connection.reply(self.command, answer)
        self.connection.took(self.command.code, self.begun_s)

    def after(self, position: int, answer: Answer) -> None:
        """Answer once the log is durable up to `position`."""
        self.connection.awaits(1)

        def durable(error: BrokerError | None) -> None:
            self.connection.awaits(-1)
            self.reply(answer if error is None else refusal(error))

        self.node.core.when_durable(position, durable)

    def when_known(self, answer: Answer) -> None:
        """Answer how something is, changed or not, once all is durable that this rests on (docs/decisions/0131)."""
        shards = self.node.shards
        if shards is None:
            self.after(self.core.turn.state_position, answer)
            return
        self.connection.awaits(1)

        def known(error: BrokerError | None) -> None:
            self.connection.awaits(-1)
            if error is None:
                self.after(self.core.turn.state_position, answer)
            else:
                self.reply(refusal(error))

        shards.changes.when_known(known)

    def change(self, work: Callable[[Administered], object]) -> None:
        """Change what is everybody's: topics, users, access rules. Answer DONE once that is durable, or what `work`
        raises."""
        shards = self.node.shards
        if shards is None:
            work(self.core)
            self.when_known(DONE)
            return
        self.hold_on()

        def changed(error: Exception | None) -> None:
            self.answer(lambda: DONE if error is None else self._failed(error))

        shards.changes.change(work, changed)

    def wait_for(self, work: Callable[[Answered], None], answer: Answer = DONE) -> None:
        """Answer once `work` has called back without an error. It may raise BrokerError instead."""
        self.connection.awaits(1)

        def told(error: BrokerError | None) -> None:
            self.connection.awaits(-1)
            self.reply(answer if error is None else refusal(error))

        try:
            work(told)
        except BrokerError:
            self.connection.awaits(-1)
            raise

    def hold_on(self) -> None:
        """The answer comes later, by `answer`."""
        self.connection.awaits(1)

    def answer(self, make: Callable[[], Answer | None]) -> None:
        """After `hold_on`: answer what `make` makes, which may raise as a handler does, and answer later again."""
        self.connection.awaits(-1)
        try:
            answer = make()
        except Exception as error:
            answer = self._failed(error)
        if answer is not None:
            self.reply(answer)

    def work_out(self, steps: Slices[Any], answered: Callable[[Any], Answer | None]) -> None:
        """Answer what `answered` makes of the result; it may raise as a handler does."""
        connection = self.connection
        connection.works_out(QUERY_SHARE)

        def done(result: Any) -> None:
            connection.works_out(-QUERY_SHARE)
            try:
                answer = answered(result)
            except Exception as error:
                answer = self._failed(error)
            if answer is not None:
                self.reply(answer)

        def failed(error: Exception) -> None:
            connection.works_out(-QUERY_SHARE)
            self.reply(self._failed(error))

        run_steps(steps, connection.in_thread, done, failed, connection.soon)

    def _failed(self, error: Exception) -> Answer:
        if isinstance(error, (Refused, BrokerError)):
            return refusal(error)
        peer, code = self.connection.peer, self.command.code
        if isinstance(error, OSError):
            self.connection.log.error("event=read_failed peer=%s code=%d error=%s", peer, code, error)
            return refusal(BrokerError(Fault.KAFKA_STORAGE_ERROR, f"the log cannot be read now: {error}"))
        self.connection.log.error("event=request_failed peer=%s code=%d", peer, code, exc_info=error)
        return Answer(Code.SYSTEM_ERROR, remark="unexpected error in the broker; see its log")


def checked_group(name: str) -> str:
    """A group's name. Raises Refused(INVALID_PARAMETER) where no client would take it (Validators.checkGroup)."""
    if len(name) > LONGEST_GROUP:
        raise Refused(Code.INVALID_PARAMETER, f"a group's name has at most {LONGEST_GROUP} characters")
    return name


Handler = Callable[[Call], Answer | None]


class Request(Struct, frozen=True):
    code: int
    name: str
    handler: Handler
    port: Port
    changes: bool
    """It changes what others rely on: only taken from this machine, unless access rules say who may."""


REQUESTS: dict[int, Request] = {}
"""By code. It is complete once the package `request` is imported; `request.registered` answers with all."""


def request(code: int, name: str, *, port: Port = Port.BROKER, changes: bool = False) -> Callable[[Handler], Handler]:
    """Register the decorated function for a request code. Registering one twice is a programmer's error."""

    def register(handler: Handler) -> Handler:
        assert code not in REQUESTS, f"request {code} is registered twice"
        REQUESTS[code] = Request(code, name, handler, port, changes)
        return handler

    return register
