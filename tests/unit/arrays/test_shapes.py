"""Shapes, joining, products, reductions, and functions composed of them."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import magmath as mm
from arrays import GRID, KINDS, check
from engines import current
from magmath.runtime import Pool


# indexing and shapes ------------------------------------------------------------------------------
def test_iteration_yields_each_row() -> None:
    rows = list(mm.asarray(GRID))
    assert len(rows) == 4
    for row, expected in zip(rows, GRID, strict=True):
        check(row, expected)


def test_shapes_change_as_in_numpy(every_pool: Pool) -> None:
    x = mm.asarray(GRID)
    for shape in ((60,), (-1,), (5, 12), (2, -1, 3), (1, 4, 5, 3, 1)):
        check(mm.reshape(x, shape), GRID.reshape(shape))
    check(mm.reshape(x, -1), GRID.reshape(-1))
    check(mm.expand_dims(x, axis=-1), GRID[..., None])
    check(mm.squeeze(mm.expand_dims(x, axis=1), 1), GRID)
    check(mm.permute_dims(x, (2, 0, -2)), GRID.transpose(2, 0, 1))
    check(x.mT, GRID.swapaxes(1, 2))
    check(x[0].T, GRID[0].T)
    check(mm.broadcast_to(x[0, 0], (2, 3)), np.broadcast_to(GRID[0, 0], (2, 3)))
    a, b = mm.broadcast_arrays(x[0, 0], x[0, :, :1])
    assert a.shape == b.shape == (5, 3)


def test_concat_and_stack(every_pool: Pool) -> None:
    x, y = mm.asarray(GRID), mm.asarray(GRID[:2] + 100)
    check(mm.concat([x, y, x]), np.concatenate([GRID, GRID[:2] + 100, GRID]))
    check(mm.concat([x, x], axis=-1), np.concatenate([GRID, GRID], axis=-1))
    check(mm.concat([x, y], axis=None), np.concatenate([GRID, GRID[:2] + 100], axis=None))
    check(mm.stack([x, x + 1], axis=1), np.stack([GRID, GRID + 1], axis=1))
    check(mm.stack([x, x], axis=-1), np.stack([GRID, GRID], axis=-1))
    mixed = mm.concat([mm.ones(1, dtype="int8"), mm.ones(1, dtype="int32")])
    assert mixed.dtype is mm.int32


def test_matmul_takes_vectors_and_batches(every_pool: Pool) -> None:
    random = np.random.default_rng(0)
    for a, b in (((3,), (3,)), ((3,), (3, 2)), ((4, 3), (3,)), ((4, 3), (3, 2)), ((3,), (5, 3, 2)),
                 ((5, 4, 3), (3,)), ((2, 1, 4, 3), (5, 3, 2)), ((0, 3), (3, 2)), ((2, 0), (0, 3))):  # fmt: skip
        x, y = random.standard_normal(a), random.standard_normal(b)
        check(mm.asarray(x) @ mm.asarray(y), x @ y)


# reductions and compositions ----------------------------------------------------------------------
AXES = st.none() | st.integers(-3, 2) | st.sets(st.integers(0, 2), max_size=3).map(tuple)


@given(axis=AXES, keepdims=st.booleans(), kind=st.sampled_from(KINDS))
@settings(max_examples=20)
def test_statistics_are_numpys(axis: Any, keepdims: bool, kind: tuple[str, int]) -> None:
    data = np.sin(GRID * 7)
    with current(*kind):
        x = mm.asarray(data)
        check(mm.mean(x, axis=axis, keepdims=keepdims), data.mean(axis, keepdims=keepdims))
        check(mm.var(x, axis=axis, keepdims=keepdims), data.var(axis, keepdims=keepdims))
        check(mm.std(x, axis=axis, correction=0.5, keepdims=keepdims),
              data.std(axis, ddof=0.5, keepdims=keepdims) if axis != () else
              mm.std(x, axis=axis, correction=0.5, keepdims=keepdims).numpy())  # fmt: skip
        check(mm.sum(x, axis=axis, keepdims=keepdims), data.sum(axis, keepdims=keepdims))
        check(mm.any(x > 0.5, axis=axis), (data > 0.5).any(axis))
        check(mm.all(x, axis=axis), (data != 0).all(axis))
        if axis is None or isinstance(axis, int):
            check(mm.argmax(x, axis=axis, keepdims=keepdims), data.argmax(axis, keepdims=keepdims))
            check(mm.argmin(x, axis=axis), data.argmin(axis))


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64", "complex64"])
@pytest.mark.parametrize("kind", KINDS)
def test_statistics_need_no_more_range_than_their_results(name: str, kind: tuple[str, int]) -> None:
    """Half types hold neither the sum of these, nor the squares."""
    random = np.random.default_rng(0)
    with current(*kind):
        x = mm.asarray(200 + 300 * random.standard_normal((40, 50)), dtype=name)
        if name == "complex64":
            x = x + 100j * x[::-1]
        values = x.numpy().astype("complex128" if name == "complex64" else "float64")
        known = {
            mm.mean: values.mean(1), mm.var: values.var(1), mm.std: values.std(1),
            partial(mm.linalg.vector_norm, ord=3): np.linalg.vector_norm(values, ord=3, axis=1),
            mm.linalg.vector_norm: np.linalg.vector_norm(values, axis=1),
        }  # fmt: skip
        for function, expected in known.items():
            actual = function(x, axis=1)
            assert actual.dtype.name == name or not np.iscomplexobj(expected)
            if np.abs(expected).max() < mm.finfo(x.dtype).max:
                limit = 4 * mm.finfo(x.dtype).eps
                np.testing.assert_allclose(actual.numpy(), expected, rtol=limit, atol=200 * limit)


@pytest.mark.parametrize("count", [0, 1, 2])
@pytest.mark.parametrize("correction", [0, 1, 2, 2.5])
def test_variances_of_fewer_values_than_correction_are_numpys(
    count: int, correction: float
) -> None:
    values = np.arange(2.0 * count).reshape(2, count) ** 2
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = values.var(1, ddof=correction)
    few = count <= correction
    with pytest.warns(RuntimeWarning, match="var") if few else nullcontext():
        actual = mm.var(mm.asarray(values), axis=1, correction=correction)
    check(actual, expected)


def test_sums_of_small_integers_are_wide() -> None:
    x = mm.full(300, 100, dtype="int8")
    assert (mm.sum(x).dtype, int(mm.sum(x))) == (mm.int64, 30000)
    assert mm.sum(mm.ones(3, dtype="uint8")).dtype is mm.uint64
    assert mm.sum(mm.asarray([1.5]), dtype="float64").dtype is mm.float64
    check(mm.sum(mm.asarray([200, 100], dtype="uint8"), dtype="float32"), np.float32(300))


def test_running_sums(every_pool: Pool) -> None:
    x = mm.asarray(GRID)
    check(mm.cumulative_sum(x, axis=1), GRID.cumsum(1))
    check(
        mm.cumulative_sum(x, axis=1, include_initial=True),
        np.concatenate([np.zeros((4, 1, 3)), GRID.cumsum(1)], axis=1),
    )
    check(mm.cumulative_sum(mm.asarray([1, 2], dtype="int8")), np.array([1, 3]))


def test_compositions(every_pool: Pool) -> None:
    data = np.linspace(-30, 30, 24).reshape(4, 6)
    x = mm.asarray(data)
    powers = np.exp(data - data.max(1, keepdims=True))
    check(mm.softmax(x), powers / powers.sum(1, keepdims=True))
    check(mm.log_softmax(x, axis=0), data - np.log(np.exp(data).sum(0)))
    check(mm.relu(x), np.maximum(data, 0))
    check(mm.sigmoid(x), 1 / (1 + np.exp(-data)))
    check(mm.clip(x, -1, 2.5), np.clip(data, -1, 2.5))
    check(mm.clip(x, max=0), np.clip(data, None, 0))
    check(mm.where(x > 0, x, 0), np.where(data > 0, data, 0))
    check(mm.mean(mm.zeros((0, 3), dtype="float64"), axis=1), np.zeros(0))
    with pytest.warns(RuntimeWarning, match="mean: no elements"):
        assert np.isnan(mm.mean(mm.zeros((0, 3)), axis=0).numpy()).all()
