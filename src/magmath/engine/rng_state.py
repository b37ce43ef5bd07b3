"""The state of a generator of random numbers: a seed, and how many streams were drawn from.

Random arrays are functions of seed, stream and element index, so this is all the state there is. In
a function that is traced the streams are parameters of the program, which each run advances.
"""

from __future__ import annotations

from typing import final
from weakref import WeakKeyDictionary

from magmath.core.dtypes import int64
from magmath.engine import tracing
from magmath.errors import TracingError
from magmath.graph import Node
from magmath.ops.leaves import parameter

INITIAL_STREAMS = 1 << 40
"""The first stream of initial values of parameters: to make these takes no number of the sequence
that users and layers draw from, so it does not matter when a layer is built."""


@final
class RngState:
    """A seed, and the number of the next stream; `first` is the number of the first one."""

    def __init__(self, seed: int, first: int = 0) -> None:
        self.seed = seed
        self.first = first
        self.next = first
        self._trace = tracing.current()  # in which it was made, and where it begins anew

    def restart(self, seed: int) -> None:
        """Begin again, with another seed. Raises TracingError in a function that is traced."""
        if tracing.current() is not self._trace:
            raise TracingError(
                "random.seed: a compiled function cannot start the numbers of its caller over; "
                "seed before the call, or draw from mm.random.Generator(seed) in it"
            )
        self.seed, self.next = seed, self.first

    def skip(self, count: int) -> int:
        """Take the numbers of the next `count` streams; the first of them."""
        number = self.next
        self.next += count
        return number

    def draw(self) -> tuple[Node, Node]:
        """The seed and the number of the next stream, as operands of a random operation."""
        trace = tracing.current()
        if trace is not self._trace and trace is not None:
            return trace.draw(self)
        return self.draw_eagerly()

    def draw_eagerly(self) -> tuple[Node, Node]:
        """The same, with the numbers themselves."""
        number = parameter(self.skip(1), int64)
        _drawn[number] = self
        return parameter(self.seed, int64), number


_drawn: WeakKeyDictionary[Node, RngState] = WeakKeyDictionary()


def generator_of(number: Node) -> RngState | None:
    """The generator of a stream whose number is this leaf; None for any other leaf."""
    return _drawn.get(number)
