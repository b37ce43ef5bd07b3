"""The control plane's messages against hostile input: it is dropped with a reason."""

from __future__ import annotations

import contextlib
import logging
import pickle
from collections import deque
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magmath.comm import LocalGroup
from magmath.errors import ProtocolError, WorkerError
from magmath.files.array_specs import RawBytes
from magmath.files.csv_rows import CsvRows
from magmath.files.hdf5 import Hdf5Chunks
from magmath.files.npz import ZipMember
from magmath.files.zarr import ZarrChunks
from magmath.layout import Layout, Mesh
from magmath.runtime import messages
from magmath.runtime.command_loop import CommandLoop, CommandPort
from magmath.runtime.failures import exception_from, failure_from
from magmath.runtime.messages import decode_command, decode_reply, encode
from magmath.runtime.tiles import TileData
from magmath.runtime.transport_interface import WorkerOptions
from magmath.runtime.worker import Worker
from pool_fakes import FakeExecutable

naturals = st.integers(0, 2**62)
texts = st.text(max_size=20)
floats = st.floats(allow_nan=False)
chunks = st.lists(naturals, max_size=3).map(tuple)
places = st.one_of(
    st.builds(RawBytes, naturals, st.booleans(), st.booleans()),
    st.builds(ZipMember, texts, naturals, chunks, st.booleans(), st.booleans()),
    st.builds(Hdf5Chunks, texts, chunks),
    st.builds(ZarrChunks, texts, chunks),
    st.builds(CsvRows, texts, naturals, chunks, chunks),
)
LAYOUT = Layout.even((6,), Mesh.line(1), 0)

commands = st.one_of(
    st.builds(messages.Put, naturals, naturals, texts, st.just([[6], "x"])),
    st.builds(messages.Get, naturals, naturals),
    st.builds(
        messages.Read, naturals, naturals, texts, st.just([[6], "x"]), texts, places, st.booleans()
    ),
    st.builds(messages.Write, naturals, naturals, texts, places, st.booleans()),
    st.builds(messages.Free, st.lists(naturals)),
    st.builds(messages.Define, naturals, naturals),
    st.builds(messages.Forget, naturals),
    st.builds(
        messages.Run,
        naturals,
        naturals,
        st.lists(naturals),
        st.lists(naturals),
        st.lists(st.one_of(st.booleans(), naturals, floats, st.tuples(floats, floats))),
        st.integers(1, 2**40),
        st.booleans(),
    ),
    st.builds(messages.Interrupt, naturals),
    st.builds(messages.Resume),
    st.builds(messages.Stats, naturals),
    st.builds(messages.Stop),
)
replies = st.one_of(
    st.builds(messages.Hello, naturals, texts, naturals, texts, naturals, st.booleans()),
    st.builds(messages.Done, naturals),
    st.builds(messages.Values, naturals, st.lists(floats), naturals),
    st.builds(messages.TileMessage, naturals),
    st.builds(messages.Progress, naturals, naturals, st.lists(floats)),
    st.builds(messages.Counters, naturals, st.dictionaries(texts, naturals)),
    st.builds(
        messages.Failure,
        naturals,
        naturals,
        texts,
        texts,
        texts,
        texts,
        texts,
        texts,
        st.booleans(),
    ),
)


@given(commands, replies)
def test_every_message_comes_back_equal(command: messages.Command, reply: messages.Reply) -> None:
    assert decode_command(encode(command)) == command
    assert decode_reply(encode(reply)) == reply


def test_a_reply_is_no_command_and_the_other_way_round() -> None:
    with pytest.raises(ProtocolError):
        decode_command(encode(messages.Done(1)))
    with pytest.raises(ProtocolError):
        decode_reply(encode(messages.Stop()))


@given(st.binary(max_size=300))
def test_random_bytes_are_refused(data: bytes) -> None:
    for decode in (decode_command, decode_reply):
        with pytest.raises(ProtocolError):
            decode(data)


@given(commands, st.data())
def test_truncated_and_damaged_messages_are_refused_or_still_messages(
    command: messages.Command, data: st.DataObject
) -> None:
    whole = encode(command)
    with pytest.raises(ProtocolError):
        decode_command(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(ProtocolError):
        decode_command(whole + b"\x00")
    damaged = bytearray(whole)
    damaged[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(ProtocolError):
        assert isinstance(decode_command(bytes(damaged)), messages.Command)


HOSTILE: dict[str, Any] = {
    "unknown type": {"type": "exec", "code": "import os"},
    "no type": {"ticket": 1},
    "type of another kind": {"type": 7, "ticket": 1},
    "missing field": {"type": "get", "ticket": 1},
    "unknown field": {"type": "get", "ticket": 1, "array_id": 2, "path": "/etc"},
    "text for a number": {"type": "get", "ticket": "1", "array_id": 2},
    "float for a number": {"type": "get", "ticket": 1.0, "array_id": 2},
    "negative number": {"type": "get", "ticket": 1, "array_id": -2},
    "number for a list": {"type": "free", "array_ids": 3},
    "list of texts": {"type": "free", "array_ids": ["3"]},
    "nothing for a list": {"type": "free", "array_ids": None},
    "no steps": {
        "type": "run", "ticket": 1, "program_id": 1, "inputs": [], "outputs": [], "scalars": [],
        "steps": 0, "report": False,
    },
    "text for a parameter": {
        "type": "run", "ticket": 1, "program_id": 1, "inputs": [], "outputs": [],
        "scalars": ["__import__('os')"], "steps": 1, "report": False,
    },
    "an array of messages": [{"type": "stop"}],
    "endless text": {"type": "put", "ticket": 1, "array_id": 1, "dtype": "f" * 10**6, "layout": []},
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_messages_with_wrong_fields_are_refused(name: str) -> None:
    with pytest.raises(ProtocolError, match="not a message"):
        decode_command(msgspec.msgpack.encode(HOSTILE[name]))


@pytest.mark.parametrize(
    "data",
    [
        b"\xdd\xff\xff\xff\xff",  # an array of four thousand million entries
        b"\x91" * 10**6,  # a million arrays, one in the other
        msgspec.msgpack.encode({"type": "put", "ticket": 1, "array_id": 1, "dtype": "f"})[:-1]
        + b"\xa6layout"
        + b"\x91" * 10**6,
        bytes(messages.MAX_MESSAGE + 1),
        b"",
    ],
    ids=["huge array", "deep", "deep in a field", "oversized", "empty"],
)
def test_messages_made_to_exhaust_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_command(data)


class Exploit:
    """What would run code if it were unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return exploited.append, (True,)


exploited: list[bool] = []


class ScriptedPort(CommandPort):
    """A port that hands out given frames and then stops its worker."""

    def __init__(self, incoming: list[list[bytes]]) -> None:
        self.incoming = deque([*incoming, [encode(messages.Stop())]])
        self.outgoing: list[messages.Reply] = []

    def frames(self, wait: bool) -> list[bytes | memoryview] | None:
        return list(self.incoming.popleft()) if self.incoming else None

    def send(
        self, reply: messages.Reply, data: TileData | None = None, *, hold: bool = False
    ) -> None:
        self.outgoing.append(reply)


def serve(incoming: list[list[bytes]]) -> list[messages.Reply]:
    """What a worker answers to these messages."""
    worker = Worker(LocalGroup(1).communicator(0), WorkerOptions(device="cpu"), FakeExecutable)
    port = ScriptedPort(incoming)
    CommandLoop(worker, port).run()
    worker.close()
    return port.outgoing


def test_a_worker_survives_hostile_messages_and_executes_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    payload = pickle.dumps(Exploit())
    put = messages.Put(1, 1, "float32", LAYOUT.encode())
    hostile = [
        *[[msgspec.msgpack.encode(message)] for message in HOSTILE.values()],
        [],
        [payload],
        [payload, payload],
        [encode(messages.Get(1, 1)), b"", b"", b""],
    ]
    with caplog.at_level(logging.WARNING):
        answers = serve([*hostile, [encode(put), bytes(24)], [encode(messages.Get(2, 1))]])
    assert answers == [messages.Done(1), messages.TileMessage(2)]
    assert len(caplog.records) == len(hostile)
    assert exploited == []


@pytest.mark.parametrize(
    ("frames", "kind"),
    [
        ([encode(messages.Put(1, 1, "float33", LAYOUT.encode())), bytes(24)], "DTypeError"),
        ([encode(messages.Put(1, 1, "float32", LAYOUT.encode())), bytes(23)], "ProtocolError"),
        ([encode(messages.Put(1, 1, "float32", LAYOUT.encode()))], "ProtocolError"),
        ([encode(messages.Put(1, 1, "float32", [[6], "x"])), bytes(24)], "LayoutError"),
        ([encode(messages.Put(1, 1, "float32", {"a": [None]})), bytes(24)], "LayoutError"),
        ([encode(messages.Put(1, 1, "float32", None)), bytes(24)], "LayoutError"),
        ([encode(messages.Get(1, 77))], "WorkerError"),
        ([encode(messages.Define(1, 1)), pickle.dumps(Exploit())], "ProtocolError"),
        ([encode(messages.Define(1, 1)), b""], "ProtocolError"),
        ([encode(messages.Define(1, 1))], "ProtocolError"),
        ([encode(messages.Run(1, 9, [], [], [], 1, False))], "WorkerError"),
        ([encode(messages.Run(1, 9, [5], [5], [], 1, False))], "WorkerError"),
    ],
)
def test_well_formed_nonsense_is_answered_with_a_failure(frames: list[bytes], kind: str) -> None:
    (failure,) = serve([frames])
    assert isinstance(failure, messages.Failure)
    assert (failure.ticket, failure.kind) == (1, kind)
    assert exploited == []


@given(st.one_of(st.binary(max_size=200), st.just(b"\x91" * 10**6)))
def test_random_programs_are_answered_with_a_failure(data: bytes) -> None:
    (failure,) = serve([[encode(messages.Define(3, 1)), data]])
    assert isinstance(failure, messages.Failure)


# Exceptions on the wire.


def raised(error: Exception) -> Exception:
    """The exception with a traceback."""
    try:
        raise error
    except Exception as caught:
        return caught


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("bad"), ValueError),
        (KeyError("bad"), KeyError),
        (FileNotFoundError(2, "bad"), FileNotFoundError),
        (ProtocolError("bad"), ProtocolError),
        (UnicodeDecodeError("utf8", b"x", 0, 1, "bad"), WorkerError),
        (StopIteration("bad"), WorkerError),
        (type("system", (Exception,), {})("bad"), WorkerError),
    ],
)
def test_exceptions_are_rebuilt_by_name_from_a_table(error: Exception, kind: type) -> None:
    failure = decode_reply(encode(failure_from(raised(error), 1, 3, "node7")))
    assert isinstance(failure, messages.Failure)
    again = exception_from(failure)
    assert type(again) is kind
    assert "bad" in str(again)
    assert "[worker 3 on node7]" in str(again)
    assert "Traceback" in again.__notes__[0]
    assert "in raised" in again.__notes__[0]


def test_enormous_exceptions_still_fit_into_a_message() -> None:
    error = raised(ValueError("ä" * 10**6 + "the end"))
    failure = decode_reply(encode(failure_from(error, 1, 0, "h" * 10**5)))
    assert isinstance(failure, messages.Failure)
    assert failure.message.endswith("the end")
