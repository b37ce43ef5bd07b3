"""Variables: where they stay, what follows them, what a failed update leaves."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import magmath as mm
from arrays import check
from engines import current
from magmath.errors import (
    ShapeError,
)
from magmath.runtime import Pool


@pytest.mark.parametrize("look", [np.asarray, str, mm.Array.tolist])
def test_an_update_that_fails_is_told_once(every_pool: Pool, look: Callable[[Any], Any]) -> None:
    """The array is what it was before, whatever was done to it after; other arrays are updated."""
    a, b = mm.asarray([1.0, 2.0]), mm.asarray([5.0, 5.0])
    bad = mm.linalg.solve(mm.zeros((2, 2)), b)
    a += 1
    a *= 2
    a += bad
    a -= 7
    b += 1
    c = a + b
    with pytest.raises(np.linalg.LinAlgError, match="solve: the matrix is singular"):
        look(a)
    for _ in range(2):
        with pytest.raises(np.linalg.LinAlgError):
            np.asarray(c)
    check(a, np.float32([4, 6]))
    check(b, np.float32([6, 6]))
    a += b
    check(a, np.float32([10, 12]))


@pytest.mark.parametrize("worker", [0, -1])
def test_variables_stay_where_they_are(every_pool: Pool, worker: int) -> None:
    """Whatever they are given, and wherever that lies."""
    place = mm.Layout.on(worker % every_pool.workers)
    start, other = np.arange(300.0), mm.asarray(np.ones(300), layout=mm.Layout.split(0))
    v = mm.variable("v", mm.asarray(start, layout=mm.Layout.split(0)), layout=place)
    y = v * 2
    updates: list[Callable[[], object]] = [
        lambda: operator.iadd(v, other),
        lambda: operator.imul(v, mm.sin(other) + other),
        lambda: v.set(other * 3),
        lambda: mm.optim.GradientDescent(0.5).minimize(mm.sum(v * other), [v]),
    ]
    expected = [start + 1, (start + 1) * (np.sin(1) + 1), np.full(300, 3.0), np.full(300, 2.5)]
    for update, value in zip(updates, expected, strict=True):
        update()
        assert v.layout == v.node.layout == place.bind((300,), every_pool.mesh)
        check(v, value)
        check(y, value * 2)


def test_expressions_follow_their_variables(every_pool: Pool) -> None:
    v = mm.variable("v", [1.0, 2.0])
    y = v * 10
    z = y + 1
    check(z, np.array([11, 21], np.float32))
    v.set([5, 6])
    check(v, np.array([5, 6], np.float32))
    check(z, np.array([51, 61], np.float32))
    check(y, np.array([50, 60], np.float32))
    other = mm.variable("w", v)
    v.set([0.0, 0.0])
    check(other, np.array([5, 6], np.float32))


def test_variables_and_constants_have_names_types_and_layouts() -> None:
    with current("shared", 2) as pool:
        v = mm.variable("weights", np.zeros((4, 2)), layout=mm.Layout.split(0))
        assert v.name == "weights"
        assert v.dtype is mm.float64
        assert v.layout == mm.Layout.split(0).bind((4, 2), pool.mesh)
        assert mm.variable("n", 3).dtype is mm.float32
        assert mm.constant(3).dtype is mm.float32
        assert mm.variable("n", 3, dtype="int64").dtype is mm.int64
        with pytest.raises(ShapeError, match=r"variable weights has shape \(4, 2\), not \(3,\)"):
            v.set([1.0, 2.0, 3.0])
