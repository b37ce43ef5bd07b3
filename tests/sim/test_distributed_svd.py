"""Singular values and eigenvalues that all workers compute collectively: correct in any layout,
within their share of the memory, with failures on all workers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import magmath as mm
from engines import current, start
from magmath.core.block_cyclic import panel_rows
from magmath.engine import session
from magmath.errors import LinAlgError
from magmath.layout import Layout
from magmath.runtime import Pool
from matrices import TYPES, adjoint, bound, check_orthonormal, check_zero, normal

POOLS = [("shared", 2), ("messages", 3)]


@pytest.fixture(params=POOLS, ids=[f"{kind}-{workers}" for kind, workers in POOLS])
def pool(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A pool whose planner gives no operation more memory than the leanest way needs."""
    kind, workers = request.param
    with current(kind, workers) as started:
        _lean()
        yield started


def _lean() -> None:
    engine = session.engine()
    engine.environment = replace(engine.environment, max_moved_bytes=0, lapack_memory=0)


def is_collective(*arrays: mm.Array) -> bool:
    return all(" collectively in " in str(a.explain()) for a in arrays)


def check_svd(x: Any, a: mm.Array, *, collective: bool = True) -> None:
    """Backward errors up to 50·n·ε, and values near NumPy's."""
    m, n = x.shape
    k, limit = min(m, n), bound(x)
    values = mm.linalg.svdvals(a)
    assert is_collective(values) or not collective
    known = np.linalg.svd(x, compute_uv=False)
    check_zero(np.asarray(values) - known, limit, ("svdvals", x.shape))
    for full in (False, True) if max(m, n) < 1000 else (False,):
        actual = mm.linalg.svd(a, full_matrices=full)
        assert is_collective(*actual) or not collective
        u, s, vh = map(np.asarray, actual)
        assert u.shape == (m, m if full else k)
        assert vh.shape == (n if full else k, n)
        check_zero((u[:, :k] * s) @ vh[:k] - x, limit, ("svd", x.shape, full))
        check_zero(s - known, limit, ("values", x.shape, full))
        check_orthonormal(u, ("U", x.shape, full))
        check_orthonormal(adjoint(vh), ("V", x.shape, full))


def check_eigh(x: Any, a: mm.Array, *, collective: bool = True) -> None:
    limit = bound(x)
    values, vectors = mm.linalg.eigh(a)
    alone = mm.linalg.eigvalsh(a)
    assert is_collective(values, vectors, alone) or not collective
    actual, v, known = np.asarray(values), np.asarray(vectors), np.linalg.eigvalsh(x)
    check_zero(x @ v - v * actual, limit, ("eigh", x.shape))
    check_orthonormal(v, ("V", x.shape))
    check_zero(actual - known, limit, "values")
    check_zero(np.asarray(alone) - known, limit, "eigvalsh")


def hermitian(n: int, dtype: str) -> Any:
    x = normal((n, n), dtype)
    return x + adjoint(x)


@pytest.mark.parametrize("dtype", TYPES)
def test_matrices_of_any_type_and_shape(pool: Any, dtype: str) -> None:
    """More than one panel of reflections, and more than one level of divide and conquer."""
    shape = (75, 70) if "64" in dtype else (40, 71)
    x = normal(shape, dtype)
    check_svd(x, mm.asarray(x, layout=Layout.cyclic(1, 3)))
    x = hermitian(71, dtype)
    # what is right of the diagonal is not read
    given = np.tril(x) + np.triu(np.full_like(x, np.nan), 1)
    check_eigh(x, mm.asarray(given, layout=Layout.split(0)))


def test_tiny_and_empty_matrices() -> None:
    """Workers may hold nothing."""
    with current("messages", 7):
        _lean()
        _check_tiny_and_empty()


def _check_tiny_and_empty() -> None:
    for shape in ((1, 1), (1, 5), (5, 1), (3, 2), (2, 3), (6, 6)):
        x = normal(shape, "complex128")
        check_svd(x, mm.asarray(x, layout=Layout.split(0)), collective=False)
        square = hermitian(shape[0], "complex128")
        check_eigh(square, mm.asarray(square, layout=Layout.split(1)), collective=False)
    for shape in ((0, 0), (0, 3), (3, 0)):
        u, s, vh = mm.linalg.svd(mm.zeros(shape, layout=Layout.split(0)))
        assert (u.shape, s.shape, vh.shape) == ((shape[0],) * 2, (0,), (shape[1],) * 2)
    assert mm.linalg.eigvalsh(mm.zeros((0, 0))).shape == (0,)


def difficult(n: int) -> dict[str, Any]:
    """Square matrices for which methods have failed."""
    random = np.random.default_rng(1)
    q = np.linalg.qr(random.standard_normal((n, n)))[0]
    wilkinson = np.diag(np.abs(np.arange(n) - n / 2)) + np.eye(n, k=1) + np.eye(n, k=-1)
    return {
        "zero": np.zeros((n, n)),
        "identity": np.eye(n),
        "diagonal": np.diag(np.arange(n) % 7 - 3.0),
        "rank 3": q[:, :3] @ q[:3],
        "a cluster": q @ np.diag(np.where(np.arange(n) < 5, 2.0, 1 + 1e-13)) @ q.T,
        "graded": q @ np.diag(10.0 ** -np.linspace(0, 25, n)) @ q.T,
        "of both signs": q @ np.diag((-1.0) ** np.arange(n)) @ q.T,
        "clusters of pairs": wilkinson,
        "large": 1e200 * q,
        "small": 1e-200 * (q + q.T),
        "one column": np.eye(n)[:, :1] * np.ones((1, n)),
    }


@pytest.mark.parametrize("name", difficult(3))
def test_difficult_matrices(name: str) -> None:
    x = difficult(90)[name]
    scale = max(np.abs(x).max(), 1e-300)
    with current("messages", 3):
        _lean()
        a = mm.asarray(x, layout=Layout.split(0))
        u, s, vh = map(np.asarray, mm.linalg.svd(a))
        check_zero((u * s) @ vh / scale - x / scale, bound(x / scale), name)
        check_orthonormal(u, name)
        check_orthonormal(vh.T, name)
        symmetric = np.tril(x) + np.tril(x, -1).T
        values, v = map(np.asarray, mm.linalg.eigh(a))
        residual = symmetric / scale @ v - v * (values / scale)
        check_zero(residual, bound(symmetric / scale), name)
        check_orthonormal(v, name)


@pytest.mark.parametrize("kind", ["shared", "messages"])
def test_tall_matrices_become_square_first_where_their_rows_lie(kind: str) -> None:
    with current(kind, 2):
        a = mm.ones((200_000, 100), dtype="float64", layout=Layout.split(0))
        for result in (mm.linalg.svdvals(a), mm.linalg.svd(a, full_matrices=False).S):
            assert " = qr(" in str(result.explain())
        _lean()
        tall = normal((3000, 12), "complex128")
        for x, layout in ((tall, Layout.split(0)), (tall.T.copy(), Layout.split(1))):
            a = mm.asarray(x, layout=layout)
            assert " = qr(" in str(mm.linalg.svd(a, full_matrices=False).U.explain())
            check_svd(x, a, collective=False)


def test_functions_of_singular_values(pool: Any) -> None:
    """Also for a matrix of lower rank."""
    x = normal((40, 6), "float64") @ normal((6, 30), "float64", seed=1)
    a, b = mm.asarray(x, layout=Layout.split(0)), normal((40, 2), "float64", seed=2)
    check_zero(np.asarray(mm.linalg.pinv(a)) - np.linalg.pinv(x), 1e-11, "pinv")
    assert int(mm.linalg.matrix_rank(a)) == 6
    solution = np.asarray(mm.linalg.lstsq(a, mm.asarray(b)).solution)
    check_zero(solution - np.linalg.lstsq(x, b, rcond=1e-10)[0], 1e-11, "lstsq")
    norm = float(mm.linalg.matrix_norm(a, ord=2))
    assert norm == pytest.approx(np.linalg.norm(x, 2), rel=1e-12)


def test_nan_and_infinity_fail_on_all_workers_and_the_pool_goes_on(pool: Any) -> None:
    for bad in (np.nan, np.inf, -np.inf):
        x = np.eye(40)
        x[31, 7] = bad
        a = mm.asarray(x, layout=Layout.split(0))
        for compute in (
            lambda a=a: mm.linalg.svd(a).S,
            lambda a=a: mm.linalg.svdvals(a),
            lambda a=a: mm.linalg.eigh(a).eigenvalues,
            lambda a=a: mm.linalg.eigvalsh(a),
        ):
            assert is_collective(compute())
            with pytest.raises(LinAlgError, match="NaN or inf"):
                np.asarray(compute())
    assert float(mm.sum(mm.ones((4,)))) == 4.0


def test_gradients_of_collective_factorizations() -> None:
    x = normal((40, 40), "float64")
    with current("shared", 2):
        _lean()
        a = mm.asarray(x, layout=Layout.split(0))
        result = np.asarray(mm.grad(mm.sum(mm.linalg.svdvals(a)), [a])[0])
        u, _, vh = np.linalg.svd(x)
        check_zero(result - u @ vh, 1e-11, "nuclear norm")


@pytest.mark.parametrize("kind", ["shared", "messages"])
def test_the_cheaper_way_is_taken_and_what_does_not_fit_is_shared(kind: str) -> None:
    """A matrix of this size is gathered, unless a memory limit forbids it."""
    x = normal((300, 300), "float64")
    values, vectors = x.nbytes // 4, x.nbytes
    for memory, collective in ((None, False), (values, True), (vectors, True)):
        with current(kind, 3):
            engine = session.engine()
            engine.environment = replace(
                engine.environment, memory_limit=memory, memory_bound=memory
            )
            a = mm.asarray(x, layout=Layout.cyclic(0, panel_rows(300, 3)))
            if memory != vectors:
                assert is_collective(mm.linalg.svdvals(a)) == collective
                assert is_collective(mm.linalg.eigvalsh(a)) == collective
            if memory != values:
                assert is_collective(*mm.linalg.svd(a), *mm.linalg.eigh(a)) == collective


# memory -------------------------------------------------------------------------------------------

MEMORY = [(kind, workers) for kind in ("shared", "messages") for workers in (2, 3, 4)]
N = 256
SLACK = 16 << 10  # for arrays of a few numbers


@pytest.fixture(params=MEMORY, ids=[f"{kind}-{workers}" for kind, workers in MEMORY])
def fresh(request: pytest.FixtureRequest) -> Iterator[Pool]:
    """A new pool, whose counters begin at zero."""
    former = session.current_engine
    pool = start(*request.param)
    session.set_current_pool(pool)
    _lean()
    try:
        yield pool
    finally:
        session.current_engine = former
        pool.close()


def limit(pool: Pool, a: mm.Array, result: mm.Array) -> int:
    """The bytes that a worker may hold at most: its share of the matrix as it is given and as it is
    cyclic, and of the packed result and of its parts; and the stated workspace."""
    node = result.node
    while node.operation.collective is None:
        (node,) = node.inputs
    collective = node.operation.collective
    layouts = collective.layouts(node, pool.mesh)
    assert layouts is not None
    (dealt,), made = layouts
    share = a.layout.max_local_size + dealt.max_local_size + 2 * made.max_local_size
    return 8 * share + collective.workspace(node, pool.workers).nbytes + SLACK


def largest(pool: Pool) -> int:
    return max(worker["peak"] for worker in pool.stats())


@pytest.mark.parametrize("shape", [(N, N // 4 * 3), (N // 4 * 3, N)])
def test_singular_vectors_take_a_share_of_the_memory(fresh: Pool, shape: tuple[int, int]) -> None:
    a = mm.asarray(normal(shape, "float64"), layout=Layout.split(0))
    u, s, vh = mm.linalg.svd(a, full_matrices=False)
    allowed = limit(fresh, a, s)
    mm.evaluate(u, s, vh)
    assert largest(fresh) <= allowed


def test_vectors_of_a_tall_matrix_take_several_shares_of_the_memory(fresh: Pool) -> None:
    """The matrix, Q over R and its workspace, Q·U, the packed result, what moves into it, and what
    is taken out."""
    a = mm.asarray(normal((4096, 24), "float64"), layout=Layout.split(0))
    u, s, vh = mm.linalg.svd(a, full_matrices=False)
    assert " = qr(" in str(u.explain())
    mm.evaluate(u, s, vh)
    assert largest(fresh) <= 11 * 8 * a.layout.max_local_size + (64 << 10)


def test_eigenvectors_take_a_share_of_the_memory(fresh: Pool) -> None:
    a = mm.asarray(hermitian(N, "float64"), layout=Layout.split(1))
    values, vectors = mm.linalg.eigh(a)
    allowed = limit(fresh, a, vectors)
    mm.evaluate(values, vectors)
    assert largest(fresh) <= allowed
