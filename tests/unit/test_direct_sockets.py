"""Direct sockets: messages of all sizes arrive whole, in order, and neither end waits for the other
for ever."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from magmath.runtime import direct_socket
from magmath.runtime.direct_socket import (
    MAX_BYTES,
    DirectListener,
    DirectSocket,
    Frames,
    connect,
)
from magmath.runtime.process import SocketPort
from magmath.runtime.transport.worker_messages import WorkerMessages

WORKERS = 3
IDENTITIES = {f"secret:{rank}".encode(): rank for rank in range(WORKERS)}
SIZES = (0, 1, 100, MAX_BYTES - 8, MAX_BYTES, MAX_BYTES + 1, 300_000)


def _never(frames: Frames) -> None:
    raise AssertionError("a small message went through ZeroMQ")


class _Echo(threading.Thread):
    """A worker that sends every message back; None of a single frame `stop`."""

    def __init__(self, address: str, directory: str, identity: str, is_direct: bool) -> None:
        super().__init__(daemon=True)
        self.dealer: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        self.dealer.routing_id = identity.encode()
        self.dealer.connect(address)
        self.port = SocketPort(self.dealer)
        direct = connect(directory, identity) if is_direct else None
        self.dealer.send(b"hello")
        self.port.direct = direct
        self.start()

    def run(self) -> None:
        while True:
            frames = self.port.frames(wait=True)
            assert frames is not None
            if bytes(frames[0]) == b"stop":
                break
            if self.port.direct is None:
                self.dealer.send_multipart(frames)
            else:
                self.port.direct.send(frames, self.dealer.send_multipart)
        self.dealer.close(linger=1000)
        if self.port.direct is not None:
            self.port.direct.close()


@pytest.fixture(params=["direct", "small", "some", "none"])
def messages(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[WorkerMessages]:
    """The controller's end of connections to echoing workers, all of which have said hello.

    "direct": with direct sockets, "small": with small buffers, "some": one of the workers has one.
    """
    if request.param == "small":
        monkeypatch.setattr(direct_socket, "_BUFFER_BYTES", 1 << 15)
    context = zmq.Context()
    router, address = context.socket(zmq.ROUTER), f"ipc://{tmp_path}/controller"
    router.set_hwm(0)
    monitor: Any = router.get_monitor_socket(zmq.Event.DISCONNECTED)
    router.bind(address)
    made = WorkerMessages(router, monitor, IDENTITIES, DirectListener(str(tmp_path), WORKERS))
    echoes = [
        _Echo(
            address,
            str(tmp_path),
            identity.decode(),
            request.param in ("direct", "small") or (request.param == "some" and rank == 1),
        )
        for identity, rank in IDENTITIES.items()
    ]
    greetings: set[int] = set()
    while len(greetings) < WORKERS:
        made.wait(0.1)
        while (received := made.next()) is not None:
            assert bytes(received.frames[0]) == b"hello"
            assert received.rank is not None
            greetings.add(received.rank)
            made.use_direct_socket(received.rank)
    yield made
    for rank in range(WORKERS):
        made.send(rank, [b"stop"])
    for echo in echoes:
        echo.join(10)
        assert not echo.is_alive()
    made.close()
    router.disable_monitor()
    context.destroy(linger=0)


def _message(rng: random.Random, number: int) -> Frames:
    first = number.to_bytes(4, "little") + rng.randbytes(rng.choice(SIZES[:4]))
    return [first] if rng.random() < 0.5 else [first, rng.randbytes(rng.choice(SIZES))]


@pytest.mark.parametrize("seed", range(2))
def test_messages_come_back_whole_and_in_order(messages: WorkerMessages, seed: int) -> None:
    """Some are sent while replies are unread; more than small buffers hold."""
    rng = random.Random(seed)
    sent: dict[int, list[Frames]] = {rank: [] for rank in range(WORKERS)}
    received: dict[int, list[Frames]] = {rank: [] for rank in range(WORKERS)}
    for number in range(400):
        rank = rng.randrange(WORKERS)
        sent[rank].append(_message(rng, number))
        messages.send(rank, sent[rank][-1])
        while rng.random() < 0.2 and (reply := messages.next()) is not None:
            assert reply.rank is not None
            received[reply.rank].append(reply.frames)
    deadline = time.monotonic() + 60
    while sum(map(len, received.values())) < 400 and time.monotonic() < deadline:
        messages.wait(0.1)
        while (reply := messages.next()) is not None:
            assert reply.rank is not None
            received[reply.rank].append(reply.frames)
    for rank in range(WORKERS):
        assert [[*map(bytes, x)] for x in received[rank]] == [[*map(bytes, x)] for x in sent[rank]]


@pytest.fixture
def pair() -> Iterator[tuple[DirectSocket, DirectSocket]]:
    """The two ends of a connection."""
    one, other = (DirectSocket(x) for x in socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    yield one, other
    one.close()
    other.close()


def test_no_message_waits_for_the_reader(pair: tuple[DirectSocket, DirectSocket]) -> None:
    """More than the buffers hold is sent before the other end reads."""
    one, other = pair
    for number in range(9000):
        one.send([number.to_bytes(4, "little"), bytes(900)], _never)
    assert one._sender is not None
    numbers = []
    for _ in range(9000):
        frames = other.receive(lambda: None, wait=True)
        assert frames is not None
        numbers.append(int.from_bytes(frames[0], "little"))
    assert numbers == [*range(9000)]
    one.send([b"last"], _never)
    frames = other.receive(lambda: None, wait=True)
    assert frames is not None
    assert bytes(frames[0]) == b"last"


@pytest.mark.parametrize("closes_first", [False, True])
def test_a_full_connection_can_be_closed(
    pair: tuple[DirectSocket, DirectSocket], closes_first: bool
) -> None:
    one, other = pair
    for _ in range(9000):
        one.send([bytes(900)], _never)
    sender = one._sender
    assert sender is not None
    (other if closes_first else one).close()
    sender.join(10)
    assert not sender.is_alive()


def test_held_messages_are_one_packet(pair: tuple[DirectSocket, DirectSocket]) -> None:
    one, other = pair
    large: list[Frames] = []
    sent: list[Frames] = [[b"a"], [b"b", b"payload"], [bytes(MAX_BYTES + 1)], [b"c", b""], [b"d"]]
    for frames in sent:
        assert not other.has_messages
        assert other.receive(lambda: None) is None
        one.send(frames, large.append, hold=frames is not sent[-1])
    received = [other.receive(lambda: large.pop() if large else None) for _ in sent]
    assert [[*map(bytes, x or ())] for x in received] == sent
    for _ in range(10):  # too many for one packet
        one.send([bytes(MAX_BYTES)], _never, hold=True)
    assert other.receive(lambda: None) is not None


def test_messages_after_the_end_come_from_zeromq_alone(
    pair: tuple[DirectSocket, DirectSocket],
) -> None:
    one, other = pair
    large: list[Frames] = [[b"first"], [b"last"]]
    other.send([bytes(MAX_BYTES + 1)], lambda frames: None)
    other.send([b"second"], _never)
    other.close()

    def receive_large() -> Frames | None:
        return large.pop(0) if large else None

    received = [one.receive(receive_large) for _ in range(4)]
    assert [x and bytes(x[0]) for x in received] == [b"first", b"second", b"last", None]
    assert one.has_ended
    with pytest.raises(OSError):  # noqa: PT011
        one.send([b"x"], _never)


def test_the_last_messages_of_an_end_that_has_read_nothing_arrive(
    pair: tuple[DirectSocket, DirectSocket],
) -> None:
    one, other = pair
    one.send([b"unread"], _never)
    other.send([b"failure"], _never)
    other.close()
    frames = one.receive(lambda: None)
    assert frames is not None
    assert bytes(frames[0]) == b"failure"
    assert one.receive(lambda: None) is None
    assert one.has_ended


def test_a_poll_does_not_wait_for_a_large_message(
    pair: tuple[DirectSocket, DirectSocket],
) -> None:
    one, other = pair
    other.send([bytes(MAX_BYTES + 1)], lambda frames: None)
    other.send([b"next"], _never)
    context = zmq.Context()
    port = SocketPort(context.socket(zmq.DEALER))
    port.direct = one
    assert port.frames(wait=False) is None
    assert one.receive(lambda: [b"large"]) == [b"large"]
    frames = port.frames(wait=False)
    assert frames is not None
    assert bytes(frames[0]) == b"next"
    context.destroy(linger=0)


def test_strangers_are_not_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_socket, "_IDENTITY_SECONDS", 0.05)
    assert connect(str(tmp_path), "secret:0") is None
    context = zmq.Context()
    router = context.socket(zmq.ROUTER)
    monitor: Any = router.get_monitor_socket(zmq.Event.DISCONNECTED)
    messages = WorkerMessages(router, monitor, IDENTITIES, DirectListener(str(tmp_path), 4))
    stranger, own = connect(str(tmp_path), "other:0"), connect(str(tmp_path), "secret:0")
    silent = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    silent.connect(str(tmp_path / "direct"))
    for rank in range(WORKERS):
        messages.use_direct_socket(rank)
    assert own is not None
    assert stranger is not None
    own.send([b"x"], _never)
    messages.wait(1.0)
    received = messages.next()
    assert received is not None
    assert (received.rank, bytes(received.frames[0])) == (0, b"x")
    assert stranger.receive(lambda: None) is None
    assert stranger.has_ended
    messages.close()
    for end in (silent, stranger, own):
        end.close()
    router.disable_monitor()
    context.destroy(linger=0)
