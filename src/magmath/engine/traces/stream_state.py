"""The state of a random number generator: a seed and the number of the next stream.

Random arrays are functions of seed, stream and element index, so the generator has no other state.
In a traced function the stream numbers are scalars of the program, which advance with each run.
"""

from __future__ import annotations

from typing import final
from weakref import WeakKeyDictionary

from magmath.core.dtypes import int64
from magmath.engine.run_numbers import advance, reserve_for_run
from magmath.engine.traces import tracing
from magmath.engine.traces.drawn_streams import Stream
from magmath.engine.traces.stream_ranges import USER_STREAMS
from magmath.errors import TracingError
from magmath.graph import Node
from magmath.ops.leaves import scalar


@final
class StreamState:
    """A seed and the number of the next stream; `first` is the number of the first stream, of
    `stream_ranges`."""

    def __init__(self, seed: int, first: int = USER_STREAMS) -> None:
        self.seed = seed
        self.first = first
        self.next = first
        self._trace = tracing.current()  # the trace in which it was made, and may be restarted

    def restart(self, seed: int) -> None:
        """Set the seed and restart at the first stream.

        Raises TracingError in a traced function, unless the generator was made in it.
        """
        if tracing.current() is not self._trace:
            raise TracingError(
                "random.seed: a compiled function cannot restart the generator of its caller; "
                "seed before the call, or draw from mm.random.Generator(seed) in it"
            )
        self.seed, self.next = seed, self.first

    def resume(self, seed: int, number: int) -> None:
        """Continue with the stream of this number, from `next` of an earlier state.

        Raises TracingError as `restart` does.
        """
        self.restart(seed)
        self.next = number

    def skip(self, count: int) -> int:
        """Reserve the next `count` streams; return the number of the first."""
        return advance(self, "next", count)

    def skip_for_run(self, count: int) -> int:
        """Reserve the next `count` streams for a run, whose failure gives them back; return the
        number of the first."""
        return reserve_for_run(self, "next", count)

    def draw(self) -> Stream:
        """Return the next stream, for the operands of a random operation."""
        trace = tracing.current()
        if trace is not self._trace and trace is not None:
            return trace.draw(self)
        return self.draw_untraced()

    def draw_untraced(self) -> Stream:
        """Return the next stream, with the values of seed and number rather than scalars of a
        trace."""
        number = scalar(self.skip(1), int64)
        _drawn[number] = self
        return Stream(scalar(self.seed, int64), number)


_drawn: WeakKeyDictionary[Node, StreamState] = WeakKeyDictionary()


def generator_of(number: Node) -> StreamState | None:
    """Return the generator of the stream with this number leaf; None for any other leaf."""
    return _drawn.get(number)
