"""The streams of random numbers that a traced function draws, as leaves of its graph."""

from __future__ import annotations

from typing import NamedTuple, Protocol, final

from magmath.core.dtypes import int64
from magmath.graph import Node
from magmath.ops import elementwise as e
from magmath.ops.leaves import constant, scalar


@final
class Stream(NamedTuple):
    """A stream of random numbers: the seed of its generator, and its number, both 0-d."""

    seed: Node
    number: Node


class Streams(Protocol):
    """The methods of a random number generator that a trace uses."""

    seed: int
    next: int

    def skip_for_run(self, count: int) -> int:
        """Reserve the next `count` streams for a run; return the number of the first."""

    def draw_untraced(self) -> Stream:
        """Return the next stream, which is reserved outside of any trace."""


class StreamPosition:
    """The number of the next stream of random numbers while a function is traced.

    seed    the seed, 0-d
    start   the number of the next stream, 0-d
    """

    def __init__(self, seed: Node, start: Node) -> None:
        self.seed = seed
        self.count = 0
        """The number of draws since `start`."""
        self.has_moved = False
        self._start = start

    @property
    def number(self) -> Node:
        """The number of the next stream."""
        return e.add(self._start, constant(self.count, int64)) if self.count else self._start

    def next(self) -> Stream:
        """Return the next stream, and advance."""
        stream = Stream(self.seed, self.number)
        self.count += 1
        return stream

    def move(self, number: Node) -> None:
        """Continue with the stream of this number, which is computed when the program runs."""
        self._start, self.count, self.has_moved = number, 0, True


@final
class Draws(StreamPosition):
    """The streams of random numbers that a traced function draws from one generator.

    Each draw uses the next stream. The number of the first stream is a scalar of the program; in
    step i of a loop it is larger by i times the draws of a step.
    """

    def __init__(self, generator: Streams, step: Node | None) -> None:
        self.generator = generator
        self.first = start = scalar(None, int64)
        self._each = scalar(None, int64)
        if step is not None:
            start = e.add(start, e.multiply(step, self._each))
        super().__init__(scalar(None, int64), start)

    def numbers(self, steps: int = 1, origin: int = 0) -> dict[Node, int]:
        """Return the scalars of the next run, of `steps` steps from step number `origin`.

        Streams after those that a loop draws are not reserved: the run of one step computes their
        number.
        """
        if self.has_moved:
            return {self.seed: self.generator.seed, self.first: self.generator.next, self._each: 0}
        first = self.generator.skip_for_run(self.count * steps) - origin * self.count
        return {self.seed: self.generator.seed, self.first: first, self._each: self.count}
