"""Initializers draw from the documented distributions, the same numbers on any workers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

import magmath as mm
from engines import current
from magmath.errors import DTypeError, MagmathError, ShapeError
from magmath.nn import initializers as i

MATRIX, KERNEL = (300, 200), (40, 30, 5, 3)
LAYOUTS = [None, mm.Layout.split(0), mm.Layout.cyclic(1, 3), mm.Layout.on(0)]


@pytest.mark.parametrize("name", i.INITIALIZERS)
def test_numbers_are_the_same_for_every_layout_and_number_of_workers(name: str) -> None:
    """Those of `orthogonal` but for rounding; a second array has other numbers, if it is random."""
    make = i.INITIALIZERS[name]
    result = []
    for kind, workers in (("inline", 1), ("shared", 2), ("messages", 4)):
        with current(kind, workers):
            for layout in LAYOUTS:
                mm.random.seed(5)
                first = mm.variable("w", make, shape=(30, 20), layout=layout)
                second = make((30, 20), layout=layout)
                assert layout is None or first.layout == layout.bind((30, 20), mm.pool().mesh)
                result.append((first.numpy(), second.numpy()))
    limit = 1e-5 if name == "orthogonal" else 0
    for one in result[1:]:
        np.testing.assert_allclose(one[0], result[0][0], rtol=0, atol=limit)
        np.testing.assert_allclose(one[1], result[0][1], rtol=0, atol=limit)
    random = name not in ("zeros", "ones", "identity")
    assert np.array_equal(*result[0]) != random
    assert getattr(i, name) is make is i.initializer(name)


LIMITS: dict[str, Callable[[int, int], float]] = {
    "glorot": lambda a, b: math.sqrt(6 / (a + b)),
    "he": lambda a, b: math.sqrt(6 / a),
    "lecun": lambda a, b: math.sqrt(3 / a),
}


@pytest.mark.parametrize("normal", [False, True])
@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize(("shape", "fans"), [(MATRIX, MATRIX), (KERNEL, (30 * 15, 40 * 15))])
def test_variance_follows_from_the_fans(
    name: str, shape: Any, fans: tuple[int, int], normal: bool
) -> None:
    limit = LIMITS[name](*fans)
    with current("inline"):
        values = i.INITIALIZERS[f"{name}_normal" if normal else name](shape, rng=1).numpy().ravel()
    if normal:
        expected = stats.norm(0, limit / math.sqrt(3))
    else:
        expected = stats.uniform(-limit, 2 * limit)
        assert np.abs(values).max() <= limit
    assert stats.kstest(values, expected.cdf).pvalue > 1e-3


@pytest.mark.parametrize("name", ["glorot", "he"])
def test_limits_are_those_of_pytorch(name: str) -> None:
    """Whose matrices are (outputs, inputs)."""
    theirs = {"glorot": torch.nn.init.xavier_uniform_,
              "he": lambda w: torch.nn.init.kaiming_uniform_(w, nonlinearity="relu")}[name]  # fmt: skip
    for shape, turned in ((MATRIX, MATRIX[::-1]), (KERNEL, KERNEL)):
        with current("inline"):
            ours = np.abs(i.INITIALIZERS[name](shape, rng=1).numpy()).max()
        limit = theirs(torch.empty(turned)).abs().max().item()
        assert ours == pytest.approx(limit, rel=1e-2)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (i.Uniform(-2.0, 3.0), stats.uniform(-2, 5)),
        (i.Normal(1.0, 0.5), stats.norm(1, 0.5)),
        (i.TruncatedNormal(1.0, 0.5), stats.truncnorm(-2, 2, 1, 0.5)),
        (i.VarianceScaling(1.0, "fan_out", "truncated_normal"),
         stats.truncnorm(-2, 2, 0, 1 / math.sqrt(200) / 0.8796256610342398)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_distributions(make: Any, expected: Any, dtype: str) -> None:
    with current("inline"):
        values = make(MATRIX, dtype=dtype, rng=mm.random.Generator(3)).numpy()
    assert values.dtype == dtype
    assert stats.kstest(values.ravel(), expected.cdf).pvalue > 1e-3
    assert values.std() == pytest.approx(expected.std(), rel=1e-2)
    low, high = expected.support()
    assert low - 1e-6 <= values.min()
    assert values.max() <= high + 1e-6


def test_quantiles_are_those_of_scipy() -> None:
    p = np.linspace(0.0228, 0.9772, 1001)
    with current("inline"):
        result = i._normal_quantile(mm.asarray(p)).numpy()
    np.testing.assert_allclose(result, stats.norm.ppf(p), atol=3e-7)


@pytest.mark.parametrize("shape", [(6, 6), (9, 4), (4, 9), (5, 2, 3, 2), (2, 3, 4)])
@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2), ("messages", 4)])
def test_orthogonal_matrices_are_orthogonal(shape: Any, kind: str, workers: int) -> None:
    with current(kind, workers):
        w = i.Orthogonal(2.0)(shape, dtype="float64").numpy().reshape(shape[0], -1)
    product = w @ w.T if w.shape[0] <= w.shape[1] else w.T @ w
    np.testing.assert_allclose(product, 4 * np.eye(len(product)), atol=1e-12)


def test_orthogonal_matrices_are_turned_evenly() -> None:
    """The first entry is as often positive as negative: the signs are not those of QR."""
    with current("inline"):
        first = [i.orthogonal((3, 3), rng=seed).numpy()[0, 0] for seed in range(100)]
    assert 25 < np.sum(np.array(first) > 0) < 75


def test_values_that_are_not_random() -> None:
    with current("inline"):
        assert i.zeros((2, 3)).tolist() == [[0.0] * 3] * 2
        assert i.ones(2, dtype="int64").tolist() == [1, 1]
        assert i.Constant(-2.0)(()).item() == -2.0
        assert i.Identity(3.0)((2, 3)).tolist() == [[3.0, 0.0, 0.0], [0.0, 3.0, 0.0]]
        values = i.Mask(0.3, 5.0)((100, 100), rng=1).numpy()
        assert set(np.unique(values)) == {0.0, 5.0}
        assert np.mean(values > 0) == pytest.approx(0.3, abs=0.02)
        assert i.Mask(0.0)(3).tolist() == [0.0] * 3
        assert i.Mask(1.0)(3, dtype="bool").tolist() == [True] * 3
        assert i.initializer(0.5)(1).tolist() == [0.5]
        assert i.initializer(mm.zeros) is mm.zeros


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", i.INITIALIZERS)
def test_half_types(name: str, dtype: str) -> None:
    with current("inline"):
        values = i.INITIALIZERS[name]((8, 6), dtype=dtype)
        assert values.dtype.name == dtype
        assert np.isfinite(mm.astype(values, "float32").numpy()).all()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: i.initializer("hee"), MagmathError, "initializer 'hee' is not known.*he_normal"),
        (lambda: i.glorot(3), ShapeError, r"2 dimensions or more.*\(3,\); for a bias use zeros"),
        (lambda: i.orthogonal(3), ShapeError, r"Orthogonal: needs 2 dimensions or more.*\(3,\)"),
        (lambda: i.identity((2, 2, 2)), ShapeError, r"Identity: needs 2 dimensions.*\(2, 2, 2\)"),
        (lambda: i.truncated_normal(3, dtype="int64"), DTypeError, "floating point.*int64"),
        (lambda: i.Mask(1.5), MagmathError, r"probability must be in \[0, 1\], was given 1.5"),
        (lambda: i.VarianceScaling(fan="in"), MagmathError, "fan must be .*'in'"),
        (lambda: i.VarianceScaling(distribution="even"), MagmathError, "distribution must be .*'even'"),
        (lambda: mm.variable("w", i.glorot), TypeError, r"initializer and a shape are given both.*shape=None"),
        (lambda: mm.variable("w", 1.0, shape=3), TypeError, "initializer and a shape are given both"),
    ],
)  # fmt: skip
def test_mistakes_are_named(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with current("inline"), pytest.raises(error, match=message):
        call()
