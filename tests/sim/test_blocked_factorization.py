"""Factorizations that all workers compute collectively: correct in any layout, within their share
of the memory, with failures on all workers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import current, start
from magmath.core.block_cyclic import panel_rows
from magmath.engine import session
from magmath.errors import LinAlgError
from magmath.graph import Node
from magmath.kernels import fortran
from magmath.layout import Layout
from magmath.ops.linalg.factorization_layouts import block_cyclic_layout
from magmath.ops.linalg.lu import lu, lu_solve
from magmath.ops.linalg.qr import qr
from magmath.runtime import Pool, PoolOptions, start_pool
from matrices import TYPES, adjoint, bound, check_lu, check_qr, check_zero, normal
from operation_bodies import check_any_layout
from operation_table import FOLDED, ROWS, cases

POOLS = [("shared", 2), ("shared", 3), ("messages", 4)]


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


def definite(n: int, dtype: str) -> Any:
    x = normal((n, n), dtype)
    return x @ adjoint(x) + n * np.eye(n, dtype=dtype)


REPLICATED = Layout.replicated()
LAYOUTS = [Layout.split(0), Layout.cyclic(1, 3), REPLICATED]


def is_collective(*arrays: mm.Array) -> bool:
    return all(" collectively in " in str(a.explain()) for a in arrays)


@pytest.mark.parametrize(
    ("n", "dtype"), [(1, "float64"), (2, "float64"), *[(23, dtype) for dtype in TYPES]]
)
def test_square_matrices_are_factorized_and_solved(pool: Any, n: int, dtype: str) -> None:
    check_square(n, dtype)


def check_square(n: int, dtype: str) -> None:
    """Backward errors up to 50·n·ε."""
    for layout in LAYOUTS if n > 2 else LAYOUTS[:1]:
        x, b = definite(n, dtype), normal((n, 5), dtype)
        low = mm.linalg.cholesky(mm.asarray(x, layout=layout))
        assert n < 20 or layout is REPLICATED or is_collective(low)
        known = np.asarray(low)
        check_zero(known @ adjoint(known) - x, bound(x), "cholesky")
        check_zero(np.triu(known, 1), 0.0, "upper")
        x = normal((n, n), dtype)
        a = mm.asarray(x, layout=layout)
        check_lu(x, a)
        check_qr(x, a)
        solution = mm.linalg.solve(a, mm.asarray(b, layout=layout))
        assert n < 20 or layout is REPLICATED or is_collective(solution)
        y = np.asarray(solution)
        error = np.abs(x @ y - b).max() / (np.linalg.norm(x) * np.linalg.norm(y))
        assert error <= 50 * n * np.finfo(dtype).eps
        inverse = np.asarray(mm.linalg.inv(a))
        scale = np.linalg.norm(x) * np.linalg.norm(inverse)
        check_zero(x @ inverse - np.eye(n), 50 * n * np.finfo(dtype).eps * scale, "inv")
        for actual, wanted in zip(mm.linalg.slogdet(a), np.linalg.slogdet(x), strict=True):
            np.testing.assert_allclose(np.asarray(actual), wanted, rtol=1e-3)


@pytest.mark.parametrize("shape", [(61, 24), (24, 61), (1, 9)])
def test_other_matrices_are_factorized(pool: Any, shape: tuple[int, int]) -> None:
    for layout in LAYOUTS:
        x = normal(shape, "float64")
        for y in (x, x[:, :1] @ x[:1], 0 * x):  # of full rank, of rank 1, of rank 0
            check_lu(y, mm.asarray(y, layout=layout))
            check_qr(y, mm.asarray(y, layout=layout))


def test_tall_matrices_of_any_condition_are_factorized_by_rows(pool: Any) -> None:
    for dtype in ("float32", "complex128"):
        left = np.linalg.qr(normal((1100, 7), dtype))[0]
        right = np.linalg.qr(normal((7, 7), dtype, 1))[0]
        for condition in (1.0, 1e3, 1e30):
            x = (left * np.geomspace(1, 1 / condition, 7).astype(dtype)) @ right
            a = mm.asarray(x, layout=Layout.split(0))
            packed = qr(a.node)
            assert is_collective(mm.Array(packed))
            check_qr(x, a, ["reduced"])


@pytest.mark.parametrize("dtype", ["float64", "complex64"])
def test_triangular_systems_of_every_kind_are_solved(pool: Any, dtype: str) -> None:
    n = 23
    x = normal((n, n), dtype) / n + 2 * np.eye(n, dtype=dtype)
    a = mm.asarray(x, layout=Layout.split(0))
    for number in range(8):
        lower, flip, unit = bool(number & 1), bool(number & 2), bool(number & 4)
        t = np.tril(x) if lower else np.triu(x)
        t = t - np.diag(np.diag(t)) + np.eye(n, dtype=dtype) if unit else t
        t = t.T if flip else t
        for b in (normal((n, 9), dtype), normal((n,), dtype)):
            y = mm.linalg.solve_triangular(
                a, mm.asarray(b), lower=lower, transpose=flip, unit_diagonal=unit
            )
            assert is_collective(y)
            check_zero(t @ np.asarray(y) - b, 10 * bound(t), (lower, flip, unit))


def test_what_cannot_be_factorized_fails_on_all_workers_and_the_pool_goes_on(pool: Any) -> None:
    n = 40
    by_rows = Layout.split(0)
    indefinite, nan, late = np.eye(n), np.eye(n), np.eye(n)
    indefinite[29, 29], nan[17, 3], late[-1, -1] = -1, np.nan, 0
    wrong = [mm.asarray(x, layout=by_rows) for x in (indefinite, nan, late, 0 * late)]
    b = mm.ones((n, 3))
    for compute, words in (
        (lambda: mm.linalg.cholesky(wrong[0]), "order 30 is not positive"),
        (lambda: mm.linalg.cholesky(wrong[1]), "NaN|not positive"),
        (lambda: mm.linalg.solve(wrong[2], b), "singular"),
        (lambda: mm.linalg.solve(wrong[3], b), "singular"),
        (lambda: mm.linalg.inv(wrong[2]), "singular"),
        (lambda: mm.linalg.solve_triangular(wrong[2], b), "singular"),
    ):
        assert is_collective(compute())
        with pytest.raises(LinAlgError, match=words):
            np.asarray(compute())
    assert float(mm.linalg.det(wrong[2])) == 0.0
    assert float(mm.sum(mm.ones((4,)))) == 4.0


NAMES = ["cholesky", "lu", "qr", "solve_triangular", "lu_solve", "solve", "inv", "det"]


@given(data=st.data())
@settings(max_examples=10, suppress_health_check=list(HealthCheck), deadline=None)
@pytest.mark.parametrize("name", NAMES)
def test_any_layout_gives_the_same(pool: Any, name: str, data: st.DataObject) -> None:
    case = data.draw(cases({**ROWS, **FOLDED}[name]))
    check_any_layout(session.engine(), name, case, data)


def test_devices_that_lapack_does_not_reach_factorize_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """By torch's own functions, which are the same on every device."""
    monkeypatch.setattr(fortran, "is_in_host_memory", lambda tensor: False)
    with current("messages", 2):
        _lean()
        for dtype in ("float32", "complex128"):
            check_square(23, dtype)


def test_explain_names_the_ways_and_what_goes_between_workers() -> None:
    with current("shared", 2):
        a = mm.asarray(definite(40, "float64"), layout=Layout.split(0))
        text = str(mm.linalg.cholesky(a).explain())
        assert "cholesky [40, 40] float64: 3 candidates" in text
        assert all(way in text for way in ("one worker", "replicated", "collective"))
        assert " collectively in " not in text  # so small a matrix one factorizes for all
    with current("shared", 2):
        _lean()
        a = mm.asarray(definite(40, "float64"), layout=Layout.split(0))
        steps = mm.linalg.cholesky(a).explain().instructions
        step = next(step for step in steps if " collectively in " in step.text)
        panels = -(-40 // panel_rows(40, 2))
        assert (step.messages, step.nbytes) == (panels, 40 * 40 * 8 // 2)
        text = str(mm.linalg.inv(a).explain())
        assert "inv [40, 40] float64: 2 candidates, computed by other operations instead" in text
        assert "= lu_solve(" in text


# memory -------------------------------------------------------------------------------------------

MEMORY = [(kind, workers) for kind in ("shared", "messages") for workers in (2, 3, 4)]
N, K = 480, 16
SLACK = 8 << 10  # for arrays of a few numbers


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


def largest(pool: Pool) -> int:
    return max(worker["peak"] for worker in pool.stats())


def share(pool: Pool, shape: tuple[int, int], before: int = 0) -> int:
    """The bytes of the most rows of a matrix that a worker gets, if panels of rows are cyclic."""
    return block_cyclic_layout(shape, pool.mesh, 0, before=before).max_local_size * 8


def workspace(pool: Pool, *nodes: Node) -> int:
    """The largest workspace that operations state."""
    stated = [node.operation.collective for node in nodes]
    return max(
        collective.workspace(node, pool.workers).nbytes
        for collective, node in zip(stated, nodes, strict=True)
        if collective is not None
    )


def test_a_cholesky_factor_takes_a_share_of_the_memory(fresh: Pool) -> None:
    """The matrix, its cyclic rows, the factor; and the workspace."""
    low = mm.linalg.cholesky(mm.asarray(definite(N, "float64"), layout=Layout.split(0)))
    stated = workspace(fresh, low.node)
    mm.evaluate(low)
    assert largest(fresh) <= 3 * share(fresh, (N, N)) + stated + SLACK


@pytest.mark.parametrize(("name", "shares"), [("inv", 7), ("slogdet", 3.2), ("gradient", 5.2)])
def test_functions_of_factors_take_shares_of_the_memory(
    fresh: Pool, name: str, shares: float
) -> None:
    """In addition to the factors their inputs and results in two layouts, but no whole array."""
    a = mm.asarray(definite(N, "float64"), layout=Layout.split(0))
    results = {
        "inv": lambda: [mm.linalg.inv(a)],
        "slogdet": lambda: mm.linalg.slogdet(a),
        "gradient": lambda: [mm.grad(mm.sum(mm.linalg.solve(a, mm.ones((N, 4)))), a)],
    }[name]()
    factors = lu(a.node)
    stated = workspace(fresh, factors, lu_solve(factors, a.node))
    mm.evaluate(*results)
    assert largest(fresh) <= shares * share(fresh, (N + 1, N), 1) + stated + 8 * SLACK


@pytest.mark.parametrize(
    ("name", "n", "alone"),
    [("svd", 4000, True), ("eigh", 4000, True), ("svd", 8000, False), ("eigh", 10000, False)],
)
def test_one_worker_computes_for_all_in_additional_memory(name: str, n: int, alone: bool) -> None:
    with current("shared", 2):
        a = mm.ones((n, n), dtype=mm.float64, layout=Layout.split(0))
        text = str(getattr(mm.linalg, name)(a)[1].explain())
    assert ("*  one worker" in text) == alone
    assert (" collectively in " in text) != alone


def test_under_a_memory_limit_no_worker_gets_all_of_a_matrix() -> None:
    """4 MB hold the matrix of 1.8 MB in shares three times, but not two whole copies in
    addition."""
    former = session.current_engine
    pool = start_pool(PoolOptions(2, launcher="threads", device="cpu", memory_limit=4_000_000))
    session.set_current_pool(pool)
    try:
        x = definite(N, "float64")
        low = mm.linalg.cholesky(mm.asarray(x, layout=Layout.split(0)))
        mm.evaluate(low)
        assert str(low.layout) == "S(0 by 40)"
        known = np.asarray(low)
        check_zero(known @ known.T - x, bound(x), "cholesky")
    finally:
        session.current_engine = former
        pool.close()


def test_an_orthogonal_factor_takes_a_share_of_the_memory(fresh: Pool) -> None:
    """The matrix, its cyclic columns, Q over R; and the workspace."""
    a = mm.asarray(normal((N, N), "float64"), layout=Layout.split(0))
    packed = qr(a.node)
    stated = workspace(fresh, packed)
    mm.evaluate(mm.Array(packed))
    assert largest(fresh) <= 4 * share(fresh, (N, N)) + stated + SLACK


def test_a_tall_orthogonal_factor_takes_a_share_of_the_memory(fresh: Pool) -> None:
    """The matrix and Q, R on the last worker; and the workspace."""
    m, n = 2400, 24
    a = mm.asarray(normal((m, n), "float64"), layout=Layout.split(0))
    packed = qr(a.node)
    stated = workspace(fresh, packed)
    mm.evaluate(mm.Array(packed))
    assert largest(fresh) <= (2 * m // fresh.workers + n) * n * 8 + stated + SLACK


def test_a_solution_takes_a_share_of_the_memory(fresh: Pool) -> None:
    """The matrix, its cyclic rows, the factors; right-hand side and solution, and their
    copies by columns; and the workspace."""
    x, b = normal((N, N), "float64"), normal((N, K), "float64")
    a, b = mm.asarray(x, layout=Layout.split(0)), mm.asarray(b, layout=Layout.split(0))
    factors = lu(a.node)
    stated = workspace(fresh, factors, lu_solve(factors, b.node))
    mm.evaluate(mm.linalg.solve(a, b))
    limit = 3 * share(fresh, (N + 1, N), 1) + 4 * share(fresh, (N, K)) + stated + SLACK
    assert largest(fresh) <= limit
