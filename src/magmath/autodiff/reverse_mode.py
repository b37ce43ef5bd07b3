"""Reverse-mode differentiation, from graph to graph.

`gradients` traverses the graph once from the result to its sources and accumulates cotangents. The
rules are the operations' own `vjp`, written in the same operations, so a gradient is an ordinary
graph: it can be fused, distributed and differentiated again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TypeVar, final

from magmath.autodiff.custom_calls import call_cotangents, check_call
from magmath.autodiff.differentiability import has_cotangent
from magmath.autodiff.gradient_errors import check_independent, lost_expression_error
from magmath.autodiff.gradient_memo import cached_gradients
from magmath.autodiff.scan_gradients import scan_cotangents
from magmath.autodiff.source_expression import (
    SourceDependence,
    SourceExpression,
    argument_sources,
    expressed_by_sources,
    inputs_followed,
)
from magmath.core.expression_lock import exclusive
from magmath.core.paused_gc import paused_gc
from magmath.core.stage_times import stage
from magmath.errors import DTypeError, ShapeError
from magmath.graph import Node, apply
from magmath.graph.graph import substituted, topological_until
from magmath.graph.operation import Gradients
from magmath.graph.provenance.dependence import first_number_of
from magmath.ops.counted_loops import SCAN, is_scan_result
from magmath.ops.creation import full
from magmath.ops.custom_gradients import CUSTOM_CALL, CUSTOM_RESULT
from magmath.ops.elementwise import conj, where
from magmath.ops.gradient_results import INDEPENDENT
from magmath.ops.leaves import constant
from magmath.ops.predication import BRANCH_RESULT, branch, branch_result
from magmath.ops.recomputation import CHECKPOINT, recompute
from magmath.ops.sums import sum_to

CotangentKey = TypeVar("CotangentKey", Node, int)


@exclusive
@paused_gc()
@stage("gradients")
def gradients(
    output: Node, sources: Sequence[Node], *, check_independence: bool = True
) -> list[Node]:
    """Return the gradient of a 0-d real node with respect to each source, in the source's shape.

    The gradient by a complex source is that of the real parts plus i times that of the imaginary
    parts, as in PyTorch: along it the output rises fastest.

    A source on which the output does not depend has gradient zero (see `independence.py`). A node
    whose value is known counts as the leaf that holds it. If an intermediate array was evaluated,
    its expression is built again.

    An intermediate result that is itself a gradient (`ops/gradient_results.py`) counts as a
    constant, unless the output depends on a source in no other way.

    Raises ShapeError if the output is not 0-d, and DTypeError if it is not real floating point or a
    source is no floating point. Raises GradientError if the output depends on a source through an
    array whose expression cannot be built again, and, with `check_independence`, if it does not
    depend on a source but on an array from which the source was computed, such as a second `x[0]`.
    """
    if output.shape != ():
        raise ShapeError(f"grad: needs a 0-d result, was given shape {output.shape}; sum it first")
    if not output.dtype.is_floating:
        raise DTypeError(f"grad: needs a real floating point result, was given {output.dtype}")
    for node in sources:
        if not (node.dtype.is_floating or node.dtype.kind == "complex"):
            raise DTypeError(f"grad: needs floating point, was given {node.dtype}")
    order = _plain_order(output, sources)
    if order is None:
        return _gradients(output, sources, check_independence)
    source_leaves = [node.leaf_or_self for node in sources]
    return cached_gradients(
        order, source_leaves, lambda: _gradients(output, sources, check_independence)
    )


def _plain_order(output: Node, sources: Sequence[Node]) -> list[Node] | None:
    """Return the nodes of the output in order, if they alone determine its gradient.

    None if an expression has to be built again, an intermediate result is evaluated or a gradient,
    or the output does not read a source.
    """
    source_leaves = {node.leaf_or_self for node in sources}
    if len(source_leaves) > 1 and any(node.provenance is not None for node in source_leaves):
        return None  # sources may depend on each other
    evaluated: list[Node] = []
    inputs_of = inputs_followed(first_number_of(source_leaves), through_gradients=True)

    def inputs_of_pending(node: Node) -> Sequence[Node]:
        inputs = inputs_of(node)
        if inputs and isinstance(node.value, Node) and not node.operation.is_version:
            evaluated.append(node)
            return ()
        return inputs

    order = topological_until([output], argument_sources(sources), inputs_of_pending)
    if evaluated or any(node.operation.is_mark for node in order):
        return None
    occurrences = [node for node in order if node.leaf_or_self in source_leaves]
    if len({node.leaf_or_self for node in occurrences}) < len(source_leaves):
        return None
    leaves = [node for node in order if node.provenance is not None and node not in source_leaves]
    if leaves:
        dependence = SourceDependence(
            source_leaves.union(sources, occurrences), through_gradients=True
        )
        if any(map(dependence.is_dependent_leaf, leaves)):
            return None
    return order


def _gradients(output: Node, sources: Sequence[Node], check_independence: bool) -> list[Node]:
    cotangents, graph = _derivatives(output, sources, through_gradients=not check_independence)
    if check_independence:
        missing = [x for x in sources if x.leaf_or_self not in cotangents]
        if missing:  # they may be reached through gradients
            missing_cotangents, graph = _derivatives(output, missing, through_gradients=True)
            cotangents |= missing_cotangents
        for source in missing:
            if source.leaf_or_self not in cotangents:
                check_independent(graph.output, source)
    return [_gradient_of(cotangents.get(source.leaf_or_self), source) for source in sources]


def _derivatives(
    output: Node, sources: Sequence[Node], *, through_gradients: bool
) -> tuple[dict[Node, Node | None], SourceExpression]:
    """Return the gradient by each source on which the output depends, None if it is zero, and the
    output as an expression of the sources.

    Without `through_gradients`, intermediate results that are gradients count as constants.
    """
    graph = expressed_by_sources(output, sources, through_gradients=through_gradients)
    order = graph.order()
    occurrences = [node for node in order if graph.source_of(node) is not None]
    lost = [node for node in order if node in graph.lost]
    cotangents = {graph.output: constant(1, output.dtype)}
    sources_and_lost = [*occurrences, *lost]
    recomputation = _Recomputation(graph.constants, sources_and_lost)
    _propagate(order, cotangents, sources_and_lost, (), recomputation)
    for node in lost:
        if node in cotangents:
            raise lost_expression_error(node)
    derivatives: dict[Node, Node | None] = {}
    for node in occurrences:
        key = graph.source_of(node)
        assert key is not None
        part, before = cotangents.get(node), derivatives.get(key)
        derivatives[key] = part if before is None else before if part is None else before + part
    if graph.originals:
        # Later gradients, by results that this one depends on, find these results.
        defined = {key: x for key, x in derivatives.items() if x is not None}
        images = substituted(list(defined.values()), graph.originals)
        derivatives |= zip(defined, images, strict=True)
    return derivatives, graph


def _propagate(
    order: Sequence[Node],
    cotangents: dict[Node, Node],
    targets: Sequence[Node],
    ends: Collection[Node],
    recomputation: _Recomputation,
) -> None:
    """Add the cotangents of all nodes between the targets, whose cotangents are wanted, and those
    whose cotangents are given.

    Nothing is propagated beyond the `ends`.
    """
    active = _depending_on(order, targets, recomputation.constants)
    branches = _Branches(order, active, ends, recomputation)
    # The cotangents of the results of loops and of functions with gradients of their own.
    results: dict[Node, dict[int, Node]] = {}
    for node in reversed(order):
        cotangent = cotangents.get(node)
        if node in branches.results:
            for source, derivative in branches.cotangents(node, cotangent):
                _add(cotangents, source, sum_to(derivative, source.shape))
            continue
        if node.operation is SCAN and node in results:
            parts = scan_cotangents(node, results.pop(node), active, _propagated_step)
        elif node.operation is CUSTOM_CALL and node in results:
            parts = call_cotangents(node, results.pop(node))
        elif cotangent is None or node not in active or node.is_leaf or node in ends:
            continue
        elif is_scan_result(node):
            _add(results.setdefault(node.inputs[0], {}), node.attributes["index"], cotangent)
            continue
        elif node.operation is CUSTOM_RESULT:
            value, call = node.inputs
            check_call(call, value, recomputation.sources, recomputation.constants)
            _add(results.setdefault(call, {}), node.attributes["index"], cotangent)
            continue
        elif node.operation is CHECKPOINT:
            parts = recomputation.cotangents(node, cotangent)
        else:
            parts = node.operation.vjp(node, cotangent)
        for source, part in zip(node.inputs, parts, strict=True):
            if part is not None and source in active:
                _add(cotangents, source, sum_to(part, source.shape))


def _propagated_step(
    order: Sequence[Node], cotangents: dict[Node, Node], sources: Sequence[Node]
) -> None:
    """Accumulate the cotangents of the nodes of one step of a loop."""
    _propagate(order, cotangents, sources, (), _Recomputation(set(), sources))


@final
class _Branches:
    """The branches of `mm.cond` among the nodes of one propagation.

    A branch receives the full cotangents of its results, and the cotangents of its operands are
    zero if it is not taken: selected there, they do not become nan if the branch has infinite
    derivatives. They are results of a branch themselves, for second derivatives.
    """

    def __init__(
        self,
        order: Sequence[Node],
        active: Collection[Node],
        ends: Collection[Node],
        outer: _Recomputation,
    ) -> None:
        self._active, self._outer = active, outer
        self.results = {x: x.inputs[1] for x in order if _is_result(x) and x not in ends}
        """The results of branches, and their branches."""
        self._first: dict[Node, Node] = {}
        for result, branch_node in self.results.items():
            self._first.setdefault(branch_node, result)
        self._reached: dict[Node, dict[Node, Node]] = {}

    def cotangents(self, result: Node, cotangent: Node | None) -> Iterable[tuple[Node, Node]]:
        """Add the cotangent of a result; return those of its operands, if no other result
        of the branch follows: all of its results then have their whole cotangents."""
        branch_node = self.results[result]
        if cotangent is not None:
            _add(self._reached.setdefault(branch_node, {}), result.inputs[0], cotangent)
        predicate, *inputs = branch_node.inputs
        sources = [x for x in dict.fromkeys(inputs) if x in self._active]
        is_last = self._first[branch_node] is result
        if not is_last or branch_node not in self._reached or not sources:
            return []
        cotangents = self._reached.pop(branch_node)
        of_results = list(cotangents.values())
        order = topological_until(cotangents, inputs)
        # Its own recomputation: values of others come after cotangents that it does not read.
        recomputation = _Recomputation(self._outer.constants, self._outer.sources)
        _propagate(order, cotangents, sources, set(inputs), recomputation)
        backwards = branch(predicate, [*inputs, *of_results])
        return [
            (
                x,
                where(
                    predicate, branch_result(derivative, backwards), constant(0, derivative.dtype)
                ),
            )
            for x in sources
            if (derivative := cotangents.get(x)) is not None
        ]


def _is_result(node: Node) -> bool:
    return node.operation is BRANCH_RESULT


@final
class _Recomputation:
    """The values that one differentiation recomputes for functions whose intermediates are not
    stored.

    The results of one function share the recomputed values. `constants` are nodes that count as
    constants, `sources` those with respect to which the whole is differentiated.
    """

    def __init__(self, constants: set[Node], sources: Iterable[Node]) -> None:
        self.constants, self.sources = constants, set(sources)
        self._recomputed: dict[tuple[Node, ...], dict[Node, Node]] = {}
        """The recomputed values of functions' nodes, by the inputs, which functions may share."""

    def cotangents(self, node: Node, cotangent: Node) -> Gradients:
        """Return the cotangents of the inputs of a checkpoint, by recomputing its value."""
        value, *inputs = node.inputs
        recomputed = self._recomputed.setdefault(tuple(inputs), {})
        if not recomputed:
            count = node.attributes["recomputed"]
            recomputed.update({x: recompute(x, cotangent) for x in inputs[:count]})
            recomputed.update({x: x for x in inputs[count:]})
        for x in topological_until([value], inputs):
            if x not in recomputed:
                sources = tuple([recomputed[source] for source in x.inputs])
                recomputed[x] = x.with_inputs(sources)
                if x in self.constants:
                    self.constants.add(recomputed[x])
        ends = [recomputed[x] for x in inputs]
        order = topological_until([recomputed[value]], ends)
        cotangents = {recomputed[value]: cotangent}
        _propagate(order, cotangents, ends, ends, self)
        # Once for an array that is several inputs: it is one node of the recomputation.
        return (None, *[cotangents.pop(end, None) for end in ends])


def _add(table: dict[CotangentKey, Node], key: CotangentKey, part: Node) -> None:
    table[key] = table[key] + part if key in table else part


def _depending_on(
    order: Sequence[Node], sources: Sequence[Node], constants: Collection[Node]
) -> set[Node]:
    """Return the nodes that depend on the sources, through which cotangents pass."""
    active = {source for source in sources if has_cotangent(source)}
    for node in order:
        reads_active = not active.isdisjoint(node.inputs)
        if reads_active and node not in constants and has_cotangent(node):
            active.add(node)
    return active


def _gradient_of(cotangent: Node | None, source: Node) -> Node:
    """Return the gradient by a source from its cotangent, None if there is none."""
    if cotangent is None:
        return apply(INDEPENDENT, full(source.shape, constant(0, source.dtype)))
    return conj(cotangent if cotangent.shape == source.shape else full(source.shape, cotangent))
