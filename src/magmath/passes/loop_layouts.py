"""Loop layouts: chooses how the arrays of a loop with a fixed number of steps are divided.

All steps run in the same layouts. A few divisions of the states and of the rows are compared by the
predicted seconds of one step, which is planned without building a plan (`passes/plan_seconds.py`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final, final

from magmath.core.bounded_memo import store_bounded
from magmath.graph import Graph, Node, Shape
from magmath.layout import Layout
from magmath.ops.counted_loops import ScanBody
from magmath.ops.leaves import input_leaf
from magmath.passes.environment import Environment
from magmath.passes.plan_seconds import PlanSeconds
from magmath.passes.simplify import simplify

MAX_CACHED_CHOICES: Final = 256
AXES: Final = (0, 1, None)
"""The axes of a state, and of a row, along which it may be split; None: every worker has it whole.
The first of equally fast divisions is chosen."""


@final
@dataclass(frozen=True)
class LoopLayouts:
    """The layouts of the arrays of a loop; those of rows and collected values have all steps."""

    states: Sequence[Layout]
    rows: Sequence[Layout]
    captured: Sequence[Layout]
    collected: Sequence[Layout]


def loop_layouts(
    body: ScanBody, steps: int, input_layouts: Sequence[Layout], environment: Environment
) -> LoopLayouts:
    """Return the fastest layouts of a loop with inputs in these layouts; cached for steps of the
    same structure."""
    if environment.workers == 1:
        whole = environment.replicated
        _, rows, captured = body.divided(input_layouts)
        collected = [whole((steps, *x.shape)) for x in body.collected]
        return LoopLayouts([whole(x.shape) for x in body.states], rows, captured, collected)
    step = _LoopStep(body, steps, input_layouts, environment)
    key = step.key, steps, tuple(input_layouts), environment
    chosen = _chosen.get(key)
    if chosen is None:
        chosen = step.fastest()
        store_bounded(_chosen, key, chosen, MAX_CACHED_CHOICES)
    return chosen


_chosen: dict[Hashable, LoopLayouts] = {}


@final
class _LoopStep:
    """The step of a loop, and the layouts to choose from."""

    def __init__(
        self, body: ScanBody, steps: int, input_layouts: Sequence[Layout], environment: Environment
    ) -> None:
        self._environment, self._steps = environment, steps
        self._input_layouts = body.divided(input_layouts)
        leaves = [self._leaf(x) for x in (*body.states, *body.rows, *body.captured)]
        self._states, self._rows, self._captured = body.divided(leaves)
        outputs = body.applied(self._states, self._rows, self._captured, self._leaf(body.number))
        self._graph = Graph(tuple(outputs), (*self._states, *[None for _ in body.collected]))
        self._inputs = leaves

    @property
    def key(self) -> Hashable:
        """Equal for steps of the same structure, whose arrays have the same places."""
        position = {leaf: i for i, leaf in enumerate(self._graph.leaves)}
        places = tuple([position.get(leaf) for leaf in self._inputs])
        return self._graph.key, places, len(self._states), len(self._rows)

    def _leaf(self, x: Node) -> Node:
        return input_leaf(x.shape, x.dtype, self._environment.replicated(x.shape), None)

    def fastest(self) -> LoopLayouts:
        """Return the layouts of the fastest of the compared divisions."""
        environment, (*_, captured) = self._environment, self._input_layouts
        whole = [environment.replicated(x.shape, shared=True) for x in self._captured]
        self._graph = simplify(self._graph)
        self._plan = PlanSeconds(self._graph, environment)
        divided = [self._divided(*axes) for axes in product(AXES, AXES, (captured, whole))]
        return min(divided, key=lambda pair: pair[0])[1]

    def _divided(
        self, of_states: int | None, of_rows: int | None, captured: Sequence[Layout]
    ) -> tuple[float, LoopLayouts]:
        """Return the predicted seconds of a step with states and rows split along these axes, and
        the layouts."""
        states = [self._layout(x.shape, of_states) for x in self._states]
        rows = [self._layout(x.shape, of_rows) for x in self._rows]
        leaves = dict(zip(self._inputs, (*states, *rows, *captured), strict=True))
        seconds, layouts = self._plan.placement(leaves)
        results = self._graph.outputs[len(states) :]
        stacked = [self._stacked(x.shape, layouts[x]) for x in results]
        scanned = [self._stacked(x.shape, y) for x, y in zip(self._rows, rows, strict=True)]
        have = [y for part in self._input_layouts for y in part]
        want = (*states, *scanned, *captured)
        moves = [self._move(leaf, x, y) for leaf, x, y in zip(leaves, have, want, strict=True)]
        return (
            seconds + sum(moves) / self._steps,
            LoopLayouts(states, scanned, captured, stacked),
        )

    def _layout(self, shape: Shape, axis: int | None) -> Layout:
        """Return the layout of an array that is split along an axis if it has parts for all.

        Programs store other arrays once for all workers of a host, except 0-d ones.
        """
        mesh = self._environment.mesh
        if axis is None or len(shape) <= axis or shape[axis] < mesh.size:
            return self._environment.replicated(shape, shared=shape != ())
        return Layout.even(shape, mesh, axis)

    def _stacked(self, shape: Shape, layout: Layout) -> Layout:
        """Return the layout of the values of all steps, of which one has this layout."""
        axes = [i for i in range(len(shape)) if layout.mesh_axis_of(i) is not None]
        is_even = len(axes) == 1 and layout == self._layout(shape, axes[0])
        return self._layout((self._steps, *shape), axes[0] + 1 if is_even else None)

    def _move(self, leaf: Node, have: Layout, want: Layout) -> float:
        """Return the seconds of the copy in another layout that a loop begins with."""
        if have == want:
            return 0.0
        state = self._plan.decisions.state(have, leaf.dtype.itemsize, True)
        return self._plan.decisions.move(state, want)[0]
