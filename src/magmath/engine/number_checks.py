"""The checks of operands that the numbers of a program determine.

An index, an exponent or the parameter of a distribution that is computed from numbers alone is
known where a run is started. It is checked there, before the run overwrites anything. So a program
with such operands need not keep what it overwrites (`engine/fallible_operations.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, final

import numpy as np

from magmath.core.dtypes import bfloat16
from magmath.core.type_aliases import Number
from magmath.executor.error_context import attach_user_line
from magmath.graph import Graph, Node, topological
from magmath.graph.operation import OperandCheck
from magmath.ops.leaves import SCALAR
from magmath.ops.type_rules import numpy_name
from magmath.runtime.failures import add_user_line

MAX_BYTES = 16 << 20
"""Bytes of the largest operand, or value from which one is computed, that is checked before a run:
this process computes it while the workers wait."""


def is_checked_before_runs(node: Node, position: int) -> bool:
    """Return True for an operand that could make an operation fail, but is checked before a run."""
    checked = node.operation.checked
    if checked is None or checked.check is None or not node.inputs[position].is_of_numbers:
        return False
    return all(map(_is_computable, topological((node.inputs[position],))))


def _is_computable(node: Node) -> bool:
    """Return True for a number, and for an operation whose result this process can compute."""
    is_number = not node.is_leaf or node.operation is SCALAR
    return is_number and node.nbytes <= MAX_BYTES and node.dtype is not bfloat16


@final
class _Step(NamedTuple):
    """The check of an operand of a node; or, without one, the computation of the node's value from
    those of its inputs."""

    node: Node
    reads: Sequence[Node]
    check: OperandCheck | None = None
    compute: Callable[[Mapping[Node, Any]], Any] | None = None


@final
class NumberChecks:
    """The checks of a program's operands that are computed from numbers alone.

    graph    a graph of operations that have kernels
    numbers  the leaves of the program's numbers, in order
    """

    def __init__(self, graph: Graph, numbers: Sequence[Node]) -> None:
        checks = list(_checks_of(graph, set(numbers)))
        needed = topological([x for step in checks for x in step.reads])
        position = {node: i for i, node in enumerate(graph.nodes)}
        steps = [*checks, *[_computation(node) for node in needed if not node.is_leaf]]
        # The operands of a node are checked before it is computed.
        steps.sort(key=lambda step: (position[step.node], step.check is None))
        self._constants: dict[Node, Any] = {}
        """The values of operands that are computed from constants alone."""
        self._steps = [step for step in steps if not self._is_done(step)]
        is_needed = set(needed).__contains__
        self._positions = [i for i, leaf in enumerate(numbers) if is_needed(leaf)]
        self._leaves = [(numbers[i], _numpy_type(numbers[i])) for i in self._positions]
        self._has_computed = any(step.check is None for step in self._steps)
        self._checked: list[Number] | None = None
        """The numbers of the last check that has succeeded."""

    def __bool__(self) -> bool:
        """True if a run needs checks."""
        return bool(self._steps)

    def check(self, numbers: Sequence[Number]) -> None:
        """Raise the error of the first operation that these numbers of a run make fail."""
        read = [numbers[i] for i in self._positions]
        if read == self._checked:
            return
        pairs = zip(self._leaves, read, strict=True)
        if self._has_computed:
            arrays = {leaf: np.array(number, dtype) for (leaf, dtype), number in pairs}
            with np.errstate(all="ignore"):
                _run(self._steps, {**self._constants, **arrays})
        else:
            _run(self._steps, {**self._constants, **{leaf: number for (leaf, _), number in pairs}})
        self._checked = read

    def _is_done(self, step: _Step) -> bool:
        """Return True for a step that depends on no numbers and succeeds, so that it needs no
        repetition."""
        if not self._constants.keys() >= set(step.reads):
            return False
        try:
            with np.errstate(all="ignore"):
                _run((step,), self._constants)
        except Exception:  # it is raised before each run
            return False
        return True


def _run(steps: Sequence[_Step], values: dict[Node, Any]) -> None:
    """Check operands, and add the values of nodes to those of their inputs."""
    for node, reads, check, compute in steps:
        try:
            if check is not None:
                check(values[reads[0]])
            elif compute is not None:
                values[node] = compute(values)
        except Exception as error:
            attach_user_line(error, node)
            add_user_line(error)
            raise


def _checks_of(graph: Graph, numbers: set[Node]) -> Iterator[_Step]:
    """Yield the checks of the operands that are computed from these numbers alone."""
    for node in graph.nodes:
        checked = node.operation.checked
        if checked is None or checked.check is None:
            continue
        for i in checked.positions(node):
            operand = node.inputs[i]
            read = {x for x in topological((operand,)) if x.operation is SCALAR}
            # The program lacks the numbers of an operation that it does not compute.
            if is_checked_before_runs(node, i) and read <= numbers:
                yield _Step(node, (operand,), check=checked.check(node, i))


def _computation(node: Node) -> _Step:
    reference, inputs, dtype = node.operation.reference, node.inputs, _numpy_type(node)
    attributes = dict(node.attributes)

    def compute(values: Mapping[Node, Any]) -> Any:
        return np.asarray(reference(*[values[x] for x in inputs], **attributes), dtype)

    return _Step(node, inputs, compute=compute)


def _numpy_type(node: Node) -> np.dtype[Any]:
    return np.dtype(numpy_name(node.dtype))
