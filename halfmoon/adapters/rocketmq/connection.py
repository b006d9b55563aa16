"""One RocketMQ client's connection: frames in, requests to handlers, answers out in whatever order they are ready.

- A frame that cannot be read closes this connection, with a logged reason, and touches nothing else. A request that is
  not offered, or makes no sense, is answered with a code and a remark.
- A client that does not read its answers, has `MAX_UNANSWERED` requests in the air or `MAX_WORKED_OUT` in threads, is
  not read from until that has changed. Held pulls do not count: a consumer of many queues holds one for each, up to
  `pulling.MAX_HELD`; beyond that they do not wait.
- Answers bear the number of their request, so they leave as they come.
- The broker asks clients, too (`ask`, `tell`): what has become of a transaction, what a consumer is doing.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Mapping
from time import perf_counter
from typing import TYPE_CHECKING, ClassVar, Final

from halfmoon.adapters.rocketmq import access
from halfmoon.adapters.rocketmq.answers import Answer, refusal
from halfmoon.adapters.rocketmq.confirming import CONFIRMED, ConfirmedCall
from halfmoon.adapters.rocketmq.drawing import header
from halfmoon.adapters.rocketmq.errors import Refused
from halfmoon.adapters.rocketmq.identity import Identified
from halfmoon.adapters.rocketmq.registry import Call, Port
from halfmoon.adapters.rocketmq.to_records import BORN_HOST
from halfmoon.adapters.tcp import connection as tcp
from halfmoon.adapters.tcp.access import CLUSTER
from halfmoon.adapters.tcp.newcomers import SMALL_BYTES
from halfmoon.errors import BrokerError
from halfmoon.remoting import command as wire
from halfmoon.remoting.codes import Code
from halfmoon.remoting.command import Command
from halfmoon.remoting.errors import MalformedFrame

if TYPE_CHECKING:
    import asyncio

    from halfmoon.adapters.rocketmq.members import Reply
    from halfmoon.adapters.rocketmq.node import Node
    from halfmoon.adapters.rocketmq.registry import Request
    from halfmoon.adapters.rocketmq.signatures import Signatures
    from halfmoon.adapters.rocketmq.to_messages import MessageWriter
    from halfmoon.adapters.tcp.accepting import Arrival
    from halfmoon.adapters.tcp.listener import Listener
    from halfmoon.auth.principal_rules import PrincipalRules

MAX_UNANSWERED: Final = 8_192
"""Requests of one connection that may wait for the log: an asynchronous producer has thousands in the air."""
MAX_WORKED_OUT: Final = 8
"""What one connection may have worked out in threads, which all connections share: so many pulls, or two queries, whose
answers may take 8 MiB each."""
ASK_TIMEOUT_S: Final = 10.0
"""A client that has not answered by then does not any more."""
LONGEST_CLIENT_ID: Final = 1_000
REQUEST_COST: Final = 512
"""What a request counts for in a turn (`CONTROL_TURN_BYTES`), besides an eighth of its bytes: a turn is some 120 small
requests, or half a megabyte of large ones, and takes about five milliseconds."""
UNKNOWN: Final = -1
"""Counts requests of codes that are not offered."""
MAX_ASKED: Final = 1_000
"""Questions to one client that may wait for its answer."""

_SIZE: Final = struct.Struct(">i")


class Connection(Identified):
    """One accepted connection. Everything runs in the loop's thread."""

    log: ClassVar[logging.Logger] = logging.getLogger("halfmoon.rocketmq")

    def __init__(
        self,
        listener: Listener,
        node: Node,
        requests: Mapping[int, Request],
        port: Port,
        signatures: Signatures | None = None,
        came_as: Arrival | None = None,
        rules: PrincipalRules | None = None,
    ) -> None:
        """`requests`: those that are answered at `port`, by code. `signatures`, `rules`: as of Identified.
        `came_as`: as of tcp.Connection."""
        super().__init__(listener, signatures, came_as, rules)
        self._node = node
        self._core = listener.core
        self._requests = requests
        self._port = port
        self._unanswered = 0
        self._worked_out = 0
        self.held = 0
        """Pulls that wait for messages, …"""
        self.held_characters = 0
        """… and of the expressions that they wait with."""
        self._opaque = 0
        self._asked: dict[int, Reply] = {}
        self.client_id = ""
        """As its heartbeats say."""
        self.writer: MessageWriter | None = None
        """See `Node.writer_for`."""
        self.born_header = b""
        """What messages that are sent on it say of where they were born."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.born_header = header(BORN_HOST, self.peer.encode())

    # What a connection of the adapters' says.

    def _gone(self) -> None:
        self._forget_users()
        self._node.closed(self)
        asked, self._asked = self._asked, {}
        for reply in asked.values():
            reply(None)

    def _who(self) -> str:
        return self.client_id

    def _port_name(self) -> str:
        return "namesrv" if self._port is Port.NAMES else "rocketmq"

    def _waits(self) -> bool:
        return self._unanswered > 0 or self.held > 0

    def _is_done(self) -> bool:
        return self._unanswered == 0

    def _blocked(self) -> bool:
        if self._out_bytes > tcp.WRITE_LIMIT_BYTES:
            self._flush()
        return (
            self._is_looked_at
            or self._write_paused
            or self._unanswered >= MAX_UNANSWERED
            or self._worked_out >= MAX_WORKED_OUT
        )

    def _whole(self, start: memoryview) -> int:
        (size,) = _SIZE.unpack_from(start)
        if not 4 <= size <= wire.MAX_FRAME_BYTES:
            self._malformed(f"a frame of {size} bytes")
            return 0
        if size > SMALL_BYTES and not self._listener.newcomers.fits(self, size):
            self._malformed(f"a frame of {size} bytes before it has authenticated, among others")
            return 0
        return int(4 + size)

    # Requests.

    def _handle(self, view: memoryview) -> tuple[int, bool]:
        pos = 0
        end = len(view)
        node = self._node
        self._handling = True
        try:
            while end - pos >= 4 and not self._closed:
                size = self._whole(view[pos:])
                if not size or end - pos < size or (pos and self._turn_is_over()) or self._blocked():
                    break
                self._turn_bytes += REQUEST_COST + (size >> 3)
                pos += size
                self._take(wire.decode(view[pos - size + 4 : pos]))
                if node.extra_cost:
                    self._turn_bytes += node.extra_cost
                    node.extra_cost = 0
        except MalformedFrame as error:
            self._malformed(str(error))
        finally:
            self._node.ends.write()
            self._handling = False
        if self._core.turn.dirty:
            self._core.on_handled()
        self._flush()
        return pos, False

    def _take(self, command: Command) -> None:
        if command.is_response:
            reply = self._asked.pop(command.opaque, None)
            if reply is not None:
                reply(command)
            return
        code = command.code
        route = self._requests.get(code)
        self._counters.requests[code if route is not None else UNKNOWN].count += 1
        if route is None:
            self._counters.errors += 1
            self.reply(command, Answer(Code.REQUEST_CODE_NOT_SUPPORTED, remark=f"request code {code} is not supported"))
            return
        begun_s = perf_counter()
        self._doing = route.name
        if self._is_signed(command, lambda: self._go_on_with(route, command, begun_s)):
            self._answer(route, command, begun_s)

    def _go_on_with(self, route: Request, command: Command, begun_s: float) -> None:
        """Handle a request whose signature was looked at in a thread."""
        self._answer(route, command, begun_s)
        self._node.ends.write()
        if self._core.turn.dirty:
            self._core.on_handled()

    def _answer(self, route: Request, command: Command, begun_s: float) -> None:
        answer: Answer | None
        call: Call | None = None
        try:
            rights = self._node.access
            if route.changes and not (rights is not None and rights.denies_by_default) and not self._is_local():
                self._changes_from_afar(route)
                raise Refused(
                    Code.NO_PERMISSION, f"{route.name} is taken from this machine only, as no access rules decide"
                )
            call = self._call(command, begun_s)
            if rights is not None:
                access.check(call)
            answer = route.handler(call)
        except (Refused, BrokerError) as error:
            answer = refusal(error)
        except Exception:
            # A programmer's error in a handler. Whatever it was, it ends here and not in the loop.
            self._counters.errors += 1
            self.log.exception("event=request_failed peer=%s api=%s", self.peer, route.name)
            answer = Answer(Code.SYSTEM_ERROR, remark="unexpected error in the broker; see its log")
        if answer is not None:
            if call is not None:
                call.reply(answer)
            else:
                self.reply(command, answer)
                self.took(command.code, begun_s)

    def _call(self, command: Command, begun_s: float) -> Call:
        shards = self._node.shards
        if shards is None or shards.confirm is None or command.code not in CONFIRMED:
            return Call(self._node, self, command, begun_s)
        return ConfirmedCall(self._node, self, command, begun_s, shards.confirm)

    def _changes_from_afar(self, route: Request) -> None:
        audit = self._listener.audit
        if audit is not None:
            use = "alter", "cluster", CLUSTER
            audit.changed(self.who(self.principal), route.name, use, "denied", "not from this machine")

    def took(self, code: int, begun_s: float) -> None:
        """A request that came at `begun_s` is answered."""
        self._counters.requests[code].durations.add(perf_counter() - begun_s)

    def _is_local(self) -> bool:
        return self.peer_host == "::1" or self.peer_host.startswith("127.")

    def awaits(self, more: int) -> None:
        """So many more of its requests wait for the log (or fewer)."""
        self._unanswered += more

    def works_out(self, more: int) -> None:
        """More of its requests are worked out in threads (or fewer), by what they count for in `MAX_WORKED_OUT`."""
        self._unanswered += more
        self._worked_out += more
        if more < 0 and self._reading_paused:
            self._resume_soon()

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def is_deaf(self) -> bool:
        """It does not read: what it need not be told is not kept for it."""
        return self._closed or self._write_paused or self._out_bytes > tcp.WRITE_LIMIT_BYTES

    # Answers, and questions.

    def reply(self, command: Command, answer: Answer) -> None:
        if command.is_oneway or self._closed:
            return
        body = answer.body
        pieces = [body] if isinstance(body, bytes) else list(body)
        length = sum(map(len, pieces))
        head = wire.answer(command.kind, answer.code, command.opaque, answer.fields, answer.remark, length)
        self._send([head, *pieces] if length else [head], len(head) + length)

    def tell(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> None:
        """A request to the client that it does not answer; dropped where it does not read. Those there are come again:
        clients share queues anew every 20 s by themselves, and a half message has another check."""
        if not self.is_deaf:
            self._next_opaque()
            self._request(code, wire.ONEWAY, fields, body)

    def ask(self, code: int, fields: Mapping[str, str], body: bytes, reply: Reply) -> None:
        """A request to the client; `reply` is called once."""
        if len(self._asked) >= MAX_ASKED or self.is_deaf:
            reply(None)
            return
        opaque = self._next_opaque()
        self._asked[opaque] = reply
        self._request(code, 0, fields, body)
        self._node.later(ASK_TIMEOUT_S, lambda: self._gave_up(opaque))

    def _gave_up(self, opaque: int) -> None:
        reply = self._asked.pop(opaque, None)
        if reply is not None:
            reply(None)

    def _next_opaque(self) -> int:
        self._opaque = self._opaque % 0x7FFFFFFF + 1
        return self._opaque

    def _request(self, code: int, flag: int, fields: Mapping[str, str], body: bytes) -> None:
        frame = wire.encode(Command(code, self._opaque, flag, fields=dict(fields), body=body))
        self._send([frame], len(frame))

    def _send(self, pieces: list[tcp.Buffer], size: int) -> None:
        self._out += pieces
        self._out_bytes += size
        if self._handling:
            return
        if self._finishing:
            self._flush()
        else:
            self._flush_soon()
