"""Random functions with branches and loops: their values against Python's control flow, and their
derivatives against finite differences, eager, compiled and in batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import current
from random_flow import Function, numpy_gradient, numpy_value, random_function

POOLS = [("inline", 1), ("planned", 1), ("shared", 2)]
found_first = [Phase.explicit, Phase.reuse, Phase.generate]
few = settings(max_examples=8, suppress_health_check=list(HealthCheck), phases=found_first)
seeds = st.integers(0, 1 << 30)


def slopes(f: Function, order: int) -> Callable[[Any, Any], tuple[Any, Any]]:
    """Return the gradients of the sum, or of a sum of its gradients."""
    gradient: Callable[[Any, Any], Any] = mm.grad(lambda x, w: mm.sum(f(mm, x, w)), (0, 1))
    if order == 1:
        return gradient

    def weighted(x: Any, w: Any) -> Any:
        by_x, by_w = gradient(x, w)
        return mm.sum(by_x * w) + mm.sum(by_w * x)

    return mm.grad(weighted, (0, 1))


def same(actual: Any, expected: Any) -> None:
    np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(("kind", "workers"), POOLS)
@given(seed=seeds)
@example(seed=45)  # a recomputation that two branches share
@few
def test_compiled_and_batched_functions(kind: str, workers: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    f = random_function(draw, 3)
    numbers, w = draw.normal(size=(4, 3)), draw.normal(size=3)
    with current(kind, workers):
        xs, weight = mm.asarray(numbers), mm.asarray(w)
        values = np.stack([numpy_value(f, x, w)[0] for x in numbers])
        value = mm.compile(lambda x, w: f(mm, x, w))
        for row, expected in zip(numbers, values, strict=True):
            same(value(mm.asarray(row), weight), expected)
        same(mm.vmap(lambda x, w: f(mm, x, w), (0, None))(xs, weight), values)
        for order in (1, 2):
            gradient = slopes(f, order)
            eager = [[x.numpy() for x in gradient(mm.asarray(x), weight)] for x in numbers]
            by_x, by_w = (np.stack([one[part] for one in eager]) for part in (0, 1))
            compiled = mm.compile(gradient)
            for row, expected in zip(numbers, eager, strict=True):
                for one, other in zip(compiled(mm.asarray(row), weight), expected, strict=True):
                    same(one, other)
            one, other = mm.compile(mm.vmap(gradient, (0, None)))(xs, weight)
            same(one, by_x)
            same(other, by_w)
        summed = mm.grad(lambda xs, w: mm.sum(mm.vmap(lambda x: f(mm, x, w))(xs)), (0, 1))
        one, other = mm.compile(summed)(xs, weight)
        eager = [[slope.numpy() for slope in slopes(f, 1)(x, weight)] for x in xs]
        same(one, np.stack([x for x, _ in eager]))
        same(other, np.sum([w for _, w in eager], axis=0))


@given(seed=seeds)
@settings(few, max_examples=40)
def test_gradients_are_finite_differences(seed: int) -> None:
    draw = np.random.default_rng(seed)
    f = random_function(draw, 3, loops=True)
    x, w = draw.normal(size=3), draw.normal(size=3)
    expected = numpy_gradient(f, x, w)
    with current("inline"):
        given = mm.asarray(x), mm.asarray(w)
        same(f(mm, *given), numpy_value(f, x, w)[0])
        if (
            expected is None or not np.abs(expected).max() < 1e3
        ):  # a decision changes nearby, or nan
            return
        for actual, slope in zip(slopes(f, 1)(*given), expected, strict=True):
            np.testing.assert_allclose(actual.numpy(), slope, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("kind", "workers"), [*POOLS, ("eager", 2)])
@given(seed=seeds)
@example(seed=0)
@few
def test_gradients_by_captured_arrays_and_by_arrays_given_twice(
    kind: str, workers: int, seed: int
) -> None:
    """Compiled functions and loops within a differentiated function read its arguments from
    outside; a function receives one array as two arguments."""
    draw = np.random.default_rng(seed)
    f = random_function(draw, 3)
    x, w = draw.normal(size=3), draw.normal(size=3)
    scale = float(draw.normal())

    def captured(x: Any, w: Any) -> Any:
        y = w * scale
        return mm.sum(mm.compile(lambda x: f(mm, x, y))(x)) + mm.sum(y)

    def looped(x: Any, w: Any) -> Any:
        y = w * scale
        step = lambda s: (f(mm, s[0], y) / 2, s[1] + 1)  # noqa: E731
        return mm.sum(mm.while_loop(lambda s: s[1] < 2, step, (x, 0))[0])

    def by_hand(x: Any, w: Any) -> Any:
        y = w * scale
        return mm.sum(f(mm, f(mm, x, y) / 2, y) / 2)

    pairs = [
        (captured, lambda x, w: mm.sum(f(mm, x, w * scale)) + mm.sum(w * scale)),
        (looped, by_hand),
    ]
    with current(kind, workers):
        given = mm.asarray(x), mm.asarray(w)
        for ours, plain in pairs:
            actual, expected = mm.grad(ours, (0, 1))(*given), mm.grad(plain, (0, 1))(*given)
            for one, other in zip(actual, expected, strict=True):
                same(one, other.numpy())
        first, second = mm.grad(lambda x, w: mm.sum(f(mm, x, w)), (0, 1))(given[0], given[0])
        total = (first + second).numpy()
        once = lambda x: mm.sum(f(mm, x, x))  # noqa: E731
        twice: list[Callable[[Any], Any]] = [
            once,
            lambda x: mm.sum(mm.remat(lambda a, b: f(mm, a, b))(x, x)),
            lambda x: mm.sum(mm.compile(lambda a, b: f(mm, a, b))(x, x)),
            lambda x: mm.sum(mm.vmap(lambda a, b: f(mm, a, b))(x[None], x[None])),
            lambda x: mm.sum(mm.cond(x[0] < 99, lambda a, b: f(mm, a, b), lambda a, b: a, x, x)),
        ]
        for function in twice:
            same(mm.grad(function)(given[0]), total)
            same(mm.compile(mm.grad(function))(given[0]), total)
