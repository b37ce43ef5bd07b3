"""The gradient of a loop with a fixed number of steps: another loop, over its steps in reverse.

A step of the backward loop receives the cotangents of the next states, and returns those of the
states. It adds up the cotangents of the captured arrays, and collects those of the rows. What it
reads of the forward step, its residuals, the forward loop collects (as `jax.lax.scan` does); what
is the same in all steps is computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import final

from magmath.autodiff.scan_residuals import Residuals, depending
from magmath.autodiff.step_sums import is_summed_later, operands_of_sum, summed_over_steps
from magmath.core.dtypes import DType
from magmath.graph import Node, Shape
from magmath.graph.graph import topological_until
from magmath.graph.operation import Gradients
from magmath.graph.provenance.rebuild import rebuilt
from magmath.ops.counted_loops import (
    SCAN,
    ScanBody,
    body_argument,
    is_scan_result,
    is_short,
    scan_results,
    unrolled,
)
from magmath.ops.creation import full
from magmath.ops.elementwise import add
from magmath.ops.leaves import constant
from magmath.ops.sums import broadcast_to

Propagate = Callable[[Sequence[Node], dict[Node, Node], Sequence[Node]], None]
"""(nodes in order, cotangents, sources) → nothing; adds the cotangents of the other nodes."""


def without_short_loops(roots: Sequence[Node], ends: Collection[Node]) -> list[Node]:
    """Return expressions, down to the `ends`, in which short loops are unrolled."""
    order = topological_until(roots, ends)
    short = {x for x in order if x.operation is SCAN and is_short(x)}
    if not short:
        return list(roots)
    new: dict[Node, Node] = {}
    results: dict[Node, list[Node]] = {}
    for node in order:
        if node in ends:
            new[node] = node
        elif is_scan_result(node) and node.inputs[0] in short:
            loop = new[node.inputs[0]]
            if loop not in results:
                results[loop] = unrolled(loop)
            new[node] = results[loop][node.attributes["index"]]
        else:
            new[node] = node.with_inputs(tuple([new[x] for x in node.inputs]))
    return [new[node] for node in roots]


def scan_cotangents(
    loop: Node, reached: Mapping[int, Node], useful: Collection[Node], propagate: Propagate
) -> Gradients:
    """Return the cotangents of the inputs of a loop.

    reached  the cotangents of its results, by their numbers
    useful   the nodes that depend on the sources of the gradient
    """
    return _BackwardLoop(loop, reached, useful, propagate).cotangents()


@final
class _BackwardLoop:
    """The loop that computes the cotangents of another loop's inputs."""

    def __init__(
        self,
        loop: Node,
        reached: Mapping[int, Node],
        useful: Collection[Node],
        propagate: Propagate,
    ) -> None:
        self._loop, self._reached = loop, reached
        self._body: ScanBody = loop.attributes["body"]
        body = self._body
        leaves = (*body.states, *body.rows, *body.captured)
        self._wanted = {
            leaf for leaf, x in zip(leaves, loop.inputs, strict=True)
            if x in useful and _is_differentiable(leaf)
        }  # fmt: skip
        order = topological_until(body.outputs, [*leaves, body.number])
        self._active = _active(body, order, self._wanted)
        self._states = {
            x: body_argument(x.shape, x.dtype) for x in body.states if x in self._active
        }
        """The placeholders for the cotangents of the next states, by the states."""
        count = len(body.states)
        self._rows = {
            i: body_argument(y.shape, y.dtype)
            for i, y in enumerate(body.collected)
            if count + i in reached
        }
        """The placeholders for the cotangents of collected values, by their numbers."""
        self._given = [*self._states.values(), *self._rows.values()]
        self._cotangents: dict[Node, Node] = {}
        following = dict(zip(body.states, body.following, strict=True))
        for state, given in self._states.items():
            self._add(following[state], given)
        for i, given in self._rows.items():
            self._add(body.collected[i], given)
        propagate(order, self._cotangents, list(self._active))

    def _add(self, node: Node, part: Node) -> None:
        before = self._cotangents.get(node)
        self._cotangents[node] = part if before is None else add(before, part)

    def _found(self, leaves: Iterable[Node]) -> dict[Node, Node]:
        """Return the cotangents of the wanted ones of these leaves that have one."""
        found = {x: self._cotangents.get(x) for x in leaves if x in self._wanted}
        return {
            x: _of_shape(part, x.shape, x.dtype) for x, part in found.items() if part is not None
        }

    def cotangents(self) -> Gradients:
        """Return the cotangents of the loop's inputs."""
        body, loop = self._body, self._loop
        rows, captured = self._found(body.rows), self._found(body.captured)
        varying = depending([*captured.values()], self._given)
        varying |= depending([*captured.values()], [*body.states, *body.rows])
        late = {x: part for x, part in captured.items() if is_summed_later(part, varying)}
        sums = {x: body_argument(x.shape, x.dtype) for x in captured if x not in late}
        following = [_of_shape(self._cotangents.get(x), x.shape, x.dtype) for x in self._states] + [
            add(sums[x], captured[x]) for x in sums
        ]
        read_later = [x for part in late.values() for x in operands_of_sum(part)]
        stacked = dict.fromkeys([*rows.values(), *read_later])
        read = Residuals(body, [*following, *stacked], [*self._given, *sums.values()])
        known = {*read.residuals, *read.rows, *self._rows.values()}
        collected = [x for x in stacked if x not in known or x in rows.values()]
        _, scanned, arrays = body.divided(loop.inputs)
        outer = dict(zip((*body.rows, *body.captured), (*scanned, *arrays), strict=True))
        backward = ScanBody(
            [*self._states.values(), *sums.values()],
            [*read.residuals.values(), *read.rows, *self._rows.values()],
            list(read.invariant.values()),
            body.number,
            read.replaced(following),
            read.replaced(collected),
        )
        count, steps = len(body.states), loop.attributes["steps"]
        last = {x: self._reached.get(i) for i, x in enumerate(body.states) if x in self._states}
        table = dict(zip(read.residuals, self._residuals(list(read.residuals)), strict=True))
        table |= {x: outer[x] for x in read.rows}
        for i, x in self._rows.items():
            table[x] = _of_shape(self._reached[count + i], (steps, *x.shape), x.dtype)
        inputs = [
            *[_of_shape(x, state.shape, state.dtype) for state, x in last.items()],
            *[full(x.shape, constant(0, x.dtype)) for x in sums],
            *table.values(),
            *rebuilt(list(read.invariant), outer),
        ]
        reverse = not loop.attributes["reverse"]
        results = iter(scan_results(backward, steps, inputs, loop.line, reverse=reverse))
        found = {x: next(results) for x in (*self._states, *sums)}
        table |= {x: next(results) for x in collected}
        found |= {x: table[part] for x, part in rows.items()}
        found |= {x: summed_over_steps(part, table) for x, part in late.items()}
        leaves = (*body.states, *body.rows, *body.captured)
        return tuple([found.get(x) if x in self._wanted else None for x in leaves])

    def _residuals(self, residuals: Sequence[Node]) -> list[Node]:
        """Return the stacked values of nodes of the forward step."""
        if not residuals:
            return []
        body, loop = self._body, self._loop
        larger = replace(body, collected=[*body.collected, *residuals], extends=body)
        found = scan_results(
            larger, loop.attributes["steps"], loop.inputs, loop.line,
            reverse=loop.attributes["reverse"],
        )  # fmt: skip
        return found[len(body.outputs) :]


def _active(body: ScanBody, order: Sequence[Node], wanted: Collection[Node]) -> dict[Node, None]:
    """Return the wanted leaves of a step, and the states that depend on them in some step."""
    active = dict.fromkeys(wanted)
    while True:
        dependent = depending(order, active)
        more = [
            state for state, following in zip(body.states, body.following, strict=True)
            if following in dependent and state not in active and _is_differentiable(state)
        ]  # fmt: skip
        if not more:
            return active
        active |= dict.fromkeys(more)


def _is_differentiable(node: Node) -> bool:
    return node.dtype.is_floating or node.dtype.kind == "complex"


def _of_shape(cotangent: Node | None, shape: Shape, dtype: DType) -> Node:
    if cotangent is None:
        return full(shape, constant(0, dtype))
    return broadcast_to(cotangent, shape)
