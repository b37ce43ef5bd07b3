"""mm.linalg: results that are not unique are checked by their equations; difficult matrices;
errors."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Thread, current_thread
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import current
from layouts import layouts, meshes
from magmath.arrays.array import unary
from magmath.comm.local_group import LocalGroup
from magmath.core.dtypes import DTYPES
from magmath.errors import DTypeError, LinAlgError, MagmathError, ShapeError
from magmath.kernels.linalg.tall_skinny_qr import distributed_tall_qr
from matrices import (
    TYPES,
    Matrix,
    adjoint,
    bound,
    check_lu,
    check_orthonormal,
    check_qr,
    check_zero,
    normal,
)

POOLS = [("inline", 1), ("shared", 2), ("shared", 3), ("messages", 2), ("messages", 4)]
NAMES = [f"{kind}-{workers}" for kind, workers in POOLS]
phases = [Phase.explicit, Phase.reuse, Phase.generate]
some = settings(max_examples=8, suppress_health_check=list(HealthCheck), phases=phases)


@pytest.fixture(params=POOLS, ids=NAMES)
def pool(request: pytest.FixtureRequest) -> Iterator[Any]:
    kind, workers = request.param
    with current(kind, workers) as started:
        yield started


@pytest.fixture
def one() -> Iterator[Any]:
    with current("inline") as started:
        yield started


def check_svd(x: Matrix, a: mm.Array) -> None:
    k = min(x.shape[-2:])
    for full in (True, False):
        u, s, vh = map(np.asarray, mm.linalg.svd(a, full_matrices=full))
        assert u.shape[-1] == (x.shape[-2] if full else k)
        assert vh.shape[-2] == (x.shape[-1] if full else k)
        check_zero((u[..., :k] * s[..., None, :]) @ vh[..., :k, :] - x, bound(x), x.shape)
        check_orthonormal(u, ("U", x.shape))
        check_orthonormal(adjoint(vh), ("V", x.shape))
        assert (s >= 0).all()
        assert (np.diff(s, axis=-1) <= 0).all()


def check_eigh(x: Matrix, a: mm.Array) -> None:
    """Only the lower triangle is read."""
    h = np.tril(x, -1)
    h = h + adjoint(h) + np.real(x) * np.eye(x.shape[-1], dtype=x.dtype)
    values, vectors = map(np.asarray, mm.linalg.eigh(a))
    check_zero(h @ vectors - vectors * values[..., None, :], bound(h), ("eigh", x.shape))
    check_orthonormal(vectors, ("eigh", x.shape))
    assert values.dtype == np.real(x).dtype
    assert (np.diff(values, axis=-1) >= 0).all()


def check_eig(x: Matrix, a: mm.Array) -> None:
    values, vectors = map(np.asarray, mm.linalg.eig(a))
    assert values.dtype.kind == vectors.dtype.kind == "c"
    check_zero(x @ vectors - vectors * values[..., None, :], 10 * bound(x), ("eig", x.shape))
    check_zero(np.linalg.norm(vectors, axis=-2) - 1, 1e-4, "lengths")
    alone = np.asarray(mm.linalg.eigvals(a))
    if x.size:
        nearest = np.abs(values[..., :, None] - alone[..., None, :]).min(axis=-1)
        check_zero(nearest, 1e-3, "eigvals")


@st.composite
def stacks(draw: st.DrawFn, *, square: bool = False) -> Matrix:
    """Stacks of matrices: any extents, also 0 and 1; full rank, low rank, graded or all zero."""
    batch = tuple(draw(st.lists(st.integers(0, 3), max_size=2)))
    m = draw(st.sampled_from([0, 1, 2, 5, 9]))
    n = m if square else draw(st.sampled_from([0, 1, 3, 6]))
    x = normal((*batch, m, n), draw(st.sampled_from(TYPES)), draw(st.integers(0, 99)))
    kind = draw(st.sampled_from(["full", "low", "graded", "zero"]))
    if kind == "low":
        x = x[..., :1] @ x[..., :1, :] if n and m else x
    if kind == "graded":
        x = x * np.logspace(0, -12, n).astype(x.dtype)
    return np.zeros_like(x) if kind == "zero" else x


def placed(x: Matrix, pool: Any, data: st.DataObject) -> mm.Array:
    """The array in any layout."""
    mesh = data.draw(meshes(pool.workers))
    layout = data.draw(layouts(x.shape, mesh)).without_partial()
    array = mm.asarray(x)
    return array if layout.shared else array.redistribute(layout)


@given(data=st.data())
@some
def test_factors_multiply_to_the_matrix(pool: Any, data: st.DataObject) -> None:
    x = data.draw(stacks())
    for check in (check_qr, check_svd, check_lu):
        check(x, placed(x, pool, data))


@given(data=st.data())
@some
def test_stacks_of_systems_are_solved_as_by_numpy(pool: Any, data: st.DataObject) -> None:
    """Stacks that are repeated in any of their dimensions, by one of both sides."""
    stack = data.draw(st.lists(st.integers(0, 3), max_size=3))
    n, k = data.draw(st.integers(1, 5)), data.draw(st.integers(0, 3))
    shapes = []
    for _ in range(2):
        extents = [1 if data.draw(st.booleans()) else extent for extent in stack]
        shapes.append(tuple(extents[data.draw(st.integers(0, len(stack))) :]))
    a = normal((*shapes[0], n, n), "float64") + 4 * n * np.eye(n)
    b, g = normal((*shapes[1], n, k), "float64", 1), normal((n, k), "float64", 2)
    expected = np.linalg.solve(a, b)
    x, y = placed(a, pool, data), placed(b, pool, data)
    actual = mm.linalg.solve(x, y)
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=1e-10, atol=1e-12)
    lower = mm.linalg.solve_triangular(x, y, lower=True, transpose=True)
    triangle = np.swapaxes(np.tril(a), -1, -2)
    np.testing.assert_allclose(np.asarray(lower), np.linalg.solve(triangle, b), atol=1e-12)
    by_a, by_b = mm.grad(mm.sum(actual * mm.asarray(g)), [x, y])
    whole = np.linalg.solve(np.swapaxes(a, -1, -2), g + np.zeros_like(expected))
    outer = -whole @ np.swapaxes(expected, -1, -2)
    for slope, full in ((by_a, outer), (by_b, whole)):
        summed = full.sum(tuple(range(full.ndim - len(slope.shape))))
        repeated = [d for d in range(summed.ndim) if slope.shape[d] == 1 != summed.shape[d]]
        summed = summed.sum(tuple(repeated), keepdims=True)
        np.testing.assert_allclose(np.asarray(slope), summed, rtol=1e-9, atol=1e-11)


def test_a_matrix_of_many_systems_is_factorized_once(one: Any) -> None:
    a = mm.asarray(normal((2, 1, 120, 120), "float32"))
    b = mm.asarray(normal((5, 1, 64, 120, 1), "float32"))
    steps = mm.linalg.solve(a, b).explain().instructions
    (factors,) = [step.text for step in steps if step.operation == "lu"]
    assert "[2, 121, 120]" in factors


@given(data=st.data())
@some
def test_eigenvectors_are_those_of_the_matrix(pool: Any, data: st.DataObject) -> None:
    x = data.draw(stacks(square=True))
    check_eigh(x, placed(x, pool, data))
    x = normal(x.shape, x.dtype.name)  # eigenvectors of a defective matrix would not be independent
    check_eig(x, placed(x, pool, data))


@pytest.mark.parametrize(
    "pool", [("inline", 1), ("shared", 3), ("messages", 2)], ids=lambda pool: pool[0], indirect=True
)
@pytest.mark.parametrize("dtype", TYPES)
def test_large_matrices_go_to_lapack_by_pointer(pool: Any, dtype: str) -> None:
    for shape in ((130, 130), (150, 110), (110, 150)):
        x = normal(shape, dtype)
        a = mm.asarray(x)
        check_qr(x, a)
        check_svd(x, a)
        check_lu(x, a)
    x = normal((130, 130), dtype)
    a = mm.asarray(x)
    check_eigh(x, a)
    definite = x @ adjoint(x) + 130 * np.eye(130, dtype=dtype)
    low = np.asarray(mm.linalg.cholesky(mm.asarray(definite)))
    check_zero(low @ adjoint(low) - definite, bound(definite), "cholesky")
    high = np.asarray(mm.linalg.cholesky(mm.asarray(definite), upper=True))
    check_zero(adjoint(high) @ high - definite, bound(definite), "cholesky, upper")
    b = normal((130, 7), dtype)
    solution = np.asarray(mm.linalg.solve(mm.asarray(definite), mm.asarray(b)))
    check_zero(definite @ solution - b, bound(definite), "solve")
    sign, log = mm.linalg.slogdet(a)
    known = np.linalg.slogdet(x.astype("complex128" if x.dtype.kind == "c" else "float64"))
    np.testing.assert_allclose(np.asarray(sign), known[0], rtol=1e-3)
    np.testing.assert_allclose(np.asarray(log), known[1], rtol=1e-4)


def test_tall_matrices_of_any_condition_have_orthonormal_factors(pool: Any) -> None:
    for dtype in ("float32", "float64", "complex64"):
        left = np.linalg.qr(normal((1100, 9), dtype))[0]
        right = np.linalg.qr(normal((9, 9), dtype, 1))[0]
        for condition in (1.0, 1e3, 1e7, 1e30):
            scales = np.geomspace(1, 1 / condition, 9).astype(dtype)
            x = (left * scales) @ right
            check_qr(x, mm.asarray(x), ["reduced"])  # all of Q is not found in this way
        x[:, 4] = 0
        check_qr(x, mm.asarray(x))


def test_ill_conditioned_systems_are_solved_backward_stably(pool: Any) -> None:
    n = 40
    hilbert = 1.0 / (np.arange(n)[:, None] + np.arange(n) + 1.0)
    b = normal((n, 2), "float64")
    x = np.asarray(mm.linalg.solve(mm.asarray(hilbert), mm.asarray(b)))
    error = np.abs(hilbert @ x - b).max() / (np.linalg.norm(hilbert) * np.linalg.norm(x))
    assert error <= 50 * n * np.finfo("float64").eps


@given(data=st.data())
@some
def test_determinants_end_where_the_type_does(pool: Any, data: st.DataObject) -> None:
    """As NumPy's: values out of range are infinite or 0, and intermediate overflow is harmless."""
    dtype, n = data.draw(st.sampled_from(TYPES)), data.draw(st.integers(1, 5))
    step = 25 if np.finfo(dtype).eps > 1e-10 else 200
    powers = data.draw(st.lists(st.sampled_from([-step, 0, step]), min_size=n, max_size=n))
    scales = (10.0 ** np.asarray(powers)).astype(dtype)
    x = np.zeros((2, n, n), dtype)
    order = data.draw(st.permutations(range(n)))
    x[:, range(n), order] = normal((2, n), dtype, data.draw(st.integers(0, 99))) * scales
    with np.errstate(all="ignore"):
        expected = np.linalg.det(x)
    actual = np.asarray(mm.linalg.det(placed(x, pool, data)))
    np.testing.assert_allclose(actual, expected, rtol=1e-3)


# functions composed of these ----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", TYPES)
def test_solutions_and_inverses_agree_with_numpy(pool: Any, dtype: str) -> None:
    a = normal((2, 4, 4), dtype) + 4 * np.eye(4, dtype=dtype)
    v, b = normal((4,), dtype, 1), normal((3, 1, 4, 2), dtype, 2)
    near = {"rtol": 2e-4, "atol": 2e-4}
    L = mm.linalg
    for got, known in (
        (L.solve(mm.asarray(a), mm.asarray(v)), np.linalg.solve(a, v[:, None])[..., 0]),
        (L.solve(mm.asarray(a), mm.asarray(b)), np.linalg.solve(a, b)),
        (L.inv(mm.asarray(a)), np.linalg.inv(a)),
        (L.det(mm.asarray(a)), np.linalg.det(a)),
        (L.matrix_power(mm.asarray(a), 5), np.linalg.matrix_power(a, 5)),
        (L.matrix_power(mm.asarray(a), 0), np.linalg.matrix_power(a, 0)),
        (L.matrix_power(mm.asarray(a), -2), np.linalg.matrix_power(a, -2)),
        (L.pinv(mm.asarray(a[..., :2])), np.linalg.pinv(a[..., :2])),
        (L.trace(mm.asarray(a), offset=1), np.trace(a, 1, -2, -1)),
    ):
        assert got.dtype.name == dtype
        np.testing.assert_allclose(np.asarray(got), known, **near)
    upper = L.solve_triangular(mm.asarray(np.triu(a)), mm.asarray(b))
    np.testing.assert_allclose(np.asarray(upper), np.linalg.solve(np.triu(a), b), **near)


@given(data=st.data())
@some
def test_least_squares_agree_with_numpy(pool: Any, data: st.DataObject) -> None:
    m, n = data.draw(st.integers(1, 8)), data.draw(st.integers(1, 5))
    rank = data.draw(st.integers(1, min(m, n)))
    x = normal((m, rank), "float64") @ normal((rank, n), "float64", 1)
    b = normal((m, 2), "float64", 2)
    result = mm.linalg.lstsq(placed(x, pool, data), placed(b, pool, data), rtol=1e-8)
    known = np.linalg.lstsq(x, b, rcond=1e-8)
    np.testing.assert_allclose(np.asarray(result.solution), known[0], atol=1e-8)
    assert int(result.rank) == known[2] == int(mm.linalg.matrix_rank(mm.asarray(x), rtol=1e-8))
    np.testing.assert_allclose(np.asarray(result.singular_values), known[3], atol=1e-12)
    rest = np.sum((x @ known[0] - b) ** 2, 0)[: 2 if m > n else 0]
    np.testing.assert_allclose(np.asarray(result.residuals), rest, atol=1e-10)
    flat = mm.linalg.lstsq(mm.asarray(x), mm.asarray(b[:, 0]), rtol=1e-8)
    np.testing.assert_allclose(np.asarray(flat.solution), known[0][:, 0], atol=1e-8)
    assert flat.residuals.shape == ((1,) if m > n else (0,))


def test_norms_agree_with_numpy(pool: Any) -> None:
    for dtype in TYPES:
        x = normal((2, 3, 4), dtype)
        a = mm.asarray(x)
        for ord in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf):
            got = mm.linalg.matrix_norm(a, ord=ord)
            known = np.linalg.matrix_norm(x, ord=ord)
            np.testing.assert_allclose(np.asarray(got), known, rtol=1e-4, err_msg=str(ord))
            assert mm.linalg.matrix_norm(a, ord=ord, keepdims=True).shape == (2, 1, 1)
        for ord in (0, 1, 2, 3, 0.5, -1, np.inf, -np.inf):
            for axis in (None, 0, (0, 2)):
                got = mm.linalg.vector_norm(a, axis=axis, ord=ord)
                known = np.linalg.vector_norm(x, axis=axis, ord=ord)
                np.testing.assert_allclose(np.asarray(got), known, rtol=1e-4, err_msg=str(ord))


def test_norms_of_nothing_are_zero(pool: Any) -> None:
    for shape in ((0, 3), (3, 0), (0, 0), (2, 0, 3), (0, 2, 3)):
        x = np.zeros(shape)
        for ord in ("fro", "nuc", 1, 2, np.inf):
            known = np.linalg.matrix_norm(x, ord=ord)
            np.testing.assert_array_equal(mm.linalg.matrix_norm(mm.asarray(x), ord=ord), known)
        for ord in (0, 1, 2, 3, np.inf):
            known = np.linalg.vector_norm(x, axis=0, ord=ord)
            np.testing.assert_array_equal(
                mm.linalg.vector_norm(mm.asarray(x), axis=0, ord=ord), known
            )
    with pytest.raises(ShapeError, match="vector_norm: nothing is the least of no values"):
        mm.linalg.vector_norm(mm.zeros((0,)), ord=-np.inf)


def test_diagonals_and_vector_products_agree_with_numpy(pool: Any) -> None:
    x = np.arange(24, dtype="int16").reshape(2, 3, 4)
    for offset in range(-4, 6):
        along = mm.linalg.diagonal(mm.asarray(x), offset=offset)
        np.testing.assert_array_equal(
            np.asarray(along), np.linalg.diagonal(x, offset=offset), str(offset)
        )
        assert along.dtype == mm.int16
        total = mm.linalg.trace(mm.asarray(x), offset=offset)
        np.testing.assert_array_equal(np.asarray(total), np.linalg.trace(x, offset=offset))
        assert total.dtype == mm.int64
    u, v = normal((4, 3), "float32"), normal((2, 1, 3), "float32", 1)
    got = mm.linalg.cross(mm.asarray(u), mm.asarray(v))
    np.testing.assert_allclose(np.asarray(got), np.cross(u, v), rtol=1e-5, atol=1e-5)
    got = mm.linalg.cross(mm.asarray(u.T.copy()), mm.asarray(u[::-1].T.copy()), axis=0)
    np.testing.assert_allclose(np.asarray(got), np.cross(u, u[::-1]).T, rtol=1e-5, atol=1e-5)


def test_a_truncated_svd_is_near_the_best_of_its_rank(pool: Any) -> None:
    for dtype in ("float64", "complex128"):
        left = np.linalg.qr(normal((60, 12), dtype))[0]
        right = np.linalg.qr(normal((40, 12), dtype, 1))[0]
        s = 2.0 ** -np.arange(12)
        x = (left * s) @ adjoint(right)
        u, values, vh = map(np.asarray, mm.linalg.svd_truncated(mm.asarray(x), 4))
        np.testing.assert_allclose(values, s[:4], rtol=1e-6)
        check_orthonormal(u, "U")
        assert np.linalg.norm((u * values) @ vh - x, 2) <= 1.01 * s[4]


# gradients ----------------------------------------------------------------------------------------


def slope_check(function: Any, x: Matrix) -> None:
    """The gradient of sum(weights · function(x)) against central differences in a direction."""
    a = mm.asarray(x)
    result = np.asarray(mm.grad(function(a), a))
    direction = np.random.default_rng(3).standard_normal(x.shape)
    ends = [float(function(mm.asarray(x + h * direction))) for h in (1e-6, -1e-6)]
    np.testing.assert_allclose(
        np.sum(result * direction), (ends[0] - ends[1]) / 2e-6, rtol=2e-6, atol=2e-7
    )


def real_sum(x: mm.Array, seed: int = 7) -> mm.Array:
    """A real number made of all elements, the real and imaginary parts differently."""
    w = np.random.default_rng(seed).uniform(0.5, 1.5, (2, *x.shape))
    if x.dtype.kind != "complex":
        return mm.sum(x * mm.asarray(w[0]))
    parts = unary("real", x), unary("imag", x)
    return mm.sum(parts[0] * mm.asarray(w[0])) + mm.sum(parts[1] * mm.asarray(w[1]))


SHAPES = {"square": (3, 3), "tall": (5, 3), "wide": (3, 5), "stack": (2, 3, 3)}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("complex_", [False, True], ids=["real", "complex"])
def test_gradients_of_vectors_agree_with_differences(
    one: Any, shape: tuple[int, ...], complex_: bool
) -> None:
    """Through what does not depend on the choice of signs and phases."""
    x, twist = normal(shape, "float64"), mm.asarray(normal(shape, "float64", 1))

    def made(a: mm.Array) -> mm.Array:
        return a + 1j * (a * a + twist) if complex_ else a

    def by_svd(a: mm.Array) -> mm.Array:
        u, s, vh = mm.linalg.svd(made(a), full_matrices=False)
        return real_sum((u * mm.expand_dims(mm.astype(1 / (1 + s), u.dtype), axis=-2)) @ vh)

    def by_qr(a: mm.Array) -> mm.Array:
        q, r = mm.linalg.qr(made(a))
        return real_sum(q) + real_sum(r, 8)

    def by_lu(a: mm.Array) -> mm.Array:
        _, low, high = mm.linalg.lu(made(a))
        return real_sum(low) + real_sum(high, 8)

    def by_pinv(a: mm.Array) -> mm.Array:
        return real_sum(mm.linalg.pinv(made(a)))

    def by_values(a: mm.Array) -> mm.Array:
        return real_sum(mm.linalg.svdvals(made(a)))

    for function in (by_svd, by_qr, by_lu, by_pinv, by_values):
        slope_check(function, x)
    if shape[-1] != shape[-2]:
        return

    def hermitian(a: mm.Array) -> mm.Array:
        return a + a.mT + 1j * (a - a.mT) if complex_ else a + a.mT

    def by_eigh(a: mm.Array) -> mm.Array:
        values, v = mm.linalg.eigh(hermitian(a))
        scaled = v * mm.expand_dims(mm.astype(values * values, v.dtype), axis=-2)
        turned = v.mT if not complex_ else unary("conj", v.mT)
        return real_sum(scaled @ turned) + real_sum(values, 8)

    def by_eig(a: mm.Array) -> mm.Array:
        values, v = mm.linalg.eig(made(a))
        return real_sum(v @ (mm.expand_dims(values * values, axis=-1) * mm.linalg.inv(v)))

    def by_cholesky(a: mm.Array) -> mm.Array:
        definite = hermitian(a) @ hermitian(a) + mm.eye(3, dtype=mm.float64)
        return real_sum(mm.linalg.cholesky(definite))

    def by_det(a: mm.Array) -> mm.Array:
        sign, log = mm.linalg.slogdet(made(a))
        return real_sum(mm.linalg.det(made(a))) + real_sum(sign, 8) + real_sum(log, 9)

    for function in (by_eigh, by_eig, by_cholesky, by_det):
        slope_check(function, x)


def test_the_gradient_of_a_solution_factorizes_once(one: Any) -> None:
    a = mm.asarray(normal((5, 5), "float64"))
    b = mm.asarray(normal((5,), "float64"))
    x = mm.linalg.solve(a, b)
    slopes = mm.grad(mm.sum(x * x), [a, b])
    assert str(slopes[0].explain()).count(" lu(") == 1


def test_gradients_that_do_not_exist_are_refused(one: Any) -> None:
    a = mm.asarray(normal((4, 2), "float64"))
    with pytest.raises(MagmathError, match=r'qr.*mode="complete".*use mode="reduced"'):
        mm.grad(mm.sum(mm.linalg.qr(a, mode="complete").Q), a)
    with pytest.raises(MagmathError, match=r"svd.*full_matrices=True.*use full_matrices=False"):
        mm.grad(mm.sum(mm.linalg.svd(a).U), a)


# what goes wrong ----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [3, 120])
def test_matrices_that_cannot_be_factorized_are_refused_and_the_pool_goes_on(
    pool: Any, n: int
) -> None:
    singular, nan = mm.zeros((n, n)), mm.full((n, n), float("nan"))
    for compute, words in (
        (lambda: mm.linalg.inv(singular), "singular"),
        (lambda: mm.linalg.solve(singular, mm.ones((n,))), "singular"),
        (lambda: mm.linalg.solve_triangular(singular, mm.ones((n,))), "singular"),
        (lambda: mm.linalg.cholesky(singular), "not positive definite"),
        (lambda: mm.linalg.eigh(nan).eigenvalues, "NaN"),
        (lambda: mm.linalg.svdvals(nan), "NaN"),
    ):
        with pytest.raises(LinAlgError, match=f"{words}.*") as caught:
            np.asarray(compute())
        assert isinstance(caught.value, np.linalg.LinAlgError)
    assert float(mm.linalg.det(singular)) == 0.0
    assert float(mm.sum(mm.ones((4,)))) == 4.0


def test_one_bad_matrix_of_a_divided_stack_fails_everywhere(pool: Any) -> None:
    x = np.broadcast_to(np.eye(3), (5, 3, 3)).copy()
    x[-1, 1, 1] = -1.0
    a = mm.asarray(x).redistribute(mm.Layout.split(0))
    with pytest.raises(LinAlgError, match="not positive definite"):
        np.asarray(mm.linalg.cholesky(a))
    assert float(mm.sum(a)) == 13.0


def test_wrong_shapes_and_types_are_refused_where_they_are_written(one: Any) -> None:
    a = mm.ones((2, 3))
    for compute, words in (
        (lambda: mm.linalg.cholesky(a), r"cholesky: needs square matrices.*\(2, 3\)"),
        (lambda: mm.linalg.det(a), r"det: needs square matrices"),
        (lambda: mm.linalg.eigh(mm.ones((3,))), r"eigh: needs square.*\(3,\)"),
        (lambda: mm.linalg.solve(mm.ones((2, 2)), mm.ones((3,))), r"solve.*\(2, 2\) and \(3,\)"),
        (lambda: mm.linalg.qr(mm.ones((3,))), r"qr: needs matrices"),
        (lambda: mm.linalg.cross(a, mm.ones((2, 2))), r"cross"),
        (lambda: mm.linalg.svd_truncated(a, 3), r"k must be 0 to 2"),
    ):
        with pytest.raises(ShapeError, match=words):
            compute()
    with pytest.raises(DTypeError, match=r"qr: takes float32.*float16.*astype"):
        mm.linalg.qr(mm.ones((2, 2), dtype=mm.float16))
    with pytest.raises(ValueError, match=r'mode must be "reduced", "complete" or "r"'):
        mm.linalg.qr(a, mode="all")


# computing
# workers----------------------------------------------------------------------------------


def test_one_worker_factorizes_for_all_that_share_its_memory() -> None:
    with current("shared", 2):
        a = mm.asarray(normal((600, 600), "float64"))
        values = mm.linalg.svdvals(a)
        assert values.layout.mesh.size == 1
        np.testing.assert_allclose(np.asarray(values), np.linalg.svdvals(np.asarray(a)))


def test_diagonals_of_matrices_of_every_type_in_every_layout(pool: Any) -> None:
    rules = [mm.Layout.split(0), mm.Layout.split(1), mm.Layout.cyclic(0, 2), mm.Layout.cyclic(1, 1)]
    for name in sorted(DTYPES.keys() - {"bfloat16"}):
        x = (np.arange(15 * 17).reshape(15, 17) % 100).astype(name)
        for rule in rules if pool.workers > 1 else [None]:
            a = mm.asarray(x, layout=rule)
            for offset in (0, 3, -2):
                diagonal = np.asarray(mm.diagonal(a, offset=offset))
                np.testing.assert_array_equal(diagonal, np.diagonal(x, offset), (name, rule))


def test_a_stack_is_divided(pool: Any) -> None:
    if pool.workers == 1:
        return
    a = mm.asarray(normal((24, 40, 40), "float64"))
    assert "S(0) = svdvals(" in str(mm.linalg.svdvals(a).explain())


@pytest.mark.parametrize("doubtful", [0, 1])
@pytest.mark.timeout(60)
def test_workers_agree_on_the_factors_of_a_tall_qr(
    doubtful: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounding may tell one worker that the first factor is exact, and another that it is not."""
    norm = torch.linalg.matrix_norm

    def rounded(x: torch.Tensor) -> torch.Tensor:
        is_doubtful = current_thread().name == f"rank {doubtful}"
        distance = norm(x)
        return distance if distance > 1e-6 else torch.tensor(1e-6 * is_doubtful)

    monkeypatch.setattr(torch.linalg, "matrix_norm", rounded)
    _check_tall_qr()


@pytest.mark.parametrize("doubtful", [0, 1])
@pytest.mark.timeout(60)
def test_workers_agree_on_the_method_of_a_tall_qr(
    doubtful: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounding may tell one worker that a matrix is too ill-conditioned, and another that it is
    not; they must exchange the same data nevertheless."""
    factor = torch.linalg.cholesky_ex
    asked: list[str] = []

    def rounded(product: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        asked.append(current_thread().name)
        lower, info = factor(product)
        return lower, info + int(asked[-1] == f"rank {doubtful}")

    monkeypatch.setattr(torch.linalg, "cholesky_ex", rounded)
    _check_tall_qr()
    assert sorted(asked) == ["rank 0", "rank 1"]


def _check_tall_qr() -> None:
    """Compute the factors of a matrix on two workers, which are threads named by their rank."""
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((600, 5)))
    group, parts = LocalGroup(2), x.tensor_split(2)
    q, r = torch.zeros(600, 5, dtype=x.dtype), torch.zeros(2, 5, 5, dtype=x.dtype)

    def run(rank: int) -> None:
        scratch = torch.zeros(3 * 5 * 5 * 8, dtype=torch.uint8)
        own = q.tensor_split(2)[rank]
        distributed_tall_qr(group.communicator(rank), scratch, own, r[rank], parts[rank])

    threads = [Thread(target=run, args=(rank,), name=f"rank {rank}") for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_allclose(q @ r[0], x, atol=1e-12)
    np.testing.assert_allclose(q.T @ q, np.eye(5), atol=1e-12)
    np.testing.assert_array_equal(*r)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize("name", ["svd", "svdvals", "eigh", "eigvalsh", "qr", "cholesky"])
def test_small_factors_have_the_same_bits_in_every_program(
    pool: Any, name: str, dtype: str
) -> None:
    """Factors are unique up to signs, and a gradient may read those of another program."""
    x = np.random.default_rng(3).normal(size=(12, 10)).astype(dtype)
    matrix = x if name in ("svd", "svdvals", "qr") else x.T @ x.conj()
    function = getattr(mm.linalg, name)
    large = mm.zeros((400, 400), dtype=dtype)
    at_its_line = function(mm.asarray(matrix))
    in_a_program, _ = mm.compile(lambda a, b: (function(a), b @ b))(mm.asarray(matrix), large)
    for one, other in zip(*map(_parts, (at_its_line, in_a_program)), strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


def _parts(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)
