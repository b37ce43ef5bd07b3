"""Reverse-mode differentiation, from graph to graph.

`gradients` traverses the graph once from the result to its sources and accumulates cotangents. The
rules are the operations' own `vjp`, written in the same operations, so a gradient is an ordinary
graph: it can be fused, distributed and differentiated again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, final

from magmath.autodiff.custom_calls import call_cotangents, check_call, varies
from magmath.autodiff.gradient_memo import cached_gradients
from magmath.autodiff.scan_gradients import scan_cotangents, without_short_loops
from magmath.core.paused_gc import paused_gc
from magmath.core.stage_times import stage
from magmath.errors import DTypeError, MagmathError, ShapeError
from magmath.graph import Node, apply, provenance_of
from magmath.graph.graph import topological_until
from magmath.graph.operation import Gradients
from magmath.graph.provenance.dependence import DependenceQuery, DependenceSearch
from magmath.graph.provenance.rebuild import with_expressions
from magmath.graph.provenance.record_chains import nodes_before
from magmath.graph.provenance.recorded_operands import RecordedOperand
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
    source is no floating point. Raises MagmathError if the output depends on a source through an
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

    def inputs_of(node: Node) -> Sequence[Node]:
        if isinstance(node.value, Node) and not node.operation.is_version:
            evaluated.append(node)
            return ()
        return node.inputs

    order = topological_until([output], _arguments(sources), inputs_of)
    if evaluated or any(node.operation.is_mark for node in order):
        return None
    alike = [node for node in order if node.leaf_or_self in source_leaves]
    if len({node.leaf_or_self for node in alike}) < len(source_leaves):
        return None
    leaves = [node for node in order if node.provenance is not None and node not in source_leaves]
    if leaves:
        dependence = _Dependence(source_leaves.union(sources, alike), through_gradients=True)
        if any(map(dependence.has, leaves)):
            return None
    return order


def _gradients(output: Node, sources: Sequence[Node], check_independence: bool) -> list[Node]:
    cotangents, graph = _derivatives(output, sources, closes=check_independence)
    if check_independence:
        missing = [x for x in sources if x.leaf_or_self not in cotangents]
        if missing:  # they may be reached through gradients
            opened, graph = _derivatives(output, missing, closes=False)
            cotangents |= opened
        for source in missing:
            if source.leaf_or_self not in cotangents:
                _check_independent(graph.output, source)
    return [_gradient_of(cotangents.get(source.leaf_or_self), source) for source in sources]


def _derivatives(
    output: Node, sources: Sequence[Node], *, closes: bool
) -> tuple[dict[Node, Node | None], _Connected]:
    """Return the gradient by each source on which the output depends, None if it is zero, and the
    output as an expression of the sources.

    With `closes`, intermediate results that are gradients count as constants.
    """
    graph = _connected(output, sources, closes)
    order = topological_until([graph.output], [*_arguments(graph.sources), *graph.closed])
    wanted = [node for node in order if graph.source_of(node) is not None]
    ends = [node for node in order if node in graph.lost]
    cotangents = {graph.output: constant(1, output.dtype)}
    reached = [*wanted, *ends]
    _propagate(order, cotangents, reached, (), _Recomputation(graph.closed, reached))
    for node in ends:
        if node in cotangents:
            raise _not_differentiable(node)
    derivatives: dict[Node, Node | None] = {}
    for node in wanted:
        key = graph.source_of(node)
        assert key is not None
        part, before = cotangents.get(node), derivatives.get(key)
        derivatives[key] = part if before is None else before if part is None else before + part
    return derivatives, graph


def _propagate(
    order: Sequence[Node],
    cotangents: dict[Node, Node],
    sources: Sequence[Node],
    ends: Collection[Node],
    recomputation: _Recomputation,
) -> None:
    """Accumulate the cotangents of the nodes through which the last ones depend on the sources.

    Propagation stops at the `ends`.
    """
    useful = _depending_on(order, sources, recomputation.closed)
    branches = _Branches(order, useful, ends, recomputation)
    # The cotangents of the results of loops and of functions with gradients of their own.
    results: dict[Node, dict[int, Node]] = {}
    for node in reversed(order):
        cotangent = cotangents.get(node)
        if node in branches.results:
            for source, derivative in branches.cotangents(node, cotangent):
                _add(cotangents, source, sum_to(derivative, source.shape))
            continue
        if node.operation is SCAN and node in results:
            parts = scan_cotangents(node, results.pop(node), useful, _propagated_step)
        elif node.operation is CUSTOM_CALL and node in results:
            parts = call_cotangents(node, results.pop(node))
        elif cotangent is None or node not in useful or node.is_leaf or node in ends:
            continue
        elif is_scan_result(node):
            _add(results.setdefault(node.inputs[0], {}), node.attributes["index"], cotangent)
            continue
        elif node.operation is CUSTOM_RESULT:
            value, call = node.inputs
            check_call(call, value, recomputation.sources, recomputation.closed)
            _add(results.setdefault(call, {}), node.attributes["index"], cotangent)
            continue
        elif node.operation is CHECKPOINT:
            parts = recomputation.cotangents(node, cotangent)
        else:
            parts = node.operation.vjp(node, cotangent)
        for source, part in zip(node.inputs, parts, strict=True):
            if part is not None and source in useful:
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
        useful: Collection[Node],
        ends: Collection[Node],
        outer: _Recomputation,
    ) -> None:
        self._useful, self._outer = useful, outer
        self.results = {x: x.inputs[1] for x in order if _is_result(x) and x not in ends}
        """The results of branches, and their branches."""
        self._first: dict[Node, Node] = {}
        for result, of in self.results.items():
            self._first.setdefault(of, result)
        self._reached: dict[Node, dict[Node, Node]] = {}

    def cotangents(self, result: Node, cotangent: Node | None) -> Iterable[tuple[Node, Node]]:
        """Add the cotangent of a result; return those of its operands, if no other result
        of the branch follows: all of its results then have their whole cotangents."""
        of = self.results[result]
        if cotangent is not None:
            _add(self._reached.setdefault(of, {}), result.inputs[0], cotangent)
        predicate, *inputs = of.inputs
        sources = [x for x in dict.fromkeys(inputs) if x in self._useful]
        if self._first[of] is not result or of not in self._reached or not sources:
            return []
        cotangents = self._reached.pop(of)
        given = list(cotangents.values())
        order = topological_until(cotangents, inputs)
        # Its own recomputation: values of others come after cotangents that it does not read.
        own = _Recomputation(self._outer.closed, self._outer.sources)
        _propagate(order, cotangents, sources, set(inputs), own)
        backwards = branch(predicate, [*inputs, *given])
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

    The results of one function share the recomputed values. `closed` are nodes that count as
    constants, `sources` those with respect to which the whole is differentiated.
    """

    def __init__(self, closed: set[Node], sources: Iterable[Node]) -> None:
        self.closed, self.sources = closed, set(sources)
        self._again: dict[tuple[Node, ...], dict[Node, Node]] = {}

    def cotangents(self, node: Node, cotangent: Node) -> Gradients:
        """Return the cotangents of the inputs of a checkpoint, by recomputing its value."""
        value, *inputs = node.inputs
        again = self._again.setdefault(tuple(inputs), {})
        if not again:
            count = node.attributes["recomputed"]
            again.update({x: recompute(x, cotangent) for x in inputs[:count]})
            again.update({x: x for x in inputs[count:]})
        for x in topological_until([value], inputs):
            if x not in again:
                sources = tuple([again[source] for source in x.inputs])
                again[x] = x.with_inputs(sources)
                if x in self.closed:
                    self.closed.add(again[x])
        ends = [again[x] for x in inputs]
        order = topological_until([again[value]], ends)
        cotangents = {again[value]: cotangent}
        _propagate(order, cotangents, ends, ends, self)
        # Once for an array that is several inputs: it is one node of the recomputation.
        return (None, *[cotangents.pop(end, None) for end in ends])


@final
@dataclass(frozen=True)
class _Connected:
    """An output as an expression of sources, also through evaluated arrays.

    sources   the sources in this expression
    known     the leaves with the values of the sources as they were given, or the sources
    rebuilt   the expressions in place of sources that depend on others, and these sources' leaves
    lost      the leaves through which the output depends on the sources and whose expressions
              cannot be built again
    closed    gradients that count as constants
    """

    output: Node
    sources: Sequence[Node]
    known: Collection[Node]
    rebuilt: Mapping[Node, Node]
    lost: Collection[Node]
    closed: set[Node]

    def source_of(self, node: Node) -> Node | None:
        """Return the leaf with the value of the source that a node of the expression is, or None if
        it is none."""
        leaf = self.rebuilt.get(node, node.leaf_or_self)
        return leaf if leaf in self.known else None


def _connected(output: Node, sources: Sequence[Node], closes: bool) -> _Connected:
    """Return the output as an expression of the sources.

    The gradient by a source includes what the output depends on through other sources. Expressions
    of those are therefore built again if they depend on a source. With `closes`, nothing is built
    again that only closed gradients are computed from.
    """
    source_leaves, ends = {node.leaf_or_self for node in sources}, _arguments(sources)
    order = topological_until([output], ends)
    alike = source_leaves.union(
        sources, [node for node in order if node.leaf_or_self in source_leaves]
    )
    dependence = _Dependence(alike, through_gradients=not closes)
    closed = set[Node]()

    def is_end(node: Node) -> bool:
        if closes and node.operation.is_gradient and node not in alike:
            closed.add(node)
        return node in ends or node in closed

    leaves = [node for node in alike if provenance_of(node) is not None]
    dependent = [] if len(source_leaves) < 2 else dependence.on_others(leaves)
    roots, kept = [output, *sources, *dependent], alike.difference(dependent)
    images, lost = with_expressions(roots, kept, dependence.search, is_end=is_end)
    images = without_short_loops(images, {*ends, *closed})
    count = len(sources) + 1
    rebuilt = dict(zip(images[count:], [node.leaf_or_self for node in dependent], strict=True))
    return _Connected(images[0], images[1:count], source_leaves, rebuilt, lost, closed)


@final
class _Dependence:
    """Which records depend on sources.

    sources             the nodes with the values of the sources
    through_gradients   if False, gradients depend on nothing
    """

    def __init__(self, sources: Collection[Node], *, through_gradients: bool) -> None:
        self._sources = set(sources)
        self._known = {node.leaf_or_self for node in self._sources}
        records = [provenance_of(node) for node in self._known]
        query: DependenceQuery | None = None
        if len(self._sources) == 1:
            (only,) = self._sources
            query = DependenceQuery.of(only, through_gradients=through_gradients)
        self.search = DependenceSearch(
            self.reads_source,
            through_gradients=through_gradients,
            through_stops=False,
            first_number=min([0 if x is None else x.sequence_number for x in records], default=0),
            query=query,
        )

    def has(self, leaf: Node) -> bool:
        """Return True if a leaf was computed from a source."""
        record = provenance_of(leaf)
        return record is not None and self.search.is_dependent(record)

    def reads_source(self, operand: RecordedOperand) -> bool:
        """Return True if a record reads a source."""
        return not self._sources.isdisjoint(operand.nodes())

    def on_others(self, leaves: Sequence[Node]) -> list[Node]:
        """Return the sources' leaves whose values were computed from other sources."""
        source_leaves, dependent = self._known, []
        for leaf in leaves:
            record, own = provenance_of(leaf), leaf.leaf_or_self

            def is_other(read: RecordedOperand, own: Node = own) -> bool:
                return any(
                    x.leaf_or_self in source_leaves and x.leaf_or_self is not own
                    for x in read.nodes()
                )

            search = replace(self.search, is_source=is_other, query=None, answers={})
            if record is not None and search.is_dependent(record):
                dependent.append(leaf)
        return dependent


def _arguments(sources: Sequence[Node]) -> set[Node]:
    """Return the sources that are arguments of a differentiated function.

    Their own expressions, which may be the pending steps of a long loop, are not part of the
    function.
    """
    return {node for node in sources if node.name == "argument"}


def _add(table: dict[CotangentKey, Node], key: CotangentKey, part: Node) -> None:
    table[key] = table[key] + part if key in table else part


def _not_differentiable(node: Node) -> MagmathError:
    """Return the error for a gradient through an array that cannot be computed again."""
    provenance = provenance_of(node)
    assert provenance is not None
    line = provenance.line
    where = f" at {line[0]}:{line[1]}" if line else ""
    return MagmathError(
        f"grad: the result depends on the array through one that was computed{where} and cannot be "
        f"computed again: {provenance.why_lost()}; compute the gradients before, in one call for "
        f"several arrays (mm.grad(loss, [w, b])), keep the operands, or compile the whole "
        f"(mm.compile); for what counts as a constant there is mm.stop_gradient(x)"
    )


def _check_independent(output: Node, source: Node) -> None:
    """Raise MagmathError if an output that does not depend on a source depends on an array from
    which the source was computed: a zero gradient is hardly intended then."""
    made_of = _ancestors(source) - {source, source.leaf_or_self}
    ancestor = next(iter(made_of & _ancestors(output)), None)
    if ancestor is not None:
        raise MagmathError(
            f"grad: the result does not depend on this array of shape {source.shape}, only on its "
            f"source of shape {ancestor.shape}, so the gradient would be zero; pass the array that "
            f"is used in the result (x[0] is a new array each time: write part = x[0] once; after "
            f"an update in place, x has a value that the result has not read: compute the gradient "
            f"before), or take a part of the gradient with respect to the source "
            f"(mm.grad(y, x)[0]); apply mm.stop_gradient to the source if the array is a constant"
        )


def _ancestors(node: Node) -> set[Node]:
    """Return the node and all nodes through which its value has gradients, including the existing
    ones of the provenance of evaluated nodes."""
    ancestors, stack = {node}, [node]
    while stack:
        last = stack.pop()
        is_end = last.name == "stop_gradient" or last.operation.is_gradient
        sources = [] if is_end else [last.leaf_or_self, *last.inputs]
        provenance = provenance_of(last)
        before = nodes_before(provenance, through_gradients=False) if provenance else ()
        for source in [*sources, *before]:
            numbers = source.name in ("scalar", "constant")
            if (
                source.dtype.kind in ("float", "complex")
                and not numbers
                and source not in ancestors
            ):
                ancestors.add(source)
                stack.append(source)
    return ancestors


def _depending_on(
    order: Sequence[Node], sources: Sequence[Node], closed: Collection[Node]
) -> set[Node]:
    """Return the nodes through which cotangents pass from the last nodes to the sources."""
    useful = {source for source in sources if varies(source)}
    for node in order:
        if node not in closed and any(source in useful for source in node.inputs) and varies(node):
            useful.add(node)
    return useful


def _gradient_of(cotangent: Node | None, source: Node) -> Node:
    """Return the gradient by a source from its cotangent, None if there is none."""
    if cotangent is None:
        return apply(INDEPENDENT, full(source.shape, constant(0, source.dtype)))
    return conj(cotangent if cotangent.shape == source.shape else full(source.shape, cotangent))
