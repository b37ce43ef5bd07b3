"""Division of the graph of a traced function at its loops.

Subgraph i computes what loop i and later subgraphs need and what is known after loop i - 1.
Branches of `mm.cond` and functions of `mm.remat` are not divided: gradients treat them as a whole.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import final

from magmath.core.dtypes import compute_dtype
from magmath.graph import Graph, Node, topological
from magmath.graph.graph import topological_until
from magmath.ops.counted_loops import SCAN, ScanBody
from magmath.ops.custom_gradients import CUSTOM_CALL, CUSTOM_RESULT, parts_of_call
from magmath.ops.elementwise import ASTYPE
from magmath.ops.leaves import is_known_number
from magmath.ops.loop_results import LOOP_RESULT
from magmath.ops.manipulation import PERMUTE, RESHAPE
from magmath.ops.predication import BRANCH, BRANCH_RESULT
from magmath.ops.recomputation import CHECKPOINT
from magmath.ops.while_loops import WHILE


@final
@dataclass(frozen=True)
class Subgraph:
    """A part of a function.

    inputs, outputs   the nodes that it is given, and those that it computes
    loop              the loop that runs after this, or None
    results           the nodes of the results of the loop
    """

    inputs: Sequence[Node]
    outputs: Sequence[Node]
    loop: Node | None
    results: Sequence[Node]


LOOPS = (WHILE, SCAN)


def contains_loop(roots: Iterable[Node]) -> bool:
    """Return True if an expression contains a loop without a value."""
    return any(_is_loop(node) for node in topological(roots, pending=True))


def _is_loop(node: Node) -> bool:
    return node.operation in LOOPS


def leaves_of_loops(graph: Graph) -> set[Node]:
    """Return the leaves that are inputs of loops, as they are or in another form."""
    sources = set[Node]()
    for loop in filter(_is_loop, graph.nodes):
        for node in loop.inputs:
            while len(node.inputs) == 1:
                (node,) = node.inputs
            sources.add(node)
    return {node for node in sources if node.is_leaf}


def with_shared_loops(roots: Sequence[Node]) -> list[Node]:
    """Return expressions in which one loop has the results of loops of the same steps.

    The gradient of a loop reads a loop of the same steps that collects more values
    (`ScanBody.extends`).
    """
    order = topological(roots, pending=True)
    larger: dict[tuple[ScanBody, tuple[Node, ...]], Node] = {}
    for node in order:
        body = node.attributes["body"].extends if node.operation is SCAN else None
        while body is not None:
            larger.setdefault((body, node.inputs), node)
            body = body.extends
    if not larger:
        return list(roots)
    new: dict[Node, Node] = {}
    for node in order:
        image = node
        if node.operation is SCAN:  # its operands are those of the larger loop
            image = larger.get((node.attributes["body"], node.inputs), node)
        if image not in new:
            inputs = tuple([new[x] for x in image.inputs]) if node.value is None else image.inputs
            new[image] = image.with_inputs(inputs)
        new[node] = new[image]
    return [new[node] for node in roots]


def without_versions(roots: Sequence[Node], images: Mapping[Node, Node]) -> list[Node]:
    """Return expressions with values in place of the versions of variables, and with other nodes in
    place of some nodes."""
    new = dict(images)
    for node in topological(roots, pending=True):
        if node in new:
            continue
        if node.operation.is_version:
            new[node] = new[node.inputs[1]]
            continue
        inputs = tuple([new[x] for x in node.inputs]) if node.value is None else node.inputs
        new[node] = node.with_inputs(inputs)
    return [new[node] for node in roots]


def frontier(
    outputs: Sequence[Node], starts: Collection[Node], dependent: Container[Node] | None = None
) -> list[Node]:
    """Return the nodes that expressions read and that do not depend on the nodes `starts`.

    `dependent`, if given, contains all nodes that depend on these. A conversion to a half type that
    was written after the starts is left to the expressions: a loop that reads its operand adds up
    gradients in the wider type, as its steps do one by one. So is all of a function with a gradient
    of its own: the operands of its arguments are none of its values.
    """
    first = min((x.sequence_number for x in starts), default=inf)

    def inputs_of(node: Node) -> Sequence[Node]:
        return (
            node.inputs if node.value is None and (dependent is None or node in dependent) else ()
        )

    order = topological_until(outputs, starts, inputs_of)
    varying, whole = set(starts), _interior(order) | _inside_custom_calls(order)
    for node in order:
        if node.value is None and not varying.isdisjoint(node.inputs):
            varying.add(node)
    read = dict[Node, None]()
    stack, seen = list(outputs), set(starts)
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        is_inside = node in varying or (node in whole and not node.is_leaf)
        is_written_after = node.sequence_number > first
        if is_inside or (is_written_after and _is_converted_to_half(node)):
            stack += node.inputs
        elif not is_known_number(node):
            read[node] = None
    return list(read)


def _is_converted_to_half(node: Node) -> bool:
    """Return True for a pending conversion to a half type, perhaps reshaped or transposed."""
    while node.value is None and node.operation in (RESHAPE, PERMUTE):
        (node,) = node.inputs
    is_conversion = node.value is None and node.operation is ASTYPE
    return is_conversion and compute_dtype(node.dtype) is not node.dtype


def subgraphs(outputs: Sequence[Node], outside: Collection[Node]) -> list[Subgraph]:
    """Return the subgraphs of expressions without versions of variables; one more than the loops,
    in the order in which they run. Nodes `outside` are not computed by any."""
    return _Division(outputs, outside).subgraphs()


@final
class _Division:
    """The loops of a function in order, and the number of loops after which each node is known."""

    def __init__(self, outputs: Sequence[Node], outside: Collection[Node]) -> None:
        self._outputs, self._order = outputs, topological(outputs, pending=True)
        self._loops = [node for node in self._order if _is_loop(node)]
        self._whole, self._outside = _interior(self._order), outside
        self._after: dict[Node, int] = {}
        number = {loop: i for i, loop in enumerate(self._loops, 1)}
        for node in self._order:
            inputs = node.inputs if node.value is None else ()
            before = max([self._after[x] for x in inputs], default=0)
            self._after[node] = number.get(node, before)

    def subgraphs(self) -> list[Subgraph]:
        count = len(self._loops) + 1
        needed: list[dict[Node, None]] = [{} for _ in range(count)]
        for node in (*self._outputs, *[x for loop in self._loops for x in loop.inputs]):
            needed[self._after[node]][node] = None
        parts: list[Subgraph] = []
        for number in reversed(range(count)):  # the last first: it tells what others must compute
            outputs = [node for node in needed[number] if not self._is_given(node)]
            inputs = self._read_by(outputs, number)
            for node in inputs:
                needed[self._after[node]][node] = None
            loop = self._loops[number] if number < len(self._loops) else None
            parts.append(Subgraph(inputs, outputs, loop, self._results(loop)))
        return parts[::-1]

    def _read_by(self, outputs: Sequence[Node], number: int) -> list[Node]:
        """Return the nodes that a subgraph reads: its operands, and results of earlier ones."""
        read = dict[Node, None]()
        stack, seen = list(outputs), set[Node]()
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            if self._is_given(node) or self._is_earlier(node, number):
                read[node] = None
            elif node.value is None:
                stack += node.inputs
        return list(read)

    def _is_given(self, node: Node) -> bool:
        """Return True for arguments, variables, arrays from outside, and states of loops."""
        leaf = node.is_leaf and (node.value is None or node.name == "variable")
        return leaf or node in self._outside or node.operation is LOOP_RESULT

    def _is_earlier(self, node: Node, number: int) -> bool:
        is_part = node in self._whole or is_known_number(node)
        return self._after[node] < number and not is_part

    def _results(self, loop: Node | None) -> list[Node]:
        return [x for x in self._order if x.operation is LOOP_RESULT and x.inputs[0] is loop]


def _interior(order: Sequence[Node]) -> set[Node]:
    """Return the nodes of branches and of functions that are recomputed, and the marks."""
    interior = set[Node]()
    for node in order:
        if node.operation in (BRANCH, CUSTOM_CALL):
            interior.add(node)
        elif node.operation is BRANCH_RESULT:
            value, branch = node.inputs
            interior.update(_between(value, branch.inputs))
        elif node.operation is CHECKPOINT:
            value, *inputs = node.inputs
            interior.update(_between(value, inputs))
    return interior


def _inside_custom_calls(order: Sequence[Node]) -> set[Node]:
    """Return the nodes of functions with gradients of their own, which depend on sources through
    the arguments alone."""
    inside = set[Node]()
    for node in order:
        if node.operation is CUSTOM_RESULT:
            value, call = node.inputs
            inside.update(_between(value, parts_of_call(call).arguments))
    return inside


def _between(value: Node, ends: Sequence[Node]) -> set[Node]:
    return set(topological_until([value], ends)).difference(ends)
