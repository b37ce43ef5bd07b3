"""Direct sockets between the controller and the workers of its host, for small messages.

ZeroMQ sends and receives in threads of its own, so a message through it wakes three threads one
after the other: the sender's, the receiver's, and the receiver. A Unix socket wakes the receiver
alone. Large messages still go through ZeroMQ, which stores them until they are read; a mark in the
direct socket takes the place of such a message, so the order is that in which they were sent.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from struct import Struct
from typing import Final, TypeAlias, final

Frames: TypeAlias = Sequence[bytes | memoryview]

MAX_BYTES: Final = 16 << 10
"""Bytes of the largest message that is sent directly."""
MAX_PACKET: Final = 64 << 10
"""Bytes of the largest packet, which may contain several messages."""
_HEADER: Final = Struct("<III")
"""Before each message of a packet: the number of its frames, one or two, and their bytes; 0, 0, 0
is the mark of a message that ZeroMQ brings."""
_MARK: Final = _HEADER.pack(0, 0, 0)
_BUFFER_BYTES: Final = 1 << 20
_NAME: Final = "direct"
_IDENTITY_SECONDS: Final = 5.0


@final
class DirectSocket:
    """One end of a connection: `send` and `receive` of messages of one or two frames.

    Messages that are held are sent in one packet with the next one, so they wake the receiver once.
    No message waits for the other end: what its buffer has no room for is sent by a thread. If the
    other end has closed the connection, messages are expected from ZeroMQ alone, whose connection
    has ended with it, and reports that.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._received: deque[Frames | None] = deque()
        """Messages of the last packet; None for one that ZeroMQ brings."""
        self._held = b""
        self._unsent: deque[bytes] = deque()
        self._sender: threading.Thread | None = None
        """The thread that sends the packets `unsent`, while there are any."""
        self._lock = threading.Lock()
        self.has_ended = False
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            connection.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)

    @property
    def has_messages(self) -> bool:
        """True if a packet was read whose messages were not all returned."""
        return bool(self._received)

    def fileno(self) -> int:
        """Return the file descriptor, to wait for messages."""
        return self._connection.fileno()

    def send(
        self, frames: Frames, send_large: Callable[[Frames], object], *, hold: bool = False
    ) -> None:
        """Send a message; a large one by `send_large`.

        hold  send it with the next one, which follows soon, unless there are many

        Raises OSError if the other end has closed the connection.
        """
        if len(frames) > 2 or sum(map(len, frames)) > MAX_BYTES:
            send_large(frames)
            self._held += _MARK
        else:
            sizes = len(frames[0]), len(frames[1]) if len(frames) == 2 else 0
            self._held += b"".join((_HEADER.pack(len(frames), *sizes), *frames))
        if hold and len(self._held) + _HEADER.size + MAX_BYTES <= MAX_PACKET:
            return
        packet, self._held = self._held, b""
        with self._lock:
            if self._sender is None and self._has_sent(packet):
                return
            self._unsent.append(packet)
            if self._sender is None:
                self._sender = threading.Thread(
                    target=self._send_rest, name="magmath-send", daemon=True
                )
                self._sender.start()

    def _has_sent(self, packet: bytes) -> bool:
        """Send a packet; return False if there is no room for it."""
        try:
            self._connection.send(packet, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return False
        return True

    def _send_rest(self) -> None:
        """Send the packets for which there was no room, in order."""
        room = select.poll()
        room.register(self._connection, select.POLLOUT)
        while True:
            room.poll()
            with self._lock:
                try:
                    while self._unsent and self._has_sent(self._unsent[0]):
                        self._unsent.popleft()
                except OSError:  # the other end has gone, which ZeroMQ reports
                    self._unsent.clear()
                if not self._unsent:
                    self._sender = None
                    return

    def receive(
        self, receive_large: Callable[[], Frames | None], *, wait: bool = False
    ) -> Frames | None:
        """Return the next message; None if there is none yet.

        receive_large  returns the next message that ZeroMQ brings; None if there is none yet
        wait           wait for the packet that contains the message
        """
        if not (self._received or self.has_ended):
            try:
                packet = self._packet(0 if wait else socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
            self.has_ended = not packet
            self._received.extend(_messages_of(packet))
        frames = self._received[0] if self._received else None
        if frames is None:
            frames = receive_large()
        if frames is not None and self._received:
            self._received.popleft()
        return frames

    def _packet(self, flags: int) -> bytes:
        """Return the next packet; nothing if the other end has closed the connection."""
        try:
            return self._connection.recv(MAX_PACKET, flags)
        except ConnectionError:  # once, if it has left packets unread; its own ones follow
            return self._connection.recv(MAX_PACKET, flags)

    def close(self) -> None:
        """Close the connection; packets for which there was no room are lost."""
        sender = self._sender
        if sender is not None:
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)  # wakes the thread
            sender.join()
        self._connection.close()


def _messages_of(packet: bytes) -> Iterator[Frames | None]:
    """Yield the messages of a packet; None for one that ZeroMQ brings."""
    view, start = memoryview(packet), 0
    while start < len(packet):
        count, first, second = _HEADER.unpack_from(packet, start)
        middle = start + _HEADER.size + first
        frames = view[start + _HEADER.size : middle], view[middle : middle + second]
        yield frames[:count] or None
        start = middle + second


def connect(directory: str, identity: str) -> DirectSocket | None:
    """Return the connection of a worker with this identity to the controller of a pool's directory;
    None if the controller accepts none."""
    connection = _new_socket()
    try:
        connection.connect(os.path.join(directory, _NAME))
        connection.send(identity.encode())
    except OSError:
        connection.close()
        return None
    return DirectSocket(connection)


@final
class DirectListener:
    """The controller's socket to which workers connect before they send Hello."""

    def __init__(self, directory: str, workers: int) -> None:
        self._listener = _new_socket()
        self._listener.bind(os.path.join(directory, _NAME))
        self._listener.listen(workers)
        self._listener.setblocking(False)

    def accepted(self) -> list[tuple[bytes, DirectSocket]]:
        """Return the new connections, with the identities of their workers."""
        found = []
        with suppress(BlockingIOError):
            while True:
                connection, _ = self._listener.accept()
                connection.settimeout(_IDENTITY_SECONDS)
                try:
                    identity = connection.recv(MAX_PACKET)
                except OSError:
                    connection.close()
                    continue
                connection.setblocking(True)
                found.append((identity, DirectSocket(connection)))
        return found

    def close(self) -> None:
        """Close the socket."""
        self._listener.close()


def _new_socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
