"""One thread reads the sockets and keeps the time; whoever calls the client writes.

Everything of the engine happens under one lock. A caller takes it, has the engine do something, sends what the engine
wants sent, and leaves: so a request is on its way without a switch of threads, and its answer costs one. What a user
gave us to call is called outside the lock.
"""

from __future__ import annotations

import logging
import os
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from halfmoon.client.engine.kernel import Kernel, Pending
from halfmoon.client.engine.listening import Work
from halfmoon.client.engine.network import Connection, Network
from halfmoon.client.errors import NotRunningError, RequestTimeoutError
from halfmoon.client.making import now_ms
from halfmoon.client.threads.lock import EngineLock
from halfmoon.client.threads.sockets import Socket, drain, open_to, read, read_secure, send, shake_hands

if TYPE_CHECKING:
    import ssl

LONGEST_SLEEP_S = 3_600.0
MOST_UNSENT_BYTES = 256 << 20
"""For a node that does not read; then its connection is closed."""

T = TypeVar("T")

log = logging.getLogger("halfmoon.client.network")


class Shell:
    """A Driver. `kernel` and `network` are to be set before `start`."""

    kernel: Kernel
    network: Network

    def __init__(self, name: str) -> None:
        self._posted: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self.lock = EngineLock(self._posted, self._carry_out)
        self.tls: ssl.SSLContext | None = None
        self.on_submit: Callable[[Sequence[Work]], None] = lambda works: None
        self._selector: selectors.BaseSelector
        self._wake_in: socket.socket
        self._wake_out: socket.socket
        self._dirty: set[Socket] = set()
        """Have something to send."""
        self._to_open: deque[tuple[Socket, socket.socket | Exception]] = deque()
        self._to_watch: deque[Socket] = deque()
        """Could not send all."""
        self._after: deque[Callable[[], object]] = deque()
        """What is called outside the lock."""
        self._sleeps_until_ms = 0.0
        self._is_stopping = False
        self._process_id = -1
        self.on_failure: Callable[[], object] = lambda: None
        """Our thread ends although nobody wanted that: called under the lock."""
        self._thread = threading.Thread(target=self._run, name=f"halfmoon-client {name}", daemon=True)

    # -- for callers -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._selector.register(self._wake_in, selectors.EVENT_READ)
        self._process_id = os.getpid()
        self._thread.start()

    def call(self, function: Callable[..., T], *args: Any, **options: Any) -> T:
        """Have the engine do something."""
        with self.lock:
            if self._is_stopping:
                raise NotRunningError("the client is closed")
            if os.getpid() != self._process_id:
                raise NotRunningError("the client was started by the process that this one was forked from")
            kernel = self.kernel
            kernel.now_ms = max(kernel.now_ms, now_ms())
            try:
                return function(*args, **options)
            finally:
                self._leave()

    def look(self, function: Callable[[], T]) -> T:
        """What the engine has, while nobody changes it."""
        with self.lock:
            return function()

    def _leave(self) -> None:
        """What the engine was told has consequences."""
        self.kernel.run_ready()
        self._flush()
        deadline_ms = self.kernel.next_deadline_ms()
        if (deadline_ms is not None and deadline_ms < self._sleeps_until_ms) or self._after:
            self._wake()

    def post(self, function: Callable[..., object], *args: Any) -> None:
        """Have the engine told something, by us if nobody is at it, else by who is: a thread that waited for the lock
        would wake another one that does."""
        self._posted.append((function, args))
        self._carry_out()

    def _carry_out(self) -> None:
        posted = self._posted
        # Whoever has the lock looks at what was posted after it has left, so nothing is forgotten.
        while posted and self.lock.acquire(blocking=False):
            try:
                if self._is_stopping:
                    posted.clear()
                    return
                kernel = self.kernel
                kernel.now_ms = max(kernel.now_ms, now_ms())
                while posted:
                    function, args = posted.popleft()
                    try:
                        function(*args)
                    except Exception:
                        log.exception("event=work_failed")
                self._leave()
            finally:
                self.lock.release()

    def wait(self, pending: Pending[T], timeout_s: float | None = None) -> T:
        """Block until it is done. Raises what went wrong; RequestTimeoutError."""
        self.check_may_wait()
        with self.lock:
            if pending.is_done:
                return pending.result()
            gate = threading.Lock()
            gate.acquire()
            pending.when_done(lambda _: gate.release())
        if not gate.acquire(timeout=-1 if timeout_s is None else timeout_s):
            raise RequestTimeoutError(f"not done within {timeout_s} s")
        return pending.result()

    @property
    def is_ours(self) -> bool:
        """Whether this is the thread of the client."""
        return threading.current_thread() is self._thread

    def check_may_wait(self) -> None:
        """Raises RuntimeError in a callback that our thread calls."""
        if self.is_ours:
            raise RuntimeError("this call would wait for the thread that it runs in")

    def run(self, function: Callable[..., Pending[T]], *args: Any, **options: Any) -> T:
        """`call`, and `wait` for what comes of it."""
        self.check_may_wait()
        return self.wait(self.call(function, *args, **options))

    def call_outside(self, function: Callable[[], object]) -> None:
        """Have it called soon by our thread, without the lock."""
        self._after.append(function)

    def stop(self) -> None:
        """The thread ends. What waits is not told: whoever stops has seen to that."""
        with self.lock:
            if self._is_stopping or not self._thread.is_alive():
                return
            self._is_stopping = True
        self._wake()
        if threading.current_thread() is not self._thread and self._thread.is_alive():
            self._thread.join()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive() and not self._is_stopping

    # -- Driver ------------------------------------------------------------------------------------------------------

    def connect(self, connection: Connection) -> None:
        handle = connection.handle = Socket(connection)

        def opened(result: socket.socket | Exception) -> None:
            self._to_open.append((handle, result))
            self._wake()

        open_to(connection.address, opened)

    def write(self, connection: Connection, data: bytes) -> None:
        handle = connection.handle
        assert isinstance(handle, Socket)
        handle.out.append(data)
        handle.out_bytes += len(data)
        self._dirty.add(handle)

    def close(self, connection: Connection) -> None:
        handle = connection.handle
        assert isinstance(handle, Socket)
        handle.is_closing = True
        self._dirty.add(handle)

    def submit(self, works: Sequence[Work]) -> None:
        self.on_submit(works)

    # -- sockets -----------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        try:
            self._wake_out.send(b"\0")
        except BlockingIOError:
            pass  # it is awake
        except OSError:
            pass  # it has ended

    def _flush(self) -> None:
        """Send what can be sent."""
        while self._dirty:
            handle = self._dirty.pop()
            sock = handle.sock
            if handle.is_connected and sock is not None:
                self._send(handle, sock)
            if handle.is_closing and (not handle.out or not handle.is_connected):
                self._shut(handle)

    def _send(self, handle: Socket, sock: socket.socket) -> None:
        out = handle.out
        if handle.out_bytes > MOST_UNSENT_BYTES:
            self._lost(handle, f"the node does not read: {handle.out_bytes} bytes wait for it")
            return
        while out and not handle.is_full:
            data = handle.next_out()
            try:
                sent = send(sock, data)
            except OSError as error:
                self._lost(handle, str(error))
                return
            handle.out_bytes -= sent
            if sent < len(data):
                out.appendleft(memoryview(data)[sent:])
                if sent and handle.is_secure:
                    continue  # that was a record
                handle.is_full = True
                self._to_watch.append(handle)
                self._wake()

    def _lost(self, handle: Socket, why: str) -> None:
        self._shut(handle)
        self.network.closed(handle.connection, why)

    def _shut(self, handle: Socket) -> None:
        handle.is_connected = False
        handle.out.clear()
        handle.out_bytes = 0
        sock, handle.sock = handle.sock, None
        if sock is not None:
            if sock in self._selector.get_map():
                self._selector.unregister(sock)
            sock.close()

    # -- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._is_stopping:
                self._turn()
        except BaseException:
            log.exception("event=client_thread_failed")
            with self.lock:
                self.on_failure()
            raise
        finally:
            self._end()

    def _turn(self) -> None:
        with self.lock:
            deadline_ms = self.kernel.next_deadline_ms()
            if self._after or self._to_open or self._to_watch:
                pause_s = 0.0
            elif deadline_ms is None:
                pause_s = LONGEST_SLEEP_S
            else:
                pause_s = min(LONGEST_SLEEP_S, max(0.0, (deadline_ms - now_ms()) / 1e3))
            self._sleeps_until_ms = now_ms() + 1e3 * pause_s
        events = self._selector.select(pause_s)
        arrived: list[tuple[Socket, bytes | None, str]] = []
        writable: list[Socket] = []
        secure: list[tuple[Socket, int]] = []
        for key, mask in events:
            handle = key.data
            if handle is None:
                drain(self._wake_in)
                continue
            if handle.is_secure:
                secure.append((handle, mask))
                continue
            if mask & selectors.EVENT_WRITE:
                writable.append(handle)
            if mask & selectors.EVENT_READ and handle.is_connected:
                arrived.append(read(handle))
        with self.lock:
            self._sleeps_until_ms = 0.0
            kernel = self.kernel
            kernel.now_ms = max(kernel.now_ms, now_ms())
            for handle, mask in secure:
                if handle.is_shaking:
                    self._shake_hands(handle)
                    continue
                if mask & selectors.EVENT_WRITE:
                    writable.append(handle)
                if mask & selectors.EVENT_READ:
                    arrived.append(read_secure(handle))
            for handle in writable:
                self._writable(handle)
            for handle, data, why in arrived:
                if handle.sock is None:
                    continue  # closed meanwhile
                if data is None:
                    continue
                if data:
                    self.network.received(handle.connection, data)
                    kernel.run_ready()
                else:
                    self._lost(handle, why)
            self._watch()
            kernel.advance(now_ms())
            self._flush()
        while self._after:
            function = self._after.popleft()
            try:
                function()
            except Exception:
                log.exception("event=callback_failed")

    def _watch(self) -> None:
        """Sockets that are new, or have something left to send."""
        while self._to_open:
            handle, opened = self._to_open.popleft()
            if isinstance(opened, Exception):
                self.network.closed(handle.connection, str(opened))
            elif handle.is_closing:
                opened.close()
            else:
                handle.sock = opened
                self._selector.register(opened, selectors.EVENT_WRITE, handle)
        while self._to_watch:
            handle = self._to_watch.popleft()
            if handle.sock is not None:
                self._selector.modify(handle.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, handle)

    def _writable(self, handle: Socket) -> None:
        sock = handle.sock
        if sock is None:
            return
        if not handle.is_connected:
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                self._lost(handle, os.strerror(code))
                return
            if self.tls is not None and not handle.is_secure:
                self._begin_tls(handle, sock, self.tls)
                return
            handle.is_connected = True
            self.network.connected(handle.connection)
        handle.is_full = False
        self._selector.modify(sock, selectors.EVENT_READ, handle)
        self._dirty.add(handle)

    def _begin_tls(self, handle: Socket, sock: socket.socket, tls: ssl.SSLContext) -> None:
        self._selector.unregister(sock)
        try:
            handle.begin_tls(tls, sock)
        except (OSError, ValueError) as error:
            self._lost(handle, f"TLS: {error}")
        else:
            assert handle.sock is not None
            self._selector.register(handle.sock, selectors.EVENT_WRITE, handle)

    def _shake_hands(self, handle: Socket) -> None:
        sock = handle.sock
        if sock is None:
            return
        try:
            events = shake_hands(sock)
        except OSError as error:
            self._lost(handle, f"TLS: {error}")
            return
        if events:
            self._selector.modify(sock, events, handle)
        else:
            handle.is_shaking = False
            self._writable(handle)

    def _end(self) -> None:
        with self.lock:
            self._is_stopping = True
            for key in list(self._selector.get_map().values()):
                if key.data is not None:
                    self._shut(key.data)
            self._selector.close()
            self._wake_in.close()
            self._wake_out.close()
