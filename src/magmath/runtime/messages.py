"""The messages of the control plane: typed structures, and their strict encoding.

The controller sends a `Command`, the workers send a `Reply`; tiles and programs follow the message
as a raw frame of bytes. `decode_command` and `decode_reply` accept untrusted bytes: anything but
one of these messages is a ProtocolError, and received data is never executed or unpickled.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeVar, final

import msgspec
from msgspec import Meta, Struct

from magmath.comm.network_speed import NetworkSpeed
from magmath.core.type_aliases import Number as Number
from magmath.errors import ProtocolError
from magmath.files.array_specs import MAX_TEXT, Natural, Text
from magmath.files.formats import StorageSpec

MAX_MESSAGE: Final = 64 << 20
"""Maximum bytes of a message. The size of a data frame is checked against its layout."""

_Message = TypeVar("_Message")

Steps = Annotated[int, Meta(ge=1)]


@final
class Put(Struct, frozen=True, tag="put", forbid_unknown_fields=True):
    """Store an array; the frame holds the bytes of the worker's own part."""

    ticket: Natural
    array_id: Natural
    dtype: Text
    layout: Any
    """`Layout.encode()`."""
    line: Text = ""
    """The user's line that made the array, where known."""


@final
class Get(Struct, frozen=True, tag="get", forbid_unknown_fields=True):
    """Send back this worker's part of an array, as a `TileMessage`."""

    ticket: Natural
    array_id: Natural


@final
class Read(Struct, frozen=True, tag="read", forbid_unknown_fields=True):
    """Load an array from a file: each worker reads its own part."""

    ticket: Natural
    array_id: Natural
    dtype: Text
    layout: Any
    """`Layout.encode()`."""
    path: Text
    storage: StorageSpec
    report: bool
    """True if workers send `Progress`, with bytes as steps."""


@final
class Write(Struct, frozen=True, tag="write", forbid_unknown_fields=True):
    """Write this worker's part of an array into an existing file."""

    ticket: Natural
    array_id: Natural
    path: Text
    storage: StorageSpec
    report: bool


@final
class Free(Struct, frozen=True, tag="free", forbid_unknown_fields=True):
    """Drop arrays; donated arrays are ignored. It has no reply."""

    array_ids: list[Natural]


@final
class Define(Struct, frozen=True, tag="define", forbid_unknown_fields=True):
    """Store a program under its id; the frame holds the program."""

    ticket: Natural
    program_id: Natural


@final
class Forget(Struct, frozen=True, tag="forget", forbid_unknown_fields=True):
    """Drop a program. It has no reply."""

    program_id: Natural


@final
class Run(Struct, frozen=True, tag="run", forbid_unknown_fields=True):
    """Run a program `steps` times on the arrays with the ids `inputs`; its outputs get the ids
    `outputs`."""

    ticket: Natural
    program_id: Natural
    inputs: list[Natural]
    outputs: list[Natural]
    scalars: list[bool | int | float | tuple[float, float]]
    """Complex numbers are encoded as (real, imaginary); `decode_scalars` gives them all as
    Python's."""
    steps: Steps
    report: bool
    """True if worker 0 sends `Progress`, in a run of several steps."""
    timed: bool = False
    """True if each instruction is timed; every worker then replies with `Values`."""
    concurrent: bool = False
    """True if a program that only moves data runs concurrently with later commands: the workers
    reply when it has started, and wait for it when its outputs are used."""
    released: list[Natural] = []
    """Arrays that are dropped before, as by `Free`."""


@final
class Interrupt(Struct, frozen=True, tag="interrupt", forbid_unknown_fields=True):
    """Stop every run of many steps, read and write up to this ticket after its next chunk; with
    `abandon`, also stop runs that overwrite nothing, between two instructions. It has no reply."""

    ticket: Natural
    abandon: bool = False


@final
class Resume(Struct, frozen=True, tag="resume", forbid_unknown_fields=True):
    """All workers failed at the same place and are in step: execute runs again. It has no reply."""


@final
class Stats(Struct, frozen=True, tag="stats", forbid_unknown_fields=True):
    """Send back the worker's counters, as `Counters`."""

    ticket: Natural


@final
class Stop(Struct, frozen=True, tag="stop", forbid_unknown_fields=True):
    """End the worker. It has no reply."""


@final
class Hello(Struct, frozen=True, tag="hello", forbid_unknown_fields=True):
    """A worker is ready.

    `host`: the name of its host, and `host_number` the host's number in the pool. `memory_bound`:
    bytes that its arrays may use; 0 is no limit. `network`: where measured.
    """

    rank: Natural
    host: Text
    pid: Natural
    device: Text
    threads: Natural
    shares_memory: bool
    memory_bound: Natural = 0
    host_number: Natural = 0
    network: NetworkSpeed | None = None


@final
class Done(Struct, frozen=True, tag="done", forbid_unknown_fields=True):
    """A command has been executed."""

    ticket: Natural


@final
class Values(Struct, frozen=True, tag="values", forbid_unknown_fields=True):
    """Worker 0's reply to a run: emitted scalars and completed steps. For a timed run, also the
    total seconds of each instruction, and the bytes of the arrays of the run."""

    ticket: Natural
    values: list[float]
    steps: Natural
    seconds: list[float] = []
    memory: Natural = 0


@final
class TileMessage(Struct, frozen=True, tag="tile", forbid_unknown_fields=True):
    """The reply to `Get`; the frame holds the bytes of the worker's part."""

    ticket: Natural


@final
class Progress(Struct, frozen=True, tag="progress", forbid_unknown_fields=True):
    """Progress of a run: completed steps, and the scalars emitted since the last report."""

    ticket: Natural
    steps: Natural
    values: list[float]


@final
class Counters(Struct, frozen=True, tag="counters", forbid_unknown_fields=True):
    """The reply to `Stats`."""

    ticket: Natural
    values: dict[Text, int | float | str]


@final
class Failure(Struct, frozen=True, tag="failure", forbid_unknown_fields=True):
    """A command failed on this worker."""

    ticket: Natural
    rank: Natural
    host: Text
    kind: Text
    """The name of the exception's class."""
    message: Text
    traceback: Text
    line: Text
    """The user's line that built the failing operation, where known."""
    site: Text
    """The place in the worker's code where it was raised: equal on all workers if all failed
    alike."""
    secondary: bool = False
    """True for a consequence of an earlier failure, or of a failure of another worker."""
    is_in_step: bool = False
    """True if the worker completed the command nevertheless, so no other worker waits for it."""
    origin: Natural = 0
    """The ticket of the command that failed first."""


Command = (
    Put | Get | Read | Write | Free | Define | Forget | Run | Interrupt | Resume | Stats | Stop
)  # fmt: skip
FileCommand = Read | Write
"""Commands that each worker executes independently: if one fails, the workers stay in step."""
LongCommand = Run | FileCommand
"""Commands during which a worker polls for interrupts and reports progress."""
CommandWithReply = Put | Get | FileCommand | Define | Run | Stats
Reply = Hello | Done | Values | TileMessage | Progress | Counters | Failure
Message = Command | Reply

EXPECTED_REPLIES: Final[dict[type, tuple[type, ...]]] = {
    Put: (Done,),
    Get: (TileMessage,),
    Read: (Done,),
    Write: (Done,),
    Define: (Done,),
    Run: (Done, Values),
    Stats: (Counters,),
}
"""The replies to each command, other than Progress and Failure."""

_encoder = msgspec.msgpack.Encoder()
_commands: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)
_replies: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)


def encode_scalars(scalars: list[Number]) -> list[bool | int | float | tuple[float, float]]:
    """Encode scalars: complex numbers as pairs."""
    return [(n.real, n.imag) if isinstance(n, complex) else n for n in scalars]


def decode_scalars(encoded: list[bool | int | float | tuple[float, float]]) -> list[Number]:
    """Decode scalars to Python numbers."""
    return [complex(*n) if isinstance(n, tuple) else n for n in encoded]


def truncate_text(value: object) -> str:
    """Return `value` as text, shortened to the maximal length of a field."""
    whole = str(value)
    if len(whole) <= MAX_TEXT:
        return whole
    return f"{whole[: MAX_TEXT // 2 - 2]} … {whole[-MAX_TEXT // 2 + 2 :]}"


def encode(message: Message) -> bytes:
    """Encode a message as msgpack. Raises OverflowError for an integer of more than 64 bits."""
    return _encoder.encode(message)


def decode_command(data: bytes | memoryview) -> Command:
    """Decode a command. Raises ProtocolError if `data` is not a command."""
    return _decode(_commands, data)


def decode_reply(data: bytes | memoryview) -> Reply:
    """Decode a reply. Raises ProtocolError if `data` is not a reply."""
    return _decode(_replies, data)


def _decode(decoder: msgspec.msgpack.Decoder[_Message], data: bytes | memoryview) -> _Message:
    if len(data) > MAX_MESSAGE:
        raise ProtocolError(f"a message has at most {MAX_MESSAGE} bytes, this one has {len(data)}")
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"not a message of the control plane: {error}") from None
