"""What a function reads and assigns while it is traced: variables, and draws of random numbers.

A traced function becomes a program that runs many times. A variable that it reads stands for the
value that the variable has when the program runs, one that it assigns is a target of the program,
and its random numbers are the next ones of their generator in each run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from sys import getrefcount
from typing import Any, Protocol, TypeVar, final

from magmath.core.dtypes import DType, int64
from magmath.errors import MagmathError
from magmath.graph import Node, Shape
from magmath.ops import elementwise as e
from magmath.ops.leaves import constant, parameter, version


class VariableState(Protocol):
    """A variable, as a trace sees it: the leaf that stands for it, and the number of its value
    among those that it has had."""

    leaf: Node
    number: int

    @property
    def current_version(self) -> Node:
        """The value that it has outside of functions that are traced."""


class UpdatedArray(Protocol):
    """An array that is updated in place, as a trace sees it."""

    @property
    def shape(self) -> Shape:
        """The extent of each dimension."""

    def replace_node(self, node: Node) -> None:
        """Refer to another node with the same value."""


class Streams(Protocol):
    """A generator of random numbers, as a trace sees it."""

    seed: int

    def skip(self, count: int) -> int:
        """Take the numbers of the next `count` streams; the first of them."""

    def draw_eagerly(self) -> tuple[Node, Node]:
        """Take the next stream outside of any trace: its seed and its number."""


@final
class Draws:
    """The streams of random numbers that a traced function draws from one generator.

    Each draw takes the next stream. In the program the number of the first one is a parameter; in
    step i of a loop it is larger by i times the draws of a step.
    """

    def __init__(self, generator: Streams, step: Node | None) -> None:
        self.generator = generator
        self.seed = parameter(None, int64)
        self.first = parameter(None, int64)
        self.count = 0
        self._each = parameter(None, int64)
        self._start = self.first
        if step is not None:
            self._start = e.add(self.first, e.multiply(step, self._each))

    def next(self) -> tuple[Node, Node]:
        """The seed and the number of the next stream."""
        number = self._start
        if self.count:
            number = e.add(number, constant(self.count, int64))
        self.count += 1
        return self.seed, number

    def numbers(self, steps: int = 1, origin: int = 0) -> dict[Node, int]:
        """The parameters of the next run of so many steps, of which the first has a number."""
        first = self.generator.skip(self.count * steps) - origin * self.count
        return {self.seed: self.generator.seed, self.first: first, self._each: self.count}


@final
class Trace:
    """The variables and generators that a traced function uses.

    step   the number of the step, 0-d, in a function that is the body of a loop
    """

    def __init__(self, step: Node | None = None) -> None:
        self.read: dict[Node, Any] = {}
        """By their leaves, in the order of first use; those that are assigned too."""
        self.assigned: dict[Node, Node] = {}
        """Of assigned variables, by their leaves, the last value."""
        self.numbers: dict[Node, Callable[[], float]] = {}
        """Leaves for numbers that are asked for at each run."""
        self.states: list[object] = []
        """Objects of Python whose state the function depends on, such as modules."""
        self._step = step
        self._draws: dict[int, Draws] = {}
        self._updates = Updates()

    def value_of(self, variable: VariableState) -> Node:
        """What reading a variable means at this line."""
        leaf = variable.leaf
        self.read[leaf] = variable
        return self.assigned.get(leaf, leaf)

    def assign(self, variable: VariableState, value: Node) -> None:
        """A variable's next value."""
        leaf = variable.leaf
        self.read[leaf] = variable
        self.assigned[leaf] = version(leaf, value, variable.number)

    def number(self, source: Callable[[], float], dtype: DType) -> Node:
        """A leaf for a number that is asked for at each run."""
        leaf = parameter(None, dtype)
        self.numbers[leaf] = source
        return leaf

    @property
    def is_loop(self) -> bool:
        """True if the function is the body of a loop, whose steps run without asking."""
        return self._step is not None

    def draw(self, generator: Streams) -> tuple[Node, Node]:
        """The seed and the number of the next stream of a generator."""
        draws = self._draws.get(id(generator))
        if draws is None:
            draws = self._draws[id(generator)] = Draws(generator, self._step)
        return draws.next()

    @property
    def is_same_in_each_run(self) -> bool:
        """True if the function takes no other numbers in each run than its arguments."""
        return not (self._draws or self.numbers)

    def numbers_of_run(self, steps: int = 1, origin: int = 0) -> Mapping[Node, float]:
        """The numbers of the next run, of so many steps of which the first has a number."""
        found: dict[Node, float] = {leaf: source() for leaf, source in self.numbers.items()}
        for draws in self._draws.values():
            found |= draws.numbers(steps, origin)
        return found

    def note_state(self, owner: object) -> None:
        """The function depends on the state of an object of Python; it is traced again after
        `captured.note_update(owner)`."""
        if all(known is not owner for known in self.states):
            self.states.append(owner)

    def note_update(self, array: UpdatedArray, former: Node) -> None:
        """An array is updated in place; `former` is what it was."""
        self._updates.note(array, former)

    def check_updates(self, function: str) -> None:
        """Raise MagmathError where the function has updated an array that exists outside of it.

        The arguments and results of the function must not be referred to any more. What was updated
        has the former value again.
        """
        self._updates.check(function)


@final
class Scope:
    """What a function changes while its graph becomes a part of the surrounding expression.

    The function of `vmap`, `remat`, a branch of `cond`. It reads variables and draws random numbers
    as the surrounding code does. Assigned variables are recorded in `assigned`, by their leaves,
    and take effect when the caller says so. `drawn` are the numbers of the streams that it draws
    from generators that exist outside of it.
    """

    def __init__(self) -> None:
        self.outer = current()
        self.read: dict[Node, Any] = {}
        self.assigned: dict[Node, Node] = {}
        self.drawn: list[Node] = []
        self._updates = Updates()

    def value_of(self, variable: VariableState) -> Node:
        """What reading a variable means at this line."""
        value = self.assigned.get(variable.leaf)
        if value is not None:
            return value
        return variable.current_version if self.outer is None else self.outer.value_of(variable)

    def assign(self, variable: VariableState, value: Node) -> None:
        """A variable's next value."""
        leaf = variable.leaf
        self.read[leaf] = variable
        self.assigned[leaf] = version(leaf, value, variable.number)

    def number(self, source: Callable[[], float], dtype: DType) -> Node:
        """A leaf for a number that is asked for at each run."""
        if self.outer is None:
            return parameter(source(), dtype)
        return self.outer.number(source, dtype)

    @property
    def is_loop(self) -> bool:
        """True if the surrounding code is the body of a loop, whose steps run without asking."""
        return self.outer is not None and self.outer.is_loop

    def draw(self, generator: Streams) -> tuple[Node, Node]:
        """The seed and the number of the next stream of a generator."""
        if self.outer is None:
            seed, number = generator.draw_eagerly()
        else:
            seed, number = self.outer.draw(generator)
        self.drawn.append(number)
        return seed, number

    def note_state(self, owner: object) -> None:
        """The function depends on the state of an object of Python."""
        if self.outer is not None:
            self.outer.note_state(owner)

    def note_update(self, array: UpdatedArray, former: Node) -> None:
        """An array is updated in place; `former` is what it was."""
        self._updates.note(array, former)

    def check_updates(self, function: str) -> None:
        """Raise MagmathError where the function has updated an array that exists outside of it."""
        self._updates.check(function)


@final
class Updates:
    """The arrays that a traced function updates in place, and what they were."""

    def __init__(self) -> None:
        self._updated: list[tuple[UpdatedArray, Node]] = []

    def note(self, array: UpdatedArray, former: Node) -> None:
        """An array is updated in place."""
        self._updated.append((array, former))

    def check(self, function: str) -> None:
        """Raise MagmathError where one of the arrays exists outside of the function; all have the
        former values again."""
        outside = None
        updated, self._updated = self._updated, []
        while updated:
            array, former = updated.pop()
            count = sum(other is array for other, _ in updated)
            if getrefcount(array) > _ALONE + count:
                array.replace_node(former)
                outside = array
        if outside is not None:
            raise MagmathError(
                f"{function}: the function updates an array of shape {outside.shape} that was made "
                f"outside of it, which happens only while it is traced; return the new value, or "
                f"make the array a variable: mm.variable(name, value)"
            )


def _alone() -> int:
    value, _ = object(), None
    return getrefcount(value)


_ALONE = _alone()  # references to what only one local name refers to

Traced = TypeVar("Traced", bound="Trace | Scope")

_current: Trace | Scope | None = None


def current() -> Trace | Scope | None:
    """The trace that is being made, or the scope within it, if there is one."""
    return _current


@contextmanager
def tracing(trace: Traced) -> Iterator[Traced]:
    """While a function is traced: its arguments have no values, so nothing is computed."""
    global _current
    outer, _current = _current, trace
    try:
        yield trace
    finally:
        _current = outer


@contextmanager
def suspended() -> Iterator[None]:
    """Within a trace: compute as outside of it."""
    global _current
    outer, _current = _current, None
    try:
        yield
    finally:
        _current = outer
