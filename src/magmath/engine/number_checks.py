"""The checks of operands that the numbers of a program determine.

An index, an exponent or the parameter of a distribution that is computed from numbers alone is
known where a run is started. It is checked there, before the run overwrites anything. So a program
with such operands need not keep what it overwrites (`engine/fallible_operations.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, final

import numpy as np

from magmath.core.dtypes import bfloat16
from magmath.core.type_aliases import Number
from magmath.executor.error_context import attach_user_line
from magmath.graph import Graph, Node, topological
from magmath.graph.operation import Line, OperandCheck
from magmath.ops.leaves import SCALAR
from magmath.ops.type_rules import numpy_name
from magmath.runtime.failures import add_user_line

MAX_BYTES = 16 << 20
"""Bytes of the largest operand, or value from which one is computed, that is checked before a run:
this process computes it while the workers wait."""
MAX_FIXED_BYTES = 4 * MAX_BYTES
"""The same for values that depend on no argument of a function, nor on another number that differs
from run to run: in general they are computed once."""


def operands_checked_before_runs(
    graph: Graph, numbers: Collection[Node]
) -> Iterator[tuple[Node, int]]:
    """Yield each operand that could make an operation fail, but that these numbers of a run, or
    none, determine: the node of the operation, and the position of the operand."""
    computable: set[Node] | None = None
    for node in graph.nodes:
        checked = node.operation.checked
        if checked is None or checked.check is None:
            continue
        if computable is None:
            computable = _computable_nodes(graph, numbers)
        for i in checked.positions(node):
            if node.inputs[i] in computable:
                yield node, i


def _computable_nodes(graph: Graph, numbers: Collection[Node]) -> set[Node]:
    """Return these numbers, and the nodes that this process can compute from them or from none."""
    computable = {x for x in numbers if x.operation is SCALAR and x.dtype is not bfloat16}
    varying = {x for x in computable if _is_varying(x)}
    for node in graph.nodes:
        if node.is_leaf or not node.is_of_numbers or node.dtype is bfloat16:
            continue
        is_varying = not varying.isdisjoint(node.inputs)
        limit = MAX_BYTES if is_varying else MAX_FIXED_BYTES
        if computable.issuperset(node.inputs) and all(
            x.nbytes <= limit for x in (node, *node.inputs)
        ):
            computable.add(node)
            if is_varying:
                varying.add(node)
    return computable


def _is_varying(number: Node) -> bool:
    """Return True for an argument of a function, and a number that each run of it is given."""
    return number.value is None


@final
class _Step(NamedTuple):
    """The check of an operand of a node; or, without one, the computation of the node's value from
    those of its inputs.

    Nodes are given by their positions in the graph: a reference to one would keep the arrays from
    which it is computed. `releases` are those whose values no later step reads.
    """

    position: int
    line: Line
    reads: Sequence[int]
    check: OperandCheck | None = None
    compute: Callable[[Mapping[int, Any]], Any] | None = None
    releases: Sequence[int] = ()


_NO_VALUES: Mapping[int, Any] = {}


@final
class NumberChecks:
    """The checks of a program's operands that are computed from numbers alone.

    What depends on no number that varies is computed and checked again only if one of the fixed
    numbers has changed.

    graph    a graph of operations that have kernels
    numbers  the leaves of the program's numbers, in order. It may lack those of an operation that
             the program does not compute
    """

    def __init__(self, graph: Graph, numbers: Sequence[Node]) -> None:
        checked = list(operands_checked_before_runs(graph, set(numbers)))
        needed = topological([node.inputs[i] for node, i in checked])
        position = {node: i for i, node in enumerate(graph.nodes)} if checked else {}
        steps = [_check(node, i, position) for node, i in checked]
        steps += [_computation(node, position) for node in needed if not node.is_leaf]
        # The operands of a node are checked before it is computed.
        steps.sort(key=lambda step: (step.position, step.check is None))
        is_needed = set(needed).__contains__
        read = [(i, leaf) for i, leaf in enumerate(numbers) if is_needed(leaf)]
        read.sort(key=lambda x: _is_varying(x[1]))
        self._read = [i for i, _ in read]
        """Which numbers of a run are read, the fixed ones first."""
        leaves = [(position[leaf], _numpy_type(leaf)) for _, leaf in read]
        count = len([leaf for _, leaf in read if not _is_varying(leaf)])
        self._fixed_leaves, self._varying_leaves = leaves[:count], leaves[count:]
        varying = {leaf for leaf, _ in self._varying_leaves}
        fixed_steps: list[_Step] = []
        self._varying_steps: list[_Step] = []
        for step in steps:
            is_fixed = varying.isdisjoint(step.reads)
            (fixed_steps if is_fixed else self._varying_steps).append(step)
            if not is_fixed and step.check is None:
                varying.add(step.position)
        self._kept = {x for step in self._varying_steps for x in step.reads} - varying
        """The fixed values that steps of each run read."""
        self._fixed_steps = _with_releases(fixed_steps, self._kept)
        self._has_fixed = bool(self._fixed_leaves or self._fixed_steps)
        self._fixed: tuple[list[Number] | None, Mapping[int, Any]] = (None, _NO_VALUES)
        """The last fixed numbers, and the values that were computed from them."""
        self._has_computed = any(step.check is None for step in self._varying_steps)
        self._checked: list[Number] | None = None
        """The numbers of the last check that has succeeded."""

    def __bool__(self) -> bool:
        """True if a run needs checks."""
        return bool(self._fixed_steps or self._varying_steps)

    def check(self, numbers: Sequence[Number]) -> None:
        """Raise the error of the first operation that these numbers of a run make fail."""
        read = [numbers[i] for i in self._read]
        if read == self._checked:
            return
        varying, fixed_values = read, _NO_VALUES
        if self._has_fixed:
            count = len(self._fixed_leaves)
            varying, fixed_values = read[count:], self._fixed_values(read[:count])
        pairs = zip(self._varying_leaves, varying, strict=True)
        if self._has_computed:
            arrays = {leaf: np.array(number, dtype) for (leaf, dtype), number in pairs}
            with np.errstate(all="ignore"):
                _run(self._varying_steps, {**fixed_values, **arrays})
        else:
            _run(self._varying_steps, {leaf: number for (leaf, _), number in pairs})
        self._checked = read

    def _fixed_values(self, numbers: list[Number]) -> Mapping[int, Any]:
        """Return the values that each run reads of those that these fixed numbers determine. Check
        them, unless the numbers are the last ones."""
        former, kept = self._fixed
        if numbers != former:
            pairs = zip(self._fixed_leaves, numbers, strict=True)
            values = {leaf: np.array(number, dtype) for (leaf, dtype), number in pairs}
            with np.errstate(all="ignore"):
                _run(self._fixed_steps, values)
            kept = {x: values[x] for x in self._kept}
            self._fixed = numbers, kept
        return kept


def _with_releases(steps: Sequence[_Step], kept: Collection[int]) -> list[_Step]:
    """Return steps that release the values that no later one reads, except those that are kept."""
    last_reader = {x: i for i, step in enumerate(steps) for x in step.reads}
    return [
        step._replace(releases=[x for x in {*step.reads} if last_reader[x] == i and x not in kept])
        for i, step in enumerate(steps)
    ]


def _run(steps: Sequence[_Step], values: dict[int, Any]) -> None:
    """Check operands, and add the values of nodes to those of their inputs."""
    for step in steps:
        position, _, reads, check, compute, releases = step
        try:
            if check is not None:
                check(values[reads[0]])
            elif compute is not None:
                values[position] = compute(values)
        except Exception as error:
            attach_user_line(error, step)
            add_user_line(error)
            raise
        for x in releases:
            del values[x]


def _check(node: Node, i: int, position: Mapping[Node, int]) -> _Step:
    """Return the check of the operand i of a node."""
    checked = node.operation.checked
    assert checked is not None
    assert checked.check is not None
    return _Step(position[node], node.line, [position[node.inputs[i]]], checked.check(node, i))


def _computation(node: Node, position: Mapping[Node, int]) -> _Step:
    reference, dtype, attributes = (
        node.operation.reference,
        _numpy_type(node),
        dict(node.attributes),
    )
    reads = [position[x] for x in node.inputs]

    def compute(values: Mapping[int, Any]) -> Any:
        return np.asarray(reference(*[values[x] for x in reads], **attributes), dtype)

    return _Step(position[node], node.line, reads, compute=compute)


def _numpy_type(node: Node) -> np.dtype[Any]:
    return np.dtype(numpy_name(node.dtype))
