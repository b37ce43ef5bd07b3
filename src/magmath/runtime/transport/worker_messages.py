"""The messages between the controller and its worker processes: over a ROUTER socket of ZeroMQ, and
over a direct socket to each worker that has connected to one (`runtime/direct_socket.py`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple, final

import zmq

from magmath.runtime.direct_socket import DirectListener, DirectSocket, Frames


@final
class Received(NamedTuple):
    """A message of a worker.

    rank    the worker; None for one that is unknown
    frames  the frames without the identity
    source  the frame by which ZeroMQ knows the connection; None for a direct socket
    """

    rank: int | None
    frames: Frames
    source: zmq.Frame | None = None


@final
class WorkerMessages:
    """Sends messages to workers by rank, and returns those that they have sent, in order.

    router    the socket that is connected to all workers
    monitor   the socket that reports closed connections, which end a `wait`
    rank_of   the rank of each worker, by its identity
    listener  the socket to which workers of this host connect directly, if there is one
    """

    def __init__(
        self,
        router: zmq.Socket[bytes],
        monitor: zmq.Socket[bytes],
        rank_of: Mapping[bytes, int],
        listener: DirectListener | None,
    ) -> None:
        self._router, self._monitor = router, monitor
        self._rank_of, self._listener = rank_of, listener
        self._identities = list(rank_of)
        self._direct: dict[int, DirectSocket] = {}
        self._connected: dict[bytes, DirectSocket] = {}
        """The direct sockets of workers that have not said Hello yet, by their identities."""
        self._of_router: dict[int, deque[Received]] = {}
        """What ZeroMQ has brought of workers with a direct socket, whose marks are not read yet."""
        self._received: deque[Received] = deque()
        self._poller = zmq.Poller()
        self._poller.register(router, zmq.POLLIN)
        self._poller.register(monitor, zmq.POLLIN)

    def send(self, rank: int, frames: Frames) -> None:
        """Send a message. Raises ZMQError or OSError if the worker has gone."""
        direct = self._direct.get(rank)
        if direct is None:
            self._send_by_router(rank, frames)
        else:
            direct.send(frames, partial(self._send_by_router, rank))

    def _send_by_router(self, rank: int, frames: Frames) -> None:
        self._router.send_multipart([self._identities[rank], *frames])

    def wait(self, seconds: float) -> bool:
        """Wait until messages have arrived, a connection was closed, or the time is over; return
        False if messages are all that has happened."""
        if self._received:
            return False
        events = dict(self._poller.poll(int(seconds * 1000)))
        if self._router in events:
            self._receive_by_router()
        for rank, direct in self._direct.items():
            if direct.has_messages or direct.has_ended or direct.fileno() in events:
                self._receive_directly(rank, direct)
        return not events or self._monitor in events

    def next(self) -> Received | None:
        """Return the next message that has arrived; None if there is none."""
        return self._received.popleft() if self._received else None

    def use_direct_socket(self, rank: int) -> None:
        """Use the direct socket of a worker that has said Hello, if it has connected to one before.

        From then on it sends the marks of the messages that ZeroMQ brings.
        """
        for identity, direct in () if self._listener is None else self._listener.accepted():
            if identity not in self._rank_of or identity in self._connected:
                direct.close()
            else:
                self._connected[identity] = direct
        connected = self._connected.pop(self._identities[rank], None)
        if connected is not None:
            self._direct[rank], self._of_router[rank] = connected, deque()
            self._poller.register(connected.fileno(), zmq.POLLIN)

    def close(self) -> None:
        """Close the direct sockets."""
        for direct in (*self._direct.values(), *self._connected.values()):
            direct.close()
        if self._listener is not None:
            self._listener.close()

    def _receive_directly(self, rank: int, direct: DirectSocket) -> None:
        """Store the messages of the next packet of a worker."""
        had_ended = direct.has_ended
        is_first = True
        while is_first or direct.has_messages or direct.has_ended:
            frames = direct.receive(lambda: self._large_message(rank))
            if frames is None:
                break
            self._received.append(Received(rank, frames))
            is_first = False
        if direct.has_ended and not had_ended:
            self._poller.unregister(direct.fileno())

    def _large_message(self, rank: int) -> Frames | None:
        """Return the next message of a worker that ZeroMQ has brought."""
        messages = self._of_router[rank]
        return messages.popleft().frames if messages else None

    def _receive_by_router(self) -> None:
        """Store the messages that ZeroMQ has brought."""
        while True:
            try:
                identity, *frames = self._router.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            rank = self._rank_of.get(identity.bytes)
            source = frames[0] if frames else identity
            received = Received(rank, [frame.buffer for frame in frames], source)
            self._of_router.get(-1 if rank is None else rank, self._received).append(received)
