"""A proxy for faults: between a client and a server that speak PostgreSQL's protocol, on loopback.

    with PgProxy(server.url) as proxy:
        connection = psycopg.connect(proxy.url)
        proxy.delay(0.001)                       # each direction takes longer from now on
        proxy.round_trips(), proxy.batches()     # since the last `forget()`
        proxy.drop_reply(text="commit")          # it is executed, and the client is cut off
        proxy.drop_request(nth=3)                # the server never sees the third batch from now
        proxy.hold_request(0.5, text="commit")   # cut off now, executed half a second later
        proxy.silence(text="select")             # it is executed; no answer, no end
        proxy.cut()                              # every connection ends; new ones are taken
        proxy.close()                            # the server is gone: connections are refused

A batch is what a client sends up to a point at which it can wait: one statement, or many in a
pipeline. Its text is that of the statements it executes, also of those that were prepared before,
with their parameters; case does not matter. Each fault is met by one batch, of whatever connection.

A round trip is counted when a client sends after it was answered: what it sends in one go, however
often it does not wait, is one. What it takes to connect is not counted.
"""

import queue
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

from tests.servers.pg_wire import (
    CANCEL,
    NO,
    NOT_IN_PLAIN,
    READY,
    Message,
    code_of,
    take_first_packet,
    take_messages,
)

CHUNK_BYTES = 65_536
QUERY, PARSE, BIND, EXECUTE, SYNC, FLUSH, END = (bytes([each]) for each in b"QPBESHX")
ENDS_A_BATCH = {QUERY, SYNC, FLUSH, b"F", b"c", b"d", b"f", b"p"}
ANSWERED_READY = {QUERY, SYNC, b"F"}
EXECUTED = {b"C", b"I", b"s"}
FAILED = b"E"


@dataclass
class _Fault:
    kind: str
    text: str
    left: int
    hold_s: float = 0.0


class PgProxy:
    """Forwards to the server of a URL; see above."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.upstream = parts.hostname or "127.0.0.1", parts.port or 5432
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        user = parts.netloc.rpartition("@")[0]
        self.url = parts._replace(netloc=f"{user}@127.0.0.1:{self.port}".lstrip("@")).geturl()
        self.delay_s = 0.0
        self.closed = threading.Event()
        self._lock = threading.Lock()
        self._faults: list[_Fault] = []
        self._batches: list[tuple[str, ...]] = []
        self._round_trips = 0
        self._open: set[_Connection] = set()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # What a test says

    def delay(self, delay_s: float) -> None:
        """Delay everything from now on, in each direction. Delays do not add up."""
        self.delay_s = delay_s

    def drop_reply(self, *, text: str = "", nth: int = 1) -> None:
        """Let a batch be executed, and then end the connection instead of answering.

        It is the `nth` from now on of those that contain `text`.
        """
        self._add(_Fault("reply", text, nth))

    def drop_request(self, *, text: str = "", nth: int = 1) -> None:
        """End the connection instead of forwarding a batch."""
        self._add(_Fault("request", text, nth))

    def hold_request(self, hold_s: float, *, text: str = "", nth: int = 1) -> None:
        """End the connection of the client, and forward its batch when some time has passed."""
        self._add(_Fault("hold", text, nth, hold_s))

    def silence(self, *, text: str = "", nth: int = 1) -> None:
        """Let a batch be executed, and then say nothing more on this connection."""
        self._add(_Fault("silence", text, nth))

    def faults_left(self) -> int:
        """Return how many faults were not met yet."""
        with self._lock:
            return len(self._faults)

    def round_trips(self) -> int:
        with self._lock:
            return self._round_trips

    def batches(self) -> list[tuple[str, ...]]:
        """Return the statements of each batch; one that only prepares has none."""
        with self._lock:
            return list(self._batches)

    def connections(self) -> int:
        """Return how many connections are open, also those that only the server still has."""
        with self._lock:
            return len(self._open)

    def holds(self) -> bool:
        """Return whether the server has not yet executed a batch that is held."""
        with self._lock:
            return any(each.holds for each in self._open)

    def forget(self) -> None:
        """Reset the counters, and drop the faults that are left."""
        with self._lock:
            self._faults.clear()
            self._batches.clear()
            self._round_trips = 0

    def cut(self) -> None:
        """End every connection, on both sides."""
        with self._lock:
            connections = list(self._open)
        for each in connections:
            each.end()
        for each in connections:
            each.join(5)

    def close(self) -> None:
        """End every connection, and refuse new ones. May be repeated."""
        self.closed.set()
        end(self._listener)
        self._listener.close()
        self._thread.join(5)
        self.cut()

    # What it does

    def _add(self, fault: _Fault) -> None:
        with self._lock:
            self._faults.append(fault)

    def _accept(self) -> None:
        while not self.closed.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            connection = _Connection(self, client)
            with self._lock:
                self._open.add(connection)
            connection.start()

    def note_round_trip(self) -> None:
        with self._lock:
            self._round_trips += 1

    def note_batch(self, statements: tuple[str, ...], searched: str) -> _Fault | None:
        """Take down a batch, and return the fault that it meets."""
        with self._lock:
            self._batches.append(statements)
            matching = [fault for fault in self._faults if fault.text.upper() in searched.upper()]
            for fault in matching:
                fault.left -= 1
            met = next((fault for fault in matching if fault.left <= 0), None)
            if met is not None:
                self._faults.remove(met)
            return met

    def note_end(self, connection: "_Connection") -> None:
        with self._lock:
            self._open.discard(connection)


class _Connection(threading.Thread):
    """One client, with a connection to the server of its own."""

    def __init__(self, proxy: PgProxy, client: socket.socket) -> None:
        super().__init__(daemon=True)
        self._proxy = proxy
        self._client = client
        self._server = socket.socket()
        self._to_client = _Lane(client, proxy, self._note_answer)
        self._to_server = _Lane(self._server, proxy, lambda: None)
        self._replies = threading.Thread(target=self._pass_replies, daemon=True)
        self._prepared: dict[bytes, str] = {}
        self._answered = False
        self._lingers = False  # when the client is gone, the server still has to answer
        self._ready_wanted = 1  # how often the server will have said so: at first, when it begins
        self._ready = 0
        self._fault: _Fault | None = None
        self._quiet_from = 0  # with a fault, replies are lost after so many times
        self._executes = 0  # that the batch of the fault has, when nothing else ends its reply

    @property
    def holds(self) -> bool:
        return self._fault is not None and self._fault.kind == "hold"

    def end(self) -> None:
        end(self._client)
        end(self._server)

    def run(self) -> None:
        with self._client, self._server:
            with suppress(OSError):
                self._server.connect(self._proxy.upstream)
                for each in (self._client, self._server):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for thread in (self._to_client, self._to_server, self._replies):
                    thread.start()
                self._pass_requests()
                if not self._lingers:
                    self._to_server.put(None)
                self._replies.join()
            self.end()
            for lane in (self._to_client, self._to_server):
                lane.put(None)
                if lane.is_alive():
                    lane.join()
        self._proxy.note_end(self)

    # From the client

    def _pass_requests(self) -> None:
        buffer = bytearray()
        batch: list[Message] = []
        begun = False
        while data := self._client.recv(CHUNK_BYTES):
            buffer += data
            while not begun and (packet := take_first_packet(buffer)) is not None:
                if code_of(packet) in NOT_IN_PLAIN:
                    self._client.sendall(NO)
                    continue
                begun = True
                self._to_server.put(packet)
                self._lingers = code_of(packet) == CANCEL
            for message in take_messages(buffer) if begun else []:
                if self._answered and message.kind != END:
                    self._answered = False
                    self._proxy.note_round_trip()
                batch.append(message)
                if message.kind in ENDS_A_BATCH or message.kind == END:
                    if not self._pass_batch(batch):
                        return
                    batch = []

    def _pass_batch(self, batch: list[Message]) -> bool:
        """Forward a batch, or do as its fault says; return whether the client is still heard."""
        kinds = [message.kind for message in batch]
        data = b"".join(message.data for message in batch)
        if self._fault is not None:
            return True  # it is silenced, and what it says is not heard either
        fault = None
        if kinds[-1] in (QUERY, SYNC, FLUSH):
            fault = self._proxy.note_batch(*self._statements(batch))
        if fault is None:
            self._ready_wanted += kinds[-1] in ANSWERED_READY
            self._to_server.put(data)
            return True
        if fault.kind != "request":
            self._lingers = fault.kind != "silence"
            self._quiet_from = self._ready_wanted
            self._executes = kinds.count(EXECUTE) if kinds[-1] == FLUSH else 0
            self._fault = fault
        if fault.kind in ("request", "hold"):
            self._to_client.put(None)
        if fault.kind != "request" and not self._proxy.closed.wait(fault.hold_s):
            self._to_server.put(data)
        return fault.kind == "silence"

    def _statements(self, batch: list[Message]) -> tuple[tuple[str, ...], str]:
        """Return what a batch executes, and all text that faults are matched with."""
        statements = []
        parameters = []
        for message in batch:
            if message.kind == QUERY:
                statements.append(message.body.rstrip(b"\0").decode(errors="replace"))
            elif message.kind == PARSE:
                name, text, _ = message.body.split(b"\0", 2)
                self._prepared[name] = text.decode(errors="replace")
            elif message.kind == BIND:
                _, name, rest = message.body.split(b"\0", 2)
                statements.append(self._prepared.get(name, ""))
                parameters.append(rest.decode(errors="replace"))
        return tuple(statements), "\0".join(statements + parameters)

    # From the server

    def _pass_replies(self) -> None:
        buffer = bytearray()
        with suppress(OSError):
            while data := self._server.recv(CHUNK_BYTES):
                buffer += data
                messages = take_messages(buffer)
                heard = b"".join(each.data for each in messages if not self._is_lost(each))
                if heard:
                    self._to_client.put(heard)
                if self._fault is not None and self._is_over(self._fault):
                    break
        self._to_client.put(None)

    def _is_lost(self, message: Message) -> bool:
        """Return whether this message of the server must not reach the client."""
        lost = self._fault is not None and self._ready >= self._quiet_from
        self._ready += message.kind == READY
        if lost and self._executes and message.kind in EXECUTED:
            self._executes -= 1
            self._ready += not self._executes
        elif lost and self._executes and message.kind == FAILED:
            self._ready += 1
        return lost

    def _is_over(self, fault: _Fault) -> bool:
        """Return whether the server has answered what the client is not to hear of."""
        return fault.kind != "silence" and self._ready > self._quiet_from

    def _note_answer(self) -> None:
        self._answered = self._answered or self._ready > 0


class _Lane(threading.Thread):
    """Sends what it is given, each piece after a delay of its own, in order; None ends it all."""

    def __init__(self, target: socket.socket, proxy: PgProxy, sends: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._target = target
        self._proxy = proxy
        self._sends = sends
        self._waiting: queue.SimpleQueue[tuple[float, bytes | None]] = queue.SimpleQueue()

    def put(self, data: bytes | None) -> None:
        self._waiting.put((time.monotonic() + self._proxy.delay_s, data))

    def run(self) -> None:
        with suppress(OSError):
            while True:
                due, data = self._waiting.get()
                time.sleep(max(0.0, due - time.monotonic()))
                if data is None:
                    break
                # Said before, as the client may go on before this thread does.
                self._sends()
                self._target.sendall(data)
        end(self._target)


def end(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
