"""Rolls of one array are views of one copy with margins: their values, and what is copied."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import current
from magmath.engine import session
from magmath.graph import Graph
from magmath.passes.share_margins import MARGIN_SHARE, share_margins
from magmath.passes.simplify import simplify
from magmath.program.instructions import Call, Program

POOLS = [("inline", 1), ("planned", 1), ("shared", 2), ("messages", 3), ("shared", 4), ("exact", 2)]
POOL_NAMES = [f"{n}-{kind}" for kind, n in POOLS]
EXTENT = 2 * MARGIN_SHARE


@st.composite
def rolls(draw: st.DrawFn) -> tuple[tuple[int, ...], list[list[tuple[int, int]]]]:
    """A shape, and for each of some steps the rolls (shift, axis) that are added to the array."""
    ndim = draw(st.integers(1, 3))
    shape = tuple(draw(st.sampled_from([1, 2, 5, 16, 33])) for _ in range(ndim))
    near = st.tuples(st.integers(-2, 2), st.integers(0, ndim - 1))
    far = st.tuples(st.integers(-40, 40), st.integers(0, ndim - 1))
    steps = draw(st.lists(st.lists(near | near | far, min_size=1, max_size=6), max_size=3))
    return shape, steps


def _stepped(lib: Any, x: Any, steps: list[list[tuple[int, int]]]) -> Any:
    """Some steps, in each of which rolls of the array, one after the other and by several axes at
    once, are added to it."""
    for step in steps:
        moved, total = x, x
        for shift, axis in step:
            moved = lib.roll(moved, shift, axis)
            total = total * 3 + moved - lib.roll(x, (shift, -shift), (axis, 0))
        x = total
    return x


@pytest.mark.parametrize("pool", POOLS, ids=POOL_NAMES)
@given(drawn=rolls(), data=st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_random_rolls_agree_with_numpy(
    pool: tuple[str, int], drawn: Any, data: st.DataObject
) -> None:
    shape, steps = drawn
    values = np.random.default_rng(3).integers(-9, 9, shape)
    with current(*pool):
        layout = mm.Layout.split(0) if data.draw(st.booleans()) and pool[1] > 1 else None
        result = _stepped(mm, mm.asarray(values, layout=layout), steps)
        np.testing.assert_array_equal(np.asarray(result), _stepped(np, values, steps))


def _torus(lib: Any, x: Any, steps: int) -> Any:
    """Steps of a stencil of nine points on a torus."""
    for _ in range(steps):
        around = sum(lib.roll(x, (i, j), axis=(0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1))
        x = around * 5 - x
    return x


def _program(x: mm.Array) -> Program:
    engine = session.engine()
    return engine.compile(engine.pending_graph(Graph((x.node,)))).program


def test_a_stencil_of_rolls_copies_the_edges_alone() -> None:
    values = np.random.default_rng(1).integers(0, 9, (EXTENT, EXTENT))
    with current("planned", 1):
        x = _torus(mm, mm.asarray(values), 3)
        program = _program(x)
        calls = [i for i in program.instructions if isinstance(i, Call)]
        counts = Counter(call.operation for call in calls)
        assert counts["slice"] == 0, "rolls are views"
        assert counts["concat"] == 2 * 3, "margins along both axes, in each step"
        slots = program.slots
        wide = [slots[call.out] for call in calls if call.operation == "concat"]
        assert {slot.shape for slot in wide} == {(EXTENT + 2, EXTENT), (EXTENT + 2, EXTENT + 2)}
        inside = [slot for slot in slots if slot.start is not None and slot.shape == values.shape]
        computed = {call.out for call in calls if call.operation == "subtract"}
        stored_inside = [i for i in computed if slots[i] in inside]
        assert len(stored_inside) == 2, "the arrays between the steps are computed in their margins"
        np.testing.assert_array_equal(x.numpy(), _torus(np, values, 3))


def test_one_roll_is_a_copy_without_margins() -> None:
    with current("planned", 1):
        program = _program(mm.roll(mm.asarray(np.arange(EXTENT)) + 1, 1) * 2)
    calls = [i.operation for i in program.instructions if isinstance(i, Call)]
    assert calls.count("concat") == 1
    assert all(slot.shape in ((), (1,), (EXTENT - 1,), (EXTENT,)) for slot in program.slots)


def test_far_rolls_and_results_stay_as_they_are() -> None:
    """A margin of half of the array would double it, and a result has memory of its own."""
    with current("planned", 1):
        environment = session.engine().environment
        x = mm.asarray(np.arange(EXTENT))
        far = mm.roll(x, EXTENT // 2) * mm.roll(x, EXTENT // 3)
        near = Graph((mm.roll(x, 1).node, mm.roll(x, -1).node))
        for graph in (simplify(Graph((far.node,))), simplify(near)):
            assert share_margins(graph, environment) is graph


def test_steps_whose_arrays_are_all_results() -> None:
    """Arrays that the user holds are not stored inside of margins."""
    values = np.random.default_rng(2).random((EXTENT, EXTENT + 3))
    for kind, workers in POOLS:
        with current(kind, workers):
            kept, known = [mm.asarray(values)], [values]
            for _ in range(3):
                for held, lib in ((kept, mm), (known, np)):
                    x: Any = held[-1]
                    held.append(x + 0.25 * (lib.roll(x, 1, 0) + lib.roll(x, -1, 0) - 2 * x))  # type: ignore[attr-defined]
            mm.evaluate(*kept[1:])
            for x, y in zip(kept, known, strict=True):
                np.testing.assert_array_equal(x.numpy(), y)
