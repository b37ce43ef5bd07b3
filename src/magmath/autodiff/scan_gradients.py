"""The gradient of a loop with a fixed number of steps: another loop, over its steps in reverse.

A step of the backward loop receives the cotangents of the next states, and returns those of the
states. It adds up the cotangents of the captured arrays, those of half types in float32, and
collects those of the rows. What it reads of the forward step, its residuals, the forward loop
collects (as `jax.lax.scan` does); what is the same in all steps is computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import final

from magmath.autodiff.differentiability import has_cotangent
from magmath.autodiff.scan_residuals import Residuals, dependent_parts
from magmath.autodiff.step_sums import is_summed_later, operands_of_sum, summed_over_steps
from magmath.core.dtypes import DType, compute_dtype
from magmath.graph import Node, Shape
from magmath.graph.graph import dependents, substituted, topological_until
from magmath.graph.operation import Gradients
from magmath.ops.counted_loops import (
    ScanBody,
    body_argument,
    scan_results,
)
from magmath.ops.creation import full
from magmath.ops.elementwise import add, astype
from magmath.ops.leaves import constant
from magmath.ops.sums import broadcast_to

Propagate = Callable[[Sequence[Node], dict[Node, Node], Sequence[Node]], None]
"""(nodes in order, cotangents, sources) → nothing; adds the cotangents of the other nodes."""


def scan_cotangents(
    loop: Node, reached: Mapping[int, Node], active: Collection[Node], propagate: Propagate
) -> Gradients:
    """Return the cotangents of the inputs of a loop.

    reached  the cotangents of its results, by their numbers
    active   the nodes that depend on the sources of the gradient
    """
    return _BackwardLoop(loop, reached, active, propagate).cotangents()


@final
class _BackwardLoop:
    """The loop that computes the cotangents of another loop's inputs."""

    def __init__(
        self,
        loop: Node,
        reached: Mapping[int, Node],
        active: Collection[Node],
        propagate: Propagate,
    ) -> None:
        self._loop, self._reached = loop, reached
        self._body: ScanBody = loop.attributes["body"]
        body = self._body
        self._leaves = (*body.states, *body.rows, *body.captured)
        self._inputs = dict(zip(self._leaves, loop.inputs, strict=True))
        """The inputs of the loop, by the leaves of a step; initial values by the states."""
        self._sources = {x for x in self._leaves if self._inputs[x] in active and has_cotangent(x)}
        order = topological_until(body.outputs, [*self._leaves, body.number])
        active_leaves = _active_leaves(body, order, self._sources)
        self._states = {
            x: body_argument(x.shape, x.dtype) for x in body.states if x in active_leaves
        }
        """The placeholders for the cotangents of the next states, by the states."""
        count = len(body.states)
        self._of_collected = {
            i: body_argument(y.shape, y.dtype)
            for i, y in enumerate(body.collected)
            if count + i in reached
        }
        """The placeholders for the cotangents of collected values, by their numbers."""
        self._placeholders = [*self._states.values(), *self._of_collected.values()]
        self._cotangents: dict[Node, Node] = {}
        following = dict(zip(body.states, body.following, strict=True))
        for state, cotangent in self._states.items():
            self._add(following[state], cotangent)
        for i, cotangent in self._of_collected.items():
            self._add(body.collected[i], cotangent)
        propagate(order, self._cotangents, list(active_leaves))

    def _add(self, node: Node, part: Node) -> None:
        before = self._cotangents.get(node)
        self._cotangents[node] = part if before is None else add(before, part)

    def cotangents(self) -> Gradients:
        """Return the cotangents of the loop's inputs."""
        body = self._body
        of_rows, of_captured = self._of_sources(body.rows), self._of_sources(body.captured)
        late = self._summed_later(of_captured)
        sums = {
            x: body_argument(x.shape, compute_dtype(x.dtype)) for x in of_captured if x not in late
        }
        following = [_of_shape(self._cotangents.get(x), x.shape, x.dtype) for x in self._states]
        following += [add(total, astype(of_captured[x], total.dtype)) for x, total in sums.items()]
        of_sums = [x for part in late.values() for x in operands_of_sum(part)]
        stacked = dict.fromkeys([*of_rows.values(), *of_sums])
        residuals = Residuals(body, [*following, *stacked], [*self._placeholders, *sums.values()])
        known = {*residuals.stored, *residuals.rows, *self._of_collected.values()}
        collected = [x for x in stacked if x not in known or x in of_rows.values()]
        step = ScanBody(
            [*self._states.values(), *sums.values()],
            [*residuals.stored.values(), *residuals.rows, *self._of_collected.values()],
            list(residuals.invariant.values()),
            body.number,
            residuals.replaced(following),
            residuals.replaced(collected),
        )
        rows = self._stacked_rows(residuals)
        results = iter(self._results(step, sums.values(), rows, residuals))
        cotangents = {x: astype(next(results), x.dtype) for x in (*self._states, *sums)}
        rows |= {x: next(results) for x in collected}
        cotangents |= {x: rows[part] for x, part in of_rows.items()}
        cotangents |= {x: summed_over_steps(part, rows) for x, part in late.items()}
        return tuple([cotangents.get(x) if x in self._sources else None for x in self._leaves])

    def _of_sources(self, leaves: Iterable[Node]) -> dict[Node, Node]:
        """Return the cotangents in one step of those leaves that are sources and have one."""
        return {
            x: _of_shape(self._cotangents[x], x.shape, x.dtype)
            for x in leaves
            if x in self._sources and x in self._cotangents
        }

    def _summed_later(self, cotangents: Mapping[Node, Node]) -> dict[Node, Node]:
        """Return those cotangents of captured arrays whose sum is computed after the loop."""
        parts = list(cotangents.values())
        varying = dependent_parts(parts, self._placeholders)
        varying |= dependent_parts(parts, [*self._body.states, *self._body.rows])
        return {x: part for x, part in cotangents.items() if is_summed_later(part, varying)}

    def _stacked_rows(self, residuals: Residuals) -> dict[Node, Node]:
        """Return the stacked rows of the backward loop, by what they are in one step."""
        loop, count = self._loop, len(self._body.states)
        stored = self._stored_values(list(residuals.stored))
        rows = dict(zip(residuals.stored, stored, strict=True))
        rows |= {x: self._inputs[x] for x in residuals.rows}
        for i, x in self._of_collected.items():
            shape = (loop.attributes["steps"], *x.shape)
            rows[x] = _of_shape(self._reached[count + i], shape, x.dtype)
        return rows

    def _results(
        self, step: ScanBody, sums: Iterable[Node], rows: Mapping[Node, Node], residuals: Residuals
    ) -> list[Node]:
        """Return the results of the backward loop: final states and sums, then stacked values."""
        loop = self._loop
        of_finals = {x: self._reached.get(i) for i, x in enumerate(self._body.states)}
        inputs = [
            *[_of_shape(of_finals[x], x.shape, x.dtype) for x in self._states],
            *[full(x.shape, constant(0, x.dtype)) for x in sums],
            *rows.values(),
            *substituted(list(residuals.invariant), self._inputs),
        ]
        reverse = not loop.attributes["reverse"]
        return scan_results(step, loop.attributes["steps"], inputs, loop.line, reverse=reverse)

    def _stored_values(self, nodes: Sequence[Node]) -> list[Node]:
        """Return the stacked values of nodes of the forward step, which the forward loop collects
        too."""
        if not nodes:
            return []
        body, loop = self._body, self._loop
        larger = replace(body, collected=[*body.collected, *nodes], extends=body)
        results = scan_results(
            larger, loop.attributes["steps"], loop.inputs, loop.line,
            reverse=loop.attributes["reverse"],
        )  # fmt: skip
        return results[len(body.outputs) :]


def _active_leaves(
    body: ScanBody, order: Sequence[Node], sources: Collection[Node]
) -> dict[Node, None]:
    """Return the sources among the leaves of a step, and the states that depend on them in some
    step."""
    active = dict.fromkeys(sources)
    while True:
        dependent = dependents(order, active)
        more = [
            state for state, following in zip(body.states, body.following, strict=True)
            if following in dependent and state not in active and has_cotangent(state)
        ]  # fmt: skip
        if not more:
            return active
        active |= dict.fromkeys(more)


def _of_shape(cotangent: Node | None, shape: Shape, dtype: DType) -> Node:
    if cotangent is None:
        return full(shape, constant(0, dtype))
    return broadcast_to(cotangent, shape)
