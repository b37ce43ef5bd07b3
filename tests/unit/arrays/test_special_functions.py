"""lgamma and its derivatives, parts of complex numbers, products of truth values, and distances:
as NumPy, SciPy and PyTorch compute them, in random layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special
from scipy.spatial.distance import cdist

import magmath as mm
from engines import current
from magmath.errors import DTypeError

KINDS = [("inline", 1), ("planned", 1), ("shared", 2), ("messages", 3)]
few = settings(max_examples=10)  # on each pool


@pytest.fixture(params=KINDS, ids=lambda p: f"{p[0]}-{p[1]}", scope="module")
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


def _placed(data: st.DataObject, values: np.ndarray) -> mm.Array:
    """An array in a random layout."""
    rules = [None, *[mm.Layout.split(d) for d in range(values.ndim)]]
    rules += [mm.Layout.cyclic(d, 2) for d in range(values.ndim)]
    return mm.asarray(values, layout=data.draw(st.sampled_from(rules)))


def _random(data: st.DataObject, *shape: int) -> np.ndarray:
    return np.random.default_rng(data.draw(st.integers(0, 99))).normal(size=shape)


@few
@given(data=st.data())
def test_derivatives_of_lgamma(kind: Any, data: st.DataObject) -> None:
    """Also at negative numbers, up to the fourth derivative."""
    with current(*kind):
        values = 3 * _random(data, 5, 4)
        x = _placed(data, values)
        known = [special.gammaln(values)]
        known += [special.polygamma(n, np.abs(values)) for n in range(4)]
        np.testing.assert_allclose(mm.lgamma(x).numpy(), known[0], rtol=1e-9, atol=1e-12)
        y = mm.abs(x)
        actual = mm.lgamma(y)
        for order, expected in enumerate(known[1:]):
            actual = mm.grad(mm.sum(actual), y)
            np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-9)
            np.testing.assert_allclose(mm.polygamma(order, y).numpy(), expected, rtol=1e-9)
        theirs = torch.polygamma(1, torch.tensor(values)).numpy()
        np.testing.assert_allclose(mm.polygamma(1, x).numpy(), theirs, rtol=1e-6)


@few
@given(data=st.data())
def test_parts_of_complex_numbers_are_assigned(kind: Any, data: st.DataObject) -> None:
    with current(*kind):
        values = _random(data, 3, 4) + 1j * _random(data, 3, 4)
        dtype = data.draw(st.sampled_from([np.complex64, np.complex128]))
        theirs = values.astype(dtype)
        ours = _placed(data, theirs)
        part = data.draw(st.sampled_from(["real", "imag"]))
        row = _random(data, 4).astype(theirs.real.dtype)
        for value in (2.5, row, [[1], [2], [3]], np.inf, -0.0):
            setattr(theirs, part, value)
            setattr(ours, part, value)
            np.testing.assert_array_equal(ours.numpy(), theirs)
            assert (np.signbit(ours.numpy().imag) == np.signbit(theirs.imag)).all()
        x, again = mm.asarray(values.real), values.real.copy()
        x.real, again.real = row, row
        np.testing.assert_array_equal(x.numpy(), again)
        with pytest.raises(TypeError, match=r"float64 has no imaginary part.*astype"):
            x.imag = 1


def test_assigned_parts_have_gradients() -> None:
    x = mm.asarray([1.0, 2.0])
    z = mm.zeros(2, dtype=mm.complex64)
    z.real, z.imag = x * x, 3 * x
    np.testing.assert_allclose(mm.grad(mm.sum(mm.abs(z) ** 2), x).numpy(), [22.0, 68.0], rtol=1e-6)


@few
@given(data=st.data())
def test_products_of_truth_values(kind: Any, data: st.DataObject) -> None:
    with current(*kind):
        a, b, c = (_random(data, *shape) > 0.7 for shape in ((3, 4), (4, 5), (4,)))
        x, y, z = (_placed(data, values) for values in (a, b, c))
        pairs = (
            (x @ y, a @ b), (x @ z, a @ c), (mm.dot(z, y), np.dot(c, b)), (x @ b, a @ b),
            (mm.inner(x, z), np.inner(a, c)), (mm.tensordot(x, y, 1), np.tensordot(a, b, 1)),
            (mm.einsum("ij,jk->ki", x, y), np.einsum("ij,jk->ki", a, b)),
            (mm.vdot(z, z), np.vdot(c, c)), (x @ y.astype(mm.int64), a @ b.astype(np.int64)),
            (mm.outer(z, z), np.outer(c, c)), (mm.zeros((2, 0), bool) @ mm.zeros((0, 3), bool),
                                               np.zeros((2, 3), bool)),
        )  # fmt: skip
        mm.evaluate(*[actual for actual, _ in pairs])  # as one program
        for actual, known in pairs:
            np.testing.assert_array_equal(actual.numpy(), known)
            assert actual.dtype.name == known.dtype.name


def test_parts_of_complex_numbers_keep_their_type() -> None:
    x = mm.ones(2, dtype=mm.complex64)
    x.real = np.full(2, 3.0)
    assert (x.dtype, x.tolist()) == (mm.complex64, [3, 3])
    with pytest.raises(DTypeError, match="cannot put complex64"):
        x.imag = x


@few
@given(data=st.data())
def test_distances(kind: Any, data: st.DataObject) -> None:
    """As SciPy's and PyTorch's, with the first and second gradient."""
    with current(*kind):
        p = data.draw(st.sampled_from([0, 0.5, 1, 2, 3.5, np.inf]))
        m, n = data.draw(st.sampled_from([(3, 5), (1, 30), (28, 4), (0, 3), (3, 0)]))
        a, b = _random(data, m, 4), _random(data, n, 4) + 100
        b[: min(m, 1)] = a[: min(n, 1)]  # a distance of 0
        x, y = _placed(data, a), _placed(data, b)
        s, t = (torch.tensor(values, requires_grad=True) for values in (a, b))
        actual, known = mm.cdist(x, y, p=p), torch.cdist(s, t, p=p)
        tolerance = {"rtol": 1e-6, "atol": 1e-5}  # √ε · 100 where vectors are equal
        np.testing.assert_allclose(actual.numpy(), known.detach().numpy(), **tolerance)
        if p >= 1 and m * n:
            scipy = cdist(a, b, "chebyshev" if p == np.inf else "minkowski", **_power(p))
            np.testing.assert_allclose(actual.numpy(), scipy, **tolerance)
        if p not in (1, 2, 3.5) or not m * n:
            return
        weights = _random(data, m, n)
        ours = mm.grad(mm.sum(actual * weights), [x, y])
        theirs = torch.autograd.grad((known * torch.tensor(weights)).sum(), [s, t])
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(one.numpy(), other.numpy(), **tolerance)


def _power(p: float) -> dict[str, float]:
    return {} if p == np.inf else {"p": p}


@pytest.mark.parametrize("mode", ["use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist"])
def test_second_gradients_of_distances(kind: Any, mode: str) -> None:
    with current(*kind):
        a, b = (np.random.default_rng(n).normal(size=(n, 3)) for n in (4, 5))
        x, y, s = mm.asarray(a), mm.asarray(b), torch.tensor(a, requires_grad=True)
        slope = mm.grad(mm.sum(mm.cdist(x, y, compute_mode=mode) ** 3), x)
        again = mm.grad(mm.sum(slope * slope), x)
        distances = (s[:, None] - torch.tensor(b)).square().sum(-1).sqrt()
        (known,) = torch.autograd.grad((distances**3).sum(), s, create_graph=True)
        (expected,) = torch.autograd.grad((known * known).sum(), s)
        np.testing.assert_allclose(again.numpy(), expected.numpy(), rtol=1e-8)


def test_distances_of_batches_and_half_types() -> None:
    a, b = (np.random.default_rng(n).normal(size=(2, n, 3)) for n in (40, 50))
    known = torch.cdist(torch.tensor(a), torch.tensor(b[:1])).numpy()
    np.testing.assert_allclose(mm.cdist(a, b[:1]).numpy(), known, rtol=1e-9)
    half = mm.cdist(mm.asarray(a, dtype=mm.float16), mm.asarray(b, dtype=mm.float16))
    assert half.dtype == mm.float16
    np.testing.assert_allclose(half.numpy(), torch.cdist(torch.tensor(a), torch.tensor(b)), 5e-2)
    with pytest.raises(ValueError, match="compute_mode must be one of"):
        mm.cdist(a, b, compute_mode="fast")
    with pytest.raises(ValueError, match="p must be at least 0"):
        mm.cdist(a, b, p=-1)
    with pytest.raises(ValueError, match=r"needs sets of vectors.*\(3,\)"):
        mm.cdist(a, np.ones(3))


# the error function, logit and softplus -----------------------------------------------------------


def _check_derivatives(ours: Any, theirs: Any, values: np.ndarray, exact: np.ndarray) -> None:
    """Compare the values with exact ones, and two derivatives with PyTorch's."""
    x, t = mm.variable("x", values), torch.tensor(values, requires_grad=True)
    y = ours(x)
    np.testing.assert_allclose(y.numpy(), exact, rtol=1e-12, atol=1e-300)
    weights = np.linspace(1, 2, values.size).reshape(values.shape)
    first = mm.grad(mm.sum(y * weights), x)
    (known,) = torch.autograd.grad((theirs(t) * torch.tensor(weights)).sum(), t, create_graph=True)
    np.testing.assert_allclose(first.numpy(), known.detach().numpy(), rtol=1e-9, atol=1e-200)
    second = mm.grad(mm.sum(first * weights), x)
    (known,) = torch.autograd.grad((known * torch.tensor(weights)).sum(), t)
    np.testing.assert_allclose(second.numpy(), known.numpy(), rtol=1e-9, atol=1e-9)


@few
@given(data=st.data())
def test_complement_of_the_error_function(kind: Any, data: st.DataObject) -> None:
    with current(*kind):
        values = 4 * _random(data, 5, 4)
        _check_derivatives(mm.erfc, torch.erfc, values, special.erfc(values))
        far = np.array([0.0, 5.0, 20.0, 26.0, np.inf, -np.inf, np.nan])
        np.testing.assert_allclose(mm.erfc(_placed(data, far)), special.erfc(far), rtol=1e-12)


@few
@given(data=st.data())
def test_logit(kind: Any, data: st.DataObject) -> None:
    """Its values are SciPy's, also near 1/2 and at and beyond the ends."""
    with current(*kind):
        inside = 1 / (1 + np.exp(-3 * _random(data, 5, 4)))
        _check_derivatives(mm.logit, torch.logit, inside, special.logit(inside))
        ends = [0.0, 1.0, -0.1, 1.1, 0.5, 0.5 + 1e-13, 0.25, 0.75, 1e-300, 1 - 1e-16, np.nan]
        result = mm.logit(_placed(data, np.array(ends))).numpy()
        np.testing.assert_allclose(result, special.logit(ends), rtol=1e-14)
        small = np.float32([0.1, 0.499, 0.9])
        np.testing.assert_allclose(mm.logit(mm.asarray(small)), special.logit(small), rtol=1e-6)
        slope = mm.grad(lambda x: mm.sum(mm.logit(x)))(mm.asarray(np.array([0.0, 1.0, 0.5])))
        assert slope.tolist() == [np.inf, np.inf, 4.0]


@few
@given(data=st.data())
def test_softplus(kind: Any, data: st.DataObject) -> None:
    """Equal to its argument above the threshold, as PyTorch's."""
    with current(*kind):
        values = np.concatenate([12 * _random(data, 20), [0.0, 19.99, 20.001, 1e4, -1e4]])
        for options in ({}, {"beta": 0.5}, {"beta": 3.0, "threshold": 5.0}):

            def theirs(x: Any, of: Any = options) -> Any:
                return torch.nn.functional.softplus(x, **of)

            def ours(x: Any, of: Any = options) -> Any:
                return mm.softplus(x, **of)

            expected = theirs(torch.tensor(values)).numpy()
            _check_derivatives(ours, theirs, values, expected)
        assert mm.nn.functional.softplus is mm.softplus
