"""Slices across the borders of workers are views of one copy with halos: their values, and what is
exchanged."""

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
from magmath.program.instructions import Call, Program, Redistribute

POOLS = [
    ("planned", 1), ("shared", 2), ("shared", 3), ("messages", 2), ("overlapped", 3), ("hosts", 4),
    ("exact", 2),
]  # fmt: skip
POOL_NAMES = [f"{n}-{kind}" for kind, n in POOLS]
EXTENT = 64


@st.composite
def stencils(draw: st.DrawFn) -> tuple[tuple[int, ...], list[list[tuple[int, ...]]], list[str]]:
    """A shape, the offsets of the slices that each step adds, and how each step ends."""
    ndim = draw(st.integers(1, 2))
    shape = tuple(draw(st.sampled_from([13, 24, 40, 65])) for _ in range(ndim))
    offset = st.tuples(*[st.sampled_from([0, 1, 1, 2, 3])] * ndim)
    steps = draw(st.lists(st.lists(offset, min_size=1, max_size=5), min_size=1, max_size=3))
    ends = [draw(st.sampled_from(["inside", "new", "updated", "shrunk"])) for _ in steps]
    return shape, steps, ends


def _stepped(lib: Any, x: Any, steps: list[list[tuple[int, ...]]], ends: list[str]) -> list[Any]:
    """Steps in which slices of one array at several offsets are combined. The result is written
    into the array, into a copy or a new one, or is the next array."""
    results = []
    for offsets, end in zip(steps, ends, strict=True):
        most = 3
        total = 0
        for i, offset in enumerate(offsets):
            part = tuple([slice(o, n - most + o) for o, n in zip(offset, x.shape, strict=True)])
            total = total * 2 - (x[part] if i % 2 else x[part] * 3 + 1)
        inner = tuple([slice(1, n - most + 1) for n in x.shape])
        if end == "inside":
            x = x * 1
            x[inner] = total
        elif end == "new":
            y = lib.zeros(x.shape, dtype=x.dtype)
            y[inner] = total
            x = y - x
        elif end == "updated":
            x = x + 1
            x[inner] += total
            results.append(x)
        elif min(total.shape) > most:
            x = total
        results.append(total)
    return [x, *results]


@pytest.mark.parametrize("pool", POOLS, ids=POOL_NAMES)
@given(drawn=stencils(), data=st.data())
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
def test_random_stencils_agree_with_numpy(
    pool: tuple[str, int], drawn: Any, data: st.DataObject
) -> None:
    shape, steps, ends = drawn
    values = np.random.default_rng(3).integers(-9, 9, shape)
    known = _stepped(np, values.copy(), steps, ends)
    with current(*pool):
        axis = data.draw(st.sampled_from([None, *range(len(shape))]))
        layout = None if axis is None or pool[1] == 1 else mm.Layout.split(axis)
        actual = _stepped(mm, mm.asarray(values, layout=layout) * 1, steps, ends)
        if data.draw(st.booleans()):
            mm.evaluate(*actual)
        for x, y in zip(actual, known, strict=True):
            np.testing.assert_array_equal(x.numpy(), y)


def _program(x: mm.Array) -> Program:
    engine = session.engine()
    return engine.compile(engine.pending_graph(Graph((x.node,)))).program


def _moves(program: Program) -> list[Redistribute]:
    return [i for i in program.instructions if isinstance(i, Redistribute)]


def _heat(lib: Any, u: Any, steps: int) -> Any:
    """Steps of the heat equation with fixed values at the borders."""
    for _ in range(steps):
        v = u * 1.0
        v[1:-1, 1:-1] += 0.125 * (
            u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]
        )
        u = v
    return u


def test_a_stencil_exchanges_its_halos_once_in_each_step() -> None:
    values = np.random.default_rng(1).random((512, 512))
    with current("shared", 2):
        x = _heat(mm, mm.asarray(values, layout=mm.Layout.split(0)), 3)
        program = _program(x)
        with_halo = [m for m in _moves(program) if program.slots[m.target].layout.has_overlaps]
        assert len(with_halo) == len(_moves(program)) == 3
        inside = [program.root(m.source) == program.root(m.target) for m in with_halo]
        assert inside == [False, True, True], "only the given array is copied"
        counts = Counter(i.operation for i in program.instructions if isinstance(i, Call))
        assert counts["slice"] == 0, "slices are views"
        np.testing.assert_array_equal(x.numpy(), _heat(np, values, 3))


def test_rolls_on_several_workers_exchange_edges_alone() -> None:
    values = np.random.default_rng(1).integers(0, 9, (EXTENT, EXTENT))
    with current("shared", 2):
        x = mm.asarray(values, layout=mm.Layout.split(0)) + 1
        y = mm.roll(x, 1, 0) + mm.roll(x, -1, 0) + mm.roll(x, 1, 1) + mm.roll(x, (1, -1), (0, 1))
        program = _program(y)
        for move in _moves(program):
            source, target = program.slots[move.source], program.slots[move.target]
            is_edge = source.shape[0] == 1
            assert is_edge or (target.layout.has_overlaps and target.shape[0] == EXTENT + 2)
        x = values + 1
        known = np.roll(x, 1, 0) + np.roll(x, -1, 0) + np.roll(x, 1, 1)
        np.testing.assert_array_equal(y.numpy(), known + np.roll(x, (1, -1), (0, 1)))


def test_far_slices_are_moved_each_on_its_own() -> None:
    """A halo of half of the array would double it."""
    values = np.arange(EXTENT)
    with current("shared", 2):
        x = mm.asarray(values, layout=mm.Layout.split(0)) * 1
        y = x[EXTENT // 2 :] * 2 + x[: EXTENT // 2] - x[EXTENT // 4 : 3 * EXTENT // 4]
        program = _program(y)
        assert not any(slot.layout.has_overlaps for slot in program.slots)
        half, quarter = EXTENT // 2, EXTENT // 4
        known = values[half:] * 2 + values[:half] - values[quarter:-quarter]
        np.testing.assert_array_equal(y.numpy(), known)


def test_small_replicated_results_need_no_barriers() -> None:
    """Whatever is computed of a few elements that all workers have stays with all workers."""
    with current("shared", 2):
        window = mm.cos(mm.arange(7) * 0.5) * 2 + 1
        program = _program((window[1:6].reshape(5, 1) * window[1:6]).sum())
        assert not any(not isinstance(i, Call) for i in program.instructions)


@pytest.mark.parametrize("terms", [5, 300])
def test_long_sums_of_slices(terms: int) -> None:
    values = np.arange(4000)
    with current("shared", 2):
        x = mm.asarray(values, layout=mm.Layout.split(0)) * 1
        actual = sum(x[1 + i % 7 : 3990 + i % 7] for i in range(terms)) - x[9:3998]
        known = sum(values[1 + i % 7 : 3990 + i % 7] for i in range(terms)) - values[9:3998]
        np.testing.assert_array_equal(actual.numpy(), known)
