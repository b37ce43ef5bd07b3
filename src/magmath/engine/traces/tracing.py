"""The trace of a function: the variables that it reads and assigns, and its random numbers.

A traced function becomes a program that runs many times. A variable that it reads stands for the
variable's value when the program runs; a variable that it assigns is a target of the program. Each
run draws the next random numbers of the generators.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, TypeVar, final

from magmath.core.dtypes import DType
from magmath.core.scoped_value import ScopedValue
from magmath.engine.array_handle import ArrayHandle
from magmath.engine.run_numbers import (
    collecting_reservations,
    commit_reservations,
    return_reservations,
)
from magmath.engine.traces.drawn_streams import Draws, Stream, StreamPosition, Streams
from magmath.engine.traces.local_variables import LocalVariables, MadeVariable
from magmath.engine.traces.updated_arrays import Updates
from magmath.graph import Node
from magmath.ops.leaves import scalar, version


class VariableState(Protocol):
    """A variable in a trace: its leaf, and the version number of its value."""

    leaf: Node
    number: int

    @property
    def current_version(self) -> Node:
        """The value outside of traces."""


class ObservedState(Protocol):
    """The parts of a module when a function was traced."""

    def is_unchanged(self) -> bool:
        """Return True if it consists of the same parts."""

    def foreign_arrays(self) -> Sequence[Any]:
        """Return the arrays of other libraries that were read."""

    def changed_name(self) -> str | None:
        """Return the name of a part that a user has bound again, if there is such a one."""


NumberSource = Callable[[int], float]
"""A function that returns a number for the next run, which has the given number of steps."""


class TraceScope(ABC):
    """What a function reads, assigns and draws while it is traced.

    A `Trace` records it for a program. A `Scope` passes to the surrounding code what does not
    belong to the function itself. Both record the variables that are read and assigned, and the
    arrays that are updated.

    can_loop   the function may contain a `while_loop`
    """

    can_loop: bool

    def __init__(self) -> None:
        self.read: dict[Node, Any] = {}
        """Read or assigned variables by their leaves, in the order of first use."""
        self.assigned: dict[Node, Node] = {}
        """The last values of assigned variables, by the variables' leaves."""
        self._updates = Updates()

    # variables and arrays

    @abstractmethod
    def value_of(self, variable: VariableState) -> Node:
        """Return the value that reading a variable gives at this line."""

    def assign(self, variable: VariableState, value: Node) -> None:
        """Record the next value of a variable."""
        leaf = variable.leaf
        self.read[leaf] = variable
        self.assigned[leaf] = version(leaf, value, variable.number)

    def add_update(self, array: ArrayHandle, former: Node) -> None:
        """Record the in-place update of an array; `former` is its former node."""
        self._updates.add(array, former)

    @abstractmethod
    def add_variable(self, variable: MadeVariable) -> None:
        """Record a variable that the function makes."""

    def check_effects(self, function: str) -> None:
        """Raise TracingError if the function has updated an array that exists outside of it, or if
        a program would assign a variable that exists in the function alone.

        The caller must hold no references to the arguments and results of the function. Restores
        the former values of the updated arrays.
        """
        self._updates.check(function)

    def undo_updates(self) -> None:
        """Restore the former values of the updated arrays, after the function has raised an
        error."""
        self._updates.undo()

    @abstractmethod
    def mark_outdated(self) -> None:
        """Record that variables were replaced, which the function may have used before."""

    # numbers of each run

    @abstractmethod
    def add_number(self, source: NumberSource, dtype: DType) -> Node:
        """Return a leaf for a number that `source` returns for each run."""

    @property
    @abstractmethod
    def is_of_program(self) -> bool:
        """True if the code becomes a program, which runs many times; False in a transformation that
        traces its function at each call."""

    @property
    @abstractmethod
    def is_loop(self) -> bool:
        """True if the code is the body of a loop, which runs without the controller."""

    @property
    @abstractmethod
    def is_conditional(self) -> bool:
        """True if values decide how often a run executes the function: in branches and loops."""

    # random streams

    @abstractmethod
    def draw(self, generator: Streams) -> Stream:
        """Return the next stream of a generator."""

    @abstractmethod
    def add_drawn(self, number: Node) -> None:
        """Record the number of a stream that the function draws from a generator whose state is a
        variable."""

    @abstractmethod
    def draws_of(self, generator: Streams) -> StreamPosition:
        """Return the next stream of a generator, for a loop that moves it."""

    @abstractmethod
    def add_moved(self, position: StreamPosition) -> None:
        """Record that a loop of the function has moved a stream of the surrounding code."""

    # Python objects, and the kind of function

    @abstractmethod
    def depend_on_state(self, owner: object) -> None:
        """Record that the function depends on the state of a Python object.

        The function is traced again after `captured_arrays.invalidate_captures(owner)`.
        """

    @abstractmethod
    def depend_on_observed_state(self, state: ObservedState) -> None:
        """Record that the function depends on what a module consists of."""

    @abstractmethod
    def mark_training(self) -> None:
        """Record that the function computes gradients, or takes a step of an optimizer."""


@final
class Trace(TraceScope):
    """The variables and generators that a traced function uses, the outermost of `TraceScope`.

    step       the step number, 0-d, if the function is the body of a loop
    can_loop   the function can be divided at a `while_loop`, which the controller runs
    """

    def __init__(self, step: Node | None = None, *, can_loop: bool = False) -> None:
        super().__init__()
        self.can_loop = can_loop
        self.numbers: dict[Node, NumberSource] = {}
        """Leaves for numbers, and the functions that return the numbers of each run."""
        self.state_owners: list[object] = []
        """Python objects on whose state the function depends, such as modules."""
        self.observed_states: list[ObservedState] = []
        """The parts of these modules that lists and dictionaries can change."""
        self._state_identities: set[int] = set()  # those of `state_owners`
        self.is_outdated = False
        """True if another trace uses other variables, since some were replaced during this one."""
        self._uses_gradients = False
        self._local_variables = LocalVariables()
        self._step = step
        self._draws: dict[int, Draws] = {}

    def value_of(self, variable: VariableState) -> Node:
        leaf = variable.leaf
        self.read[leaf] = variable
        return self.assigned.get(leaf, leaf)

    def add_variable(self, variable: MadeVariable) -> None:
        self._local_variables.add(variable)

    def check_effects(self, function: str) -> None:
        super().check_effects(function)
        self._local_variables.check(function, self.assigned)

    def mark_outdated(self) -> None:
        self.is_outdated = True

    def add_number(self, source: NumberSource, dtype: DType) -> Node:
        leaf = scalar(None, dtype)
        self.numbers[leaf] = source
        return leaf

    @property
    def is_of_program(self) -> bool:
        return True

    @property
    def is_loop(self) -> bool:
        return self._step is not None

    @property
    def is_conditional(self) -> bool:
        return False  # each run executes the function once, or in each of its steps

    def draw(self, generator: Streams) -> Stream:
        return self.draws_of(generator).next()

    def add_drawn(self, number: Node) -> None:
        """Do nothing: only parts, which may be batched or recomputed, need the list of their
        streams."""

    def draws_of(self, generator: Streams) -> Draws:
        draws = self._draws.get(id(generator))
        if draws is None:
            draws = self._draws[id(generator)] = Draws(generator, self._step)
        return draws

    def add_moved(self, position: StreamPosition) -> None:
        """Do nothing: a trace has its own streams, which no surrounding code moves."""

    @property
    def computed_draws(self) -> list[Draws]:
        """The draws from generators whose next stream is computed by the run."""
        return [draws for draws in self._draws.values() if draws.has_moved]

    @property
    def is_same_in_each_run(self) -> bool:
        """Return True if each run gets no numbers other than the function's arguments."""
        return not (self._draws or self.numbers)

    def numbers_of_run(self, steps: int = 1, origin: int = 0) -> Mapping[Node, float]:
        """Return the numbers of the next run, of `steps` steps from step number `origin`.

        If a source raises an error, none are taken.
        """
        commit_reservations()
        numbers: dict[Node, float] = {}
        try:
            with collecting_reservations():  # a rate of the user may run other programs
                numbers |= {leaf: source(steps) for leaf, source in self.numbers.items()}
                for draws in self._draws.values():
                    numbers |= draws.numbers(steps, origin)
        except Exception:
            return_reservations()
            raise
        return numbers

    def depend_on_state(self, owner: object) -> None:
        if id(owner) not in self._state_identities:
            self._state_identities.add(id(owner))
            self.state_owners.append(owner)

    def mark_training(self) -> None:
        self._uses_gradients = True

    @property
    def is_training_step(self) -> bool:
        """True if the function assigns variables, and has used gradients."""
        return self._uses_gradients and bool(self.assigned)

    def depend_on_observed_state(self, state: ObservedState) -> None:
        if state not in self.observed_states:
            self.observed_states.append(state)


class Scope(TraceScope):
    """The effects of a function whose graph becomes a part of the surrounding expression.

    Used for the functions of transformations such as `vmap` and `remat`, for pullbacks, branches of
    `cond`, and steps of loops in a trace. Such a function reads variables and draws random numbers
    as the surrounding code does; the caller applies the assignments. `drawn` lists the numbers of
    the streams that the function draws from generators that exist outside of it. `can_loop`: the
    function may contain a `while_loop`, if the surrounding code may. `is_branch`: the function is a
    branch of `cond`.
    """

    def __init__(self, *, can_loop: bool = False, is_branch: bool = False) -> None:
        super().__init__()
        self.outer = current()
        self._is_branch = is_branch
        self.can_loop = can_loop and self.outer is not None and self.outer.can_loop
        self.drawn: list[Node] = []
        self.moved: dict[StreamPosition, None] = {}
        """The streams of the surrounding code that loops of the function have moved."""

    def value_of(self, variable: VariableState) -> Node:
        value = self.assigned.get(variable.leaf)
        if value is not None:
            return value
        return variable.current_version if self.outer is None else self.outer.value_of(variable)

    def add_variable(self, variable: MadeVariable) -> None:
        if self.outer is not None:
            self.outer.add_variable(variable)

    def mark_outdated(self) -> None:
        if self.outer is not None:
            self.outer.mark_outdated()

    def add_number(self, source: NumberSource, dtype: DType) -> Node:
        if self.outer is None:
            try:
                return scalar(source(1), dtype)
            except Exception:
                return_reservations()
                raise
        return self.outer.add_number(source, dtype)

    @property
    def is_of_program(self) -> bool:
        return self.outer is not None and self.outer.is_of_program

    @property
    def is_loop(self) -> bool:
        return self.outer is not None and self.outer.is_loop

    @property
    def is_conditional(self) -> bool:
        return self._is_branch or (self.outer is not None and self.outer.is_conditional)

    def draw(self, generator: Streams) -> Stream:
        outer = self.outer
        stream = generator.draw_untraced() if outer is None else outer.draw(generator)
        self.drawn.append(stream.number)
        return stream

    def add_drawn(self, number: Node) -> None:
        self.drawn.append(number)
        if self.outer is not None:
            self.outer.add_drawn(number)

    def draws_of(self, generator: Streams) -> StreamPosition:
        assert self.outer is not None
        return self.outer.draws_of(generator)

    def add_moved(self, position: StreamPosition) -> None:
        self.moved[position] = None
        if self.outer is not None:
            self.outer.add_moved(position)

    def depend_on_state(self, owner: object) -> None:
        if self.outer is not None:
            self.outer.depend_on_state(owner)

    def mark_training(self) -> None:
        if self.outer is not None:
            self.outer.mark_training()

    def depend_on_observed_state(self, state: ObservedState) -> None:
        if self.outer is not None:
            self.outer.depend_on_observed_state(state)


TracedType = TypeVar("TracedType", bound=TraceScope)


TRACE = ScopedValue[TraceScope | None](None)
"""The trace of the present thread, for `current` and for what runs at each operation."""
_OCCASION = ScopedValue[str | None](None)


def current() -> TraceScope | None:
    """Return the current trace or the innermost scope in it; None outside of traces."""
    return TRACE.value


@contextmanager
def tracing(trace: TracedType) -> Iterator[TracedType]:
    """Make `trace` the current one while a function is traced; nothing is computed then.

    If the function raises an error, the arrays that it has updated have their former values again.
    """
    with TRACE.replaced(trace):
        try:
            yield trace
        except BaseException:
            trace.undo_updates()
            raise


def suspended() -> AbstractContextManager[object]:
    """Leave the current trace within this block, so that arrays are computed."""
    return TRACE.replaced(None)


def calling(occasion: str) -> AbstractContextManager[object]:
    """Name within this block the occasion on which magmath calls a function of the user, such as
    "fit compiles the loss 'f'", for errors: the user has compiled nothing."""
    return _OCCASION.replaced(occasion)


def occasion() -> str | None:
    """Return the occasion of the innermost block of `calling`; None outside of them."""
    return _OCCASION.value
