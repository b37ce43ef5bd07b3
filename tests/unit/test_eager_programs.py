"""Compiled functions of small arrays, computed in the controller's process: the values, gradients
and random numbers are those of the same expressions without compilation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import current
from magmath.core.dtypes import int64
from magmath.errors import LinAlgError
from magmath.executor.eager_kernels import EagerKernels
from magmath.executor.eager_program import EagerProgram
from magmath.graph import apply
from magmath.layout import Layout
from magmath.ops import OPERATIONS
from magmath.ops.leaves import input_leaf, scalar
from small_expressions import appended

GRID = np.random.default_rng(0).uniform(-1, 1, (3, 3))
POOLS = [("inline", 1), ("eager", 2)]
CALLS = 14
"""Calls with new arrays, more than are prepared before a function without workers is eager."""


def chain(choices: list[tuple[int, int, int]]) -> Callable[[Any, Any], Any]:
    """Return a function that applies random operations to its arguments and their results."""

    def function(x: Any, y: Any) -> Any:
        arrays = [x, y]
        appended(arrays, choices)
        return arrays[-1], arrays[len(arrays) // 2], mm.sum(arrays[-1])

    return function


def is_eager(compiled: Any) -> bool:
    """Return True if the last call was computed in this process."""
    return compiled._last_used.runs.last is None or compiled._last_used.runs._is_eager


@pytest.mark.parametrize(("kind", "workers"), POOLS)
@settings(max_examples=40)
@given(
    choices=st.lists(
        st.tuples(st.integers(0, 21), st.integers(0, 6), st.integers(0, 6)), max_size=7
    )
)
def test_values_and_gradients(kind: str, workers: int, choices: list[tuple[int, int, int]]) -> None:
    with current(kind, workers):
        f = chain(choices)
        compiled = mm.compile(f)
        for i in range(CALLS):
            x, y = mm.asarray(GRID + i / 9), mm.asarray(GRID[::-1] - i / 8)
            actual, expected = compiled(x, y), f(x, y)  # one of the operations rounds to float32
            for one, other in zip(actual, expected, strict=True):
                np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-5, atol=1e-6)
            if i in (0, CALLS - 1):
                slopes = zip(
                    mm.grad(actual[2] + mm.sum(actual[1]), [x, y]),
                    mm.grad(expected[2] + mm.sum(expected[1]), [x, y]),
                    strict=True,
                )
                for one, other in slopes:
                    np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-5, atol=1e-6)
        assert is_eager(compiled)


@pytest.mark.parametrize(("kind", "workers"), POOLS)
def test_random_numbers_and_variables(kind: str, workers: int) -> None:
    with current(kind, workers):
        v = mm.variable("v", np.ones(4))

        def f(x: mm.Array, scale: float) -> tuple[mm.Array, mm.Array]:
            noise = mm.random.normal(size=(4,), dtype="float64")
            return x * scale + noise, x * v

        records = []
        for function in (f, mm.compile(f)):
            mm.random.seed(4)
            v.assign(np.ones(4))
            result = []
            for i in range(CALLS):
                result += [y.numpy() for y in function(mm.asarray(np.full(4, i / 2)), i + 0.5)]
                v.assign(v * 1.5)
            records.append([*result, mm.random.normal(size=(2,)).numpy()])
        for one, other in zip(*records, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize(("kind", "workers"), POOLS)
def test_results_are_arrays_of_their_own(kind: str, workers: int) -> None:
    with current(kind, workers):
        f = mm.compile(lambda x, y: (x, y + 1, x, y[:2]))
        for i in range(CALLS):
            x, y = mm.asarray(np.full(3, float(i))), mm.asarray(np.arange(3.0))
            result = f(x, y)
            x += 1
            result[0][0] = 7.0
            result[3][0] = 9.0
            assert result[0].numpy().tolist() == [7, i, i]
            assert result[2].numpy().tolist() == [i, i, i]
            assert result[1].numpy().tolist() == [1, 2, 3]
            assert x.numpy().tolist() == [i + 1] * 3
            assert y.numpy().tolist() == [0, 1, 2]


def test_errors_name_the_line_in_the_function() -> None:
    with current("eager", 2):
        f = mm.compile(lambda a, b: mm.linalg.solve(a, b))
        eye = mm.asarray(np.eye(3))
        f(eye, mm.ones(3, dtype="float64"))
        with pytest.raises(LinAlgError, match="test_eager_programs.py"):
            f(eye * 0, mm.ones(3, dtype="float64"))


@pytest.mark.parametrize("has_lines", [False, True])
def test_a_number_that_its_type_does_not_represent_is_the_fault_of_no_line(
    has_lines: bool,
) -> None:
    number, x = scalar(None, int64), input_leaf((3,), int64, Layout.replicated(), None)
    total = apply(OPERATIONS["add"], x, number)
    order = [total] if has_lines else []
    program = EagerProgram(EagerKernels(False, 0), order, [x], [number], [number, *order])
    values = np.arange(3)
    assert program.run([values], [1])[0] == 1
    with pytest.raises(OverflowError) as caught:
        program.run([values], [10**30])
    assert not hasattr(caught.value, "user_line")


def test_large_operands_and_results_use_the_workers() -> None:
    with current("eager", 2):
        f = mm.compile(lambda x, y: mm.sum(x) * y)
        large, small = np.arange(1e5), np.arange(3.0)
        for x in (small, large, small):
            result = f(mm.asarray(x), mm.asarray(small))
            np.testing.assert_allclose(result.numpy(), x.sum() * small, rtol=1e-12)
        g = mm.compile(lambda x: mm.sum(mm.broadcast_to(x, (60000, 3)) * 2.0, axis=0))
        np.testing.assert_allclose(g(mm.asarray(small)).numpy(), 12e4 * small)
        assert g._last_used.runs.last is not None  # type: ignore[attr-defined]


def test_types_that_numpy_lacks() -> None:
    with current("eager", 2):
        f = mm.compile(lambda x: x * 2 + 1)
        x = mm.asarray(np.arange(4.0), dtype=mm.bfloat16)
        assert f(x).astype(mm.float32).numpy().tolist() == [1, 3, 5, 7]


def test_explanations() -> None:
    with current("eager", 2):
        f = mm.compile(lambda x: mm.tanh(x))
        f(mm.ones(3))
        text = str(mm.explain(f))
        assert "small" in text
        assert "tanh(" in text
