"""The checks of operands that the numbers of a program determine.

An index, an exponent or the parameter of a distribution that is computed from numbers alone is
known where a run is started. It is checked there, before the run overwrites anything. So a program
with such operands need not keep what it overwrites (`engine/fallible_operations.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
    """The check of an operand of a node; without one, the computation of the node's value."""

    node: Node
    operand: Node | None = None
    check: OperandCheck | None = None

    def run(self, values: dict[Node, Any]) -> None:
        """Check the operand, or add the value of the node to those of its inputs."""
        try:
            if self.check is None:
                values[self.node] = _value(self.node, values)
            else:
                self.check(values[self.operand])  # type: ignore[index]
        except Exception as error:
            attach_user_line(error, self.node)
            add_user_line(error)
            raise


@final
class NumberChecks:
    """The checks of a program's operands that are computed from numbers alone.

    graph    a graph of operations that have kernels
    numbers  the leaves of the program's numbers, in order
    """

    def __init__(self, graph: Graph, numbers: Sequence[Node]) -> None:
        checks = list(_checks_of(graph, set(numbers)))
        needed = topological([step.operand for step in checks if step.operand is not None])
        position = {node: i for i, node in enumerate(graph.nodes)}
        steps = [*checks, *[_Step(node) for node in needed if not node.is_leaf]]
        # The operands of a node are checked before it is computed.
        steps.sort(key=lambda step: (position[step.node], step.check is None))
        self._constants: dict[Node, Any] = {}
        """The values of operands that are computed from constants alone."""
        self._steps = [step for step in steps if not self._is_done(step)]
        self._positions = [i for i, leaf in enumerate(numbers) if leaf in set(needed)]
        self._leaves = [numbers[i] for i in self._positions]
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
        values = dict(self._constants)
        for leaf, number in zip(self._leaves, read, strict=True):
            is_operand = self._has_computed
            values[leaf] = np.array(number, numpy_name(leaf.dtype)) if is_operand else number
        for step in self._steps:
            step.run(values)
        self._checked = read

    def _is_done(self, step: _Step) -> bool:
        """Return True for a step that depends on no numbers and succeeds, so that it needs no
        repetition."""
        read = step.node.inputs if step.check is None else (step.operand,)
        if not self._constants.keys() >= set(read):
            return False
        try:
            step.run(self._constants)
        except Exception:  # it is raised before each run
            return False
        return True


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
                yield _Step(node, operand, checked.check(node, i))


def _value(node: Node, inputs: Mapping[Node, Any]) -> Any:
    with np.errstate(all="ignore"):
        value = node.operation.reference(*[inputs[x] for x in node.inputs], **node.attributes)
    return np.asarray(value, numpy_name(node.dtype))
