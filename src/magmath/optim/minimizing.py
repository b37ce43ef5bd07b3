"""Minimizing an expression: update programs, cached by the structure of the expression.

`minimize` uses an expression as a function of its variables. In an ordinary training loop each step
builds the loss again, and it differs from the last one only in the arrays that it reads. The
program is therefore cached by the structure of the expression, the variables and their states, and
the layouts of all; these arrays are its operands.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, final
from weakref import WeakSet, ref

from magmath.api.creation import variable
from magmath.arrays.array import Array
from magmath.arrays.variables.variable import Variable, overwrite, restored_on_failure
from magmath.autodiff import gradients, is_independent
from magmath.core.bounded_memo import RecentlyUsed
from magmath.core.dtypes import DType, compute_dtype, int64, real_dtype
from magmath.core.promotion import promote
from magmath.engine import session
from magmath.engine.engine import Engine
from magmath.engine.evaluation.result_provenance import provenance_of_pending
from magmath.engine.programs.program_build import CompiledProgram
from magmath.engine.remote_array import RemoteArray, remote_array_of
from magmath.engine.run_numbers import rollback_on_failure
from magmath.errors import GradientError, NonFiniteLoss
from magmath.graph import Graph, Node, OperandReference, Provenance, set_provenance, set_value
from magmath.graph.provenance.operand_references import VersionReference
from magmath.layout import Layout
from magmath.ops.leaves import input_leaf, scalar
from magmath.optim.function_of_variables import FunctionOfVariables
from magmath.optim.rates import LearningRate
from magmath.optim.states import ParameterNodes, States, VariableStates
from magmath.optim.step_count import UnfinishedRun

if TYPE_CHECKING:
    from magmath.runtime.run_handle import RunHandle

KEPT_PROGRAMS = 64
"""Maximum number of programs, one per expression structure, that an optimizer keeps."""


class MinimizingOptimizer(Protocol):
    """The methods of an optimizer that its programs use."""

    @property
    def variable_states(self) -> States:
        """The states of the updated variables."""

    @property
    def learning_rates(self) -> Sequence[LearningRate]:
        """The learning rate, and those of groups that have their own."""

    def advance(self, steps: int, unfinished: UnfinishedRun | None = None) -> None:
        """Count steps that used `next_values`, and those of a run that goes on after Ctrl-C."""

    def next_values(
        self, parameters: Sequence[ParameterNodes], gradients: Sequence[Node], rates: Sequence[Node]
    ) -> list[tuple[Node, Node]]:
        """Return pairs of each node of parameters and states and the node of its next value."""


@final
class Minimizer:
    """Minimizes expressions for the optimizer that owns it, and caches the programs.

    Keys of the caches have the leaves of variables, which they keep alive, and their layouts:
    conversion gives a variable another leaf, and a move another layout.
    """

    def __init__(self, optimizer: MinimizingOptimizer) -> None:
        self._owner = ref(optimizer)
        self._programs: RecentlyUsed[Hashable, _Program] = RecentlyUsed(KEPT_PROGRAMS)
        self._used: RecentlyUsed[Hashable, list[int]] = RecentlyUsed(KEPT_PROGRAMS)
        """The positions of the variables on which expressions of a structure depend."""
        self._minimized: WeakSet[Node] = WeakSet()
        self._function: FunctionOfVariables | None = None
        self._recent: _RecentProgram | None = None

    @property
    def _optimizer(self) -> MinimizingOptimizer:
        optimizer = self._owner()
        assert optimizer is not None, "the optimizer owns its minimizer"
        return optimizer

    def run(
        self,
        expression: Array,
        variables: Sequence[Variable],
        rates: Sequence[Sequence[float]],
        steps: int,
    ) -> list[float]:
        """Take `steps` steps with each of the rates; return the expression's values before them.

        Each entry of `rates` has a rate for each group with its own rate. The optimizer counts the
        steps: if Ctrl-C ends them, those that were completed.
        """
        function = self._function
        if function is None or not function.is_of(expression, variables):
            function = self._function = FunctionOfVariables(expression, variables)
        program = self._program(function, variables)
        minimized = expression.node in self._minimized
        drawn = bool(function.draws) and not minimized
        released = _Released(expression) if function.reads_present_values else None
        values: list[float] = []
        first: list[float] = []
        before = program.count_unfinished()
        try:
            with program.undone_on_failure(function, first):
                for rate, count, uses_drawn in _step_runs(rates, steps, drawn):
                    values += program.run(function, rate, count, first, drawn=uses_drawn)
        finally:
            self._optimizer.advance(program.steps - before, program.unfinished)
            if released is not None:
                released.end(first)
            if first or minimized:
                self._minimized.add(expression.node)
        return values

    def _program(self, function: FunctionOfVariables, variables: Sequence[Variable]) -> _Program:
        """Return the program of a function for the states of its variables, a cached one if there
        is one."""
        engine, recent = session.engine(), self._recent
        if recent is None or recent.function is not function:
            used = self._positions_of_used(function, variables)
        else:
            used = recent.used
        entries = self._optimizer.variable_states.of([variables[i] for i in used])
        updated = [(v.leaf, v.layout) for entry in entries for v in entry.variables()]
        if recent is not None and recent.is_for(engine, function, updated):
            return recent.program  # without hashing the structure of the expression
        key = (id(engine), function.key, *updated)
        program = self._programs.find(key)
        if program is None:
            program = _Program(engine, self._optimizer, function, entries)
            self._programs.store(key, program)
        self._recent = _RecentProgram(engine, function, used, updated, program)
        return program

    def _positions_of_used(
        self, function: FunctionOfVariables, variables: Sequence[Variable]
    ) -> list[int]:
        """Return the positions of the variables on which the expression depends; the others keep
        their values."""
        key = function.key, *[v.leaf for v in variables]
        used = self._used.find(key)
        if used is None:
            slopes = gradients(function.output, [v.leaf for v in variables])
            used = [i for i, gradient in enumerate(slopes) if not is_independent(gradient)]
            self._used.store(key, used)
        if not used:
            raise GradientError(
                "minimize: the expression has no gradient by the variables: it depends on them "
                "through mm.stop_gradient, integers or comparisons only"
            )
        return used

    @property
    def last(self) -> _Program | None:
        """The most recently used program."""
        return self._programs.newest


def _step_runs(
    rates: Sequence[Sequence[float]], steps: int, drawn: bool
) -> Iterator[tuple[Sequence[float], int, bool]]:
    """Yield the rates and the number of steps of each run, and whether it uses the random numbers
    that the expression has drawn: the first step does if `drawn`, in a run of its own."""
    for rate in rates:
        remaining = steps
        if drawn:
            yield rate, 1, True
            remaining, drawn = steps - 1, False
        if remaining:
            yield rate, remaining, False


@final
@dataclass(frozen=True)
class _RecentProgram:
    """The most recently used program, and what it is used for.

    used     the positions of the variables on which the expression depends
    updated  the leaves of these variables and of their states, with their layouts
    """

    engine: Engine
    function: FunctionOfVariables
    used: list[int]
    updated: list[tuple[Node, Layout]]
    program: _Program

    def is_for(
        self, engine: Engine, function: FunctionOfVariables, updated: list[tuple[Node, Layout]]
    ) -> bool:
        """Return True if the program is that of this function and these states."""
        return self.engine is engine and self.function is function and self.updated == updated


@final
class _Released:
    """An expression during minimization, which releases the values of variables that it keeps.

    Otherwise these values could not be overwritten. Afterwards the expression has its value before
    the first step.
    """

    def __init__(self, expression: Array) -> None:
        self._expression = expression
        expression.forget_values()
        self._provenance: Provenance | None = None
        if not expression.is_computed:
            self._provenance = provenance_of_pending(expression.node)
            self.end([math.nan])  # a number in place of the node that refers to the values

    def end(self, values: Sequence[float]) -> None:
        """Give the expression the first of the values.

        Without values no step was taken, and the expression is restored: the variables still have
        their values.
        """
        provenance, expression = self._provenance, self._expression
        if provenance is None:
            return
        number = scalar(values[0] if values else math.nan, expression.dtype)
        set_provenance(number, provenance)
        restored = None if values else provenance.expression(number, _of_present_values)
        if restored is not None:
            set_value(restored, None)
        expression.replace_node(number if restored is None else restored)


def _of_present_values(read: OperandReference) -> Node | None:
    if isinstance(read, VersionReference):
        variable = read.variable.value()
        return None if variable is None else variable.node
    return read.find()


@final
class _Program:
    """The program that updates certain variables to minimize expressions of one structure."""

    def __init__(
        self,
        engine: Engine,
        optimizer: MinimizingOptimizer,
        function: FunctionOfVariables,
        entries: Sequence[VariableStates],
    ) -> None:
        self.engine = engine
        self._states = [v for entry in entries for v in entry.variables()]
        self._kept_variables = [  # the leaves refer to them weakly
            leaf.value() for leaf in function.leaves if leaf.name == "variable"
        ]
        placeholders = {leaf: _operand_leaf(leaf) for leaf in function.leaves}
        self._placeholders = [placeholders[leaf] for leaf in function.leaves]
        self._step = variable("step", 0, dtype=int64) if function.draws else None
        self.steps = 0
        """The number of steps that were taken, without those of `unfinished`."""
        self.unfinished: RunHandle | None = None
        """The last run, if it goes on after Ctrl-C."""
        streams = {
            leaf: self._stream_in_step(placeholders[leaf], function.draws_of(leaf))
            for leaf in function.draws
        }
        (loss,) = Graph((function.output,)).substituted({**placeholders, **streams}).outputs
        dtype = rate_dtype([entry.variable() for entry in entries])
        self._rates = [scalar(None, dtype) for _ in optimizer.learning_rates]
        pairs = optimizer.next_values(
            [entry.nodes(_leaf) for entry in entries],
            gradients(loss, [v.leaf for entry in entries if (v := entry.variable()) is not None]),
            self._rates,
        )
        targets = [target for target, _ in pairs]
        outputs = [value for _, value in pairs]
        if self._step is not None:
            targets.append(self._step.leaf)
            outputs.append(self._step.leaf + 1)
        self.targets = [target.value() for target in targets]
        self.graph = engine.pending_graph(Graph(tuple(outputs), tuple(targets), (loss,)))
        self.compiled: CompiledProgram = engine.compile(
            self.graph, modes=engine.modes.of_training()
        )

    def _stream_in_step(self, placeholder: Node, draws_per_step: int) -> Node:
        """Return the stream number in a step of a run."""
        assert self._step is not None
        return placeholder + self._step.leaf * draws_per_step

    def count_unfinished(self) -> int:
        """Wait for the last run if it goes on after Ctrl-C; return the number of steps so far."""
        if self.unfinished is not None:
            self.steps += self.unfinished.wait_for_steps()
            self.unfinished = None
        return self.steps

    @contextmanager
    def undone_on_failure(
        self, function: FunctionOfVariables, first: list[float]
    ) -> Iterator[None]:
        """Undo all runs of this block if one of them fails for its data, and clear the list of the
        first computed value."""
        if not self._can_fail(function):
            yield
            return
        steps = self.steps
        try:
            with rollback_on_failure(), restored_on_failure(self.targets):
                yield
        except Exception:
            self.steps = steps
            first.clear()
            raise

    def _can_fail(self, function: FunctionOfVariables) -> bool:
        """Return True if runs with the numbers of a function fail for some data; rates and streams
        do not matter."""
        numbers = {
            placeholder: leaf.value
            for placeholder, leaf in zip(self._placeholders, function.leaves, strict=True)
            if leaf.name == "scalar"
        }
        leaves = self.graph.leaves
        return self.compiled.can_fail([numbers.get(leaves[i], 0) for i in self.compiled.scalars])

    def run(
        self,
        function: FunctionOfVariables,
        rates: Sequence[float],
        steps: int,
        first: list[float],
        *,
        drawn: bool,
    ) -> list[float]:
        """Take steps; return the values of the expression before them.

        drawn   use the random numbers that the expression has drawn
        first   a list that receives the first computed value, unless it has one
        """
        operands: dict[Node, Any] = dict(zip(self._rates, rates, strict=True))
        numbers = _streams(function, steps, drawn)
        for placeholder, leaf in zip(self._placeholders, function.leaves, strict=True):
            if leaf in numbers:
                operands[placeholder] = numbers[leaf] - self.steps * function.draws_of(leaf)
            elif leaf.name == "scalar":
                operands[placeholder] = leaf.value
            elif placeholder is not leaf:
                operands[placeholder] = remote_array_of(leaf)
        leaves, compiled = self.graph.leaves, self.compiled
        parameters = [operands[leaves[i]] for i in compiled.scalars]
        run: RunHandle | None = None

        def start() -> tuple[list[RemoteArray], RunHandle]:
            nonlocal run
            inputs = [
                operands.get(leaves[i]) or remote_array_of(leaves[i]) for i in compiled.inputs
            ]
            started = self.engine.runs.start(
                compiled, inputs, parameters, steps=steps, progress=keep_first
            )
            run = started[1]
            self.steps += steps
            return started

        def keep_first(completed_steps: int, values: list[float]) -> None:
            first.extend(values[: 1 - len(first)])

        try:
            _, started = overwrite(self.targets, start, can_fail=compiled.can_fail(parameters))
            values = started.values()
        except KeyboardInterrupt:
            if run is not None:
                self.steps -= steps - run.taken_steps
                self.unfinished = run if run.is_pending else None
            raise
        keep_first(steps, values)
        return values


def _streams(function: FunctionOfVariables, steps: int, drawn: bool) -> dict[Node, int]:
    """Return the stream numbers of the first of some steps, by their leaves."""
    if drawn:
        return {leaf: leaf.value for leaf in function.draws}
    following: dict[int, int] = {}
    numbers: dict[Node, int] = {}
    for leaf, state in function.draws.items():
        if id(state) not in following:
            following[id(state)] = state.skip_for_run(function.draws_of(leaf) * steps)
        numbers[leaf] = following[id(state)]
        following[id(state)] += 1
    return numbers


def _operand_leaf(leaf: Node) -> Node:
    """Return a leaf whose value is an operand of each run; variables stay."""
    if leaf.name == "variable":
        return leaf
    if leaf.name == "scalar":
        return scalar(None, leaf.dtype)
    assert leaf.layout is not None
    return input_leaf(leaf.shape, leaf.dtype, leaf.layout, None)


def _leaf(v: Variable) -> Node:
    return v.leaf


def rate_dtype(variables: Sequence[Any]) -> DType:
    """Return the type of the learning rate for variables: wide enough for all of them."""
    return promote(*[real_dtype(compute_dtype(v.dtype)) for v in variables])


def check_finite_losses(values: Sequence[float]) -> None:
    """Raise NonFiniteLoss, naming the step, if one of the values is not finite."""
    for i, value in enumerate(values):
        if not math.isfinite(value):
            raise NonFiniteLoss(
                f"minimize: the expression became {value} at step {i + 1} of {len(values)}; lower "
                f"the learning rate, clip the gradient, or look for nan or huge values in the "
                f"data; minimize(…, check_finite=False) does not check"
            )
