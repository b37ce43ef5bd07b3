"""The routines of factorizations: every library computes the same on valid and invalid data, and
the tuner's choice is called."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from magmath.core.index_set import IndexSet
from magmath.errors import LinAlgError, RangeError
from magmath.graph import KernelCall
from magmath.kernels import fortran
from magmath.kernels.dispatch.tuner import Tuner
from magmath.kernels.linalg import lapack, lapack_candidates
from magmath.kernels.linalg.lapack_candidates import (
    ADD_PRODUCT,
    CHOLESKY,
    DIVIDE,
    EIGEN,
    INVERSE,
    LU,
    NOT_A_NUMBER,
    REFLECTIONS,
    SINGULAR,
    Routine,
    add_product,
)
from magmath.ops import OPERATIONS
from matrices import TYPES, Matrix, adjoint, bound, check_orthonormal, check_zero, normal

ALL = [CHOLESKY, LU, INVERSE, DIVIDE, REFLECTIONS, EIGEN, SINGULAR]


@pytest.fixture(autouse=True, scope="module")
def _measuring() -> Iterator[None]:
    """What takes longer than a call is measured here, though nowhere else in the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lapack_candidates, "MIN_FLOPS", 2e5)
        yield


class Fixed(Tuner):
    """Chooses one library, and records the requests."""

    def __init__(self, library: str) -> None:
        super().__init__()
        self.library = library
        self.asked: list[str] = []

    def choose(self, key: str, candidates: Mapping[str, Any], *rest: Any, **budget: Any) -> str:
        self.asked.append(key)
        return self.library


def inside(x: Matrix, wider: int) -> torch.Tensor:
    """A matrix within longer rows, like a panel of a larger matrix."""
    m, n = x.shape
    rows = torch.zeros(m, n + wider, dtype=torch.from_numpy(x).dtype)
    rows[:, :n] = torch.from_numpy(x)
    return rows[:, :n]


def each(routine: Routine, *operands: torch.Tensor, **options: Any) -> list[tuple[str, Any]]:
    """What every library returns, each on copies of the operands; the first is in `result`."""
    actual = []
    for library in routine.libraries(operands[0].dtype):
        copies = [x.as_strided(x.shape, x.stride()) for x in map(_cloned, operands)]
        result = routine.compute(*copies, library=library, **options)
        actual.append((library, (copies[0], result)))
    return actual


def _cloned(x: torch.Tensor) -> torch.Tensor:
    """A copy with the same distance between rows."""
    wide = torch.zeros(x.shape[0], x.stride(0), dtype=x.dtype)
    wide[:, : x.shape[1]] = x
    return wide[:, : x.shape[1]]


extents = st.sampled_from([1, 2, 7, 33, 100])
types = st.sampled_from(TYPES)
wider = st.sampled_from([0, 3])
some = settings(max_examples=40, deadline=None)


def test_torch_s_library_is_among_the_candidates_where_it_is_mkl() -> None:
    for routine in (*ALL, ADD_PRODUCT):
        for dtype in (torch.float32, torch.float64):
            names = routine.libraries(dtype)
            assert names[0] == "scipy"
            assert ("torch" in names) == (fortran.mkl() is not None)


@given(n=extents, dtype=types, wide=wider, seed=st.integers(0, 9))
@some
def test_definite_matrices_have_their_factor(n: int, dtype: str, wide: int, seed: int) -> None:
    x = normal((n, n), dtype, seed)
    x = x @ adjoint(x) + n * np.eye(n, dtype=dtype)
    for library, (factor, status) in each(CHOLESKY, inside(x, wide)):
        low = np.tril(factor.numpy())
        assert status == 0
        check_zero(low @ adjoint(low) - x, bound(x), library)


@given(n=extents, dtype=types, data=st.data())
@some
def test_indefinite_matrices_and_nan_have_one_status_in_every_library(
    n: int, dtype: str, data: st.DataObject
) -> None:
    x, wrong = np.eye(n, dtype=dtype), data.draw(st.integers(0, n - 1))
    x[wrong, wrong] = data.draw(st.sampled_from([0, -1, np.nan]))
    expected = NOT_A_NUMBER if np.isnan(x[wrong, wrong]) else wrong + 1
    for library, (_, status) in each(CHOLESKY, inside(x, 0)):
        assert status == expected, library


@given(m=extents, n=extents, dtype=types, wide=wider, low=st.booleans())
@some
def test_lu_is_the_matrix(m: int, n: int, dtype: str, wide: int, low: bool) -> None:
    x = normal((m, n), dtype)
    x = x[:, :1] @ x[:1] if low else x
    for library, (packed, (pivots, _)) in each(LU, inside(x, wide)):
        k, factors = min(m, n), packed.numpy()
        left, right = np.tril(factors)[:, :k], np.triu(factors, 1)[:k] + np.eye(k, n)
        order = np.arange(n)
        for i, other in enumerate(pivots.tolist()):
            order[[i, other - 1]] = order[[other - 1, i]]
        check_zero(left @ right - x[:, order], bound(x), library)


@given(n=extents, dtype=types, wide=wider)
@some
def test_inverses_and_exactly_singular_matrices(n: int, dtype: str, wide: int) -> None:
    x = normal((n, n), dtype) + 3 * np.sqrt(n) * np.eye(n, dtype=dtype)
    for library, (inverse, info) in each(INVERSE, inside(x, wide)):
        assert info == 0
        check_zero(x @ inverse.numpy() - np.eye(n), bound(x), library)
    x[:, n // 2] = 0
    assert all(info for _, (_, info) in each(INVERSE, inside(x, wide)))


@given(m=extents, n=extents, dtype=types, wide=wider, number=st.integers(0, 7))
@some
def test_triangular_systems(m: int, n: int, dtype: str, wide: int, number: int) -> None:
    lower, flip, unit = bool(number & 1), bool(number & 2), bool(number & 4)
    x = normal((n, n), dtype) / n + 2 * np.eye(n, dtype=dtype)
    b = normal((n, m), dtype)
    flags = lapack.Triangle(lower, flip, unit).flags
    t = np.tril(x) if lower else np.triu(x)
    t = t - np.diag(np.diag(t)) + np.eye(n, dtype=dtype) if unit else t
    t = t.T if flip else t
    for library, (y, _) in each(DIVIDE, inside(b, wide), inside(x, wide), flags=flags):
        check_zero(t @ y.numpy() - b, 10 * bound(t), library)


@given(m=extents, n=extents, dtype=types, full=st.booleans())
@some
def test_reflections_make_q_and_r(m: int, n: int, dtype: str, full: bool) -> None:
    x, k = normal((m, n), dtype), min(m, n)
    a = torch.from_numpy(x)
    for library in REFLECTIONS.libraries(a.dtype):
        columns = a.new_empty(max(m if full else k, n), m)
        r = REFLECTIONS.compute(a, columns, library=library)
        q = columns[: m if full else k].mT.numpy()
        check_orthonormal(q, library)
        check_zero(np.tril(r.numpy(), -1), 0.0, library)
        check_zero(q[:, :k] @ r.numpy() - x, bound(x), library)


@given(n=extents, dtype=types, job=st.sampled_from("VN"))
@some
def test_eigenvalues_and_vectors(n: int, dtype: str, job: str) -> None:
    x = normal((n, n), dtype)
    h = np.tril(x, -1) + adjoint(np.tril(x, -1)) + np.diag(np.real(np.diag(x)))
    above = np.full((n, n), np.nan, dtype)  # is not read
    given_ = np.where(np.tri(n, dtype=bool), h, above)
    for library, (rows, (values, info)) in each(EIGEN, inside(given_, 0), job=job):
        assert info == 0
        check_zero(values.numpy() - np.linalg.eigvalsh(h), bound(h), library)
        if job == "V":
            v = adjoint(rows.numpy())
            check_orthonormal(v, library)
            check_zero(h @ v - v * values.numpy(), bound(h), library)


@given(m=extents, n=extents, dtype=types, job=st.sampled_from("SAN"), low=st.booleans())
@some
def test_singular_values_and_vectors(m: int, n: int, dtype: str, job: str, low: bool) -> None:
    x, k = normal((m, n), dtype), min(m, n)
    x = x[:, :1] @ x[:1] if low else x
    for library, (_, (s, u, v, info)) in each(SINGULAR, inside(x, 0), job=job):
        assert info == 0
        check_zero(s.numpy() - np.linalg.svd(x, compute_uv=False), bound(x), library)
        if job != "N":
            assert (u.shape[1], v.shape[1]) == ((m, n) if job == "A" else (k, k))
            check_orthonormal(u.numpy(), library)
            check_orthonormal(np.conj(v.numpy()), library)
            product = (u.numpy()[:, :k] * s.numpy()) @ v.numpy()[:, :k].T
            check_zero(product - x, bound(x), library)


@given(m=extents, n=extents, k=extents, dtype=types, turned=st.tuples(st.booleans(), st.booleans()))
@some
def test_products_are_added(m: int, n: int, k: int, dtype: str, turned: tuple[bool, bool]) -> None:
    x, y, z = normal((m, k), dtype), normal((k, n), dtype, 1), normal((m, n), dtype, 2)
    a = inside(x.T, 1).mT if turned[0] else inside(x, 2)
    b = inside(np.conj(y.T), 1).mH if turned[1] else inside(y, 2)
    for library in ("scipy", *ADD_PRODUCT.libraries(torch.float64)):
        for sign in (1, -1):
            target = inside(z, 4)
            add_product(Fixed(library), target, a, b, sign)
            limit = bound(x) * (1 + np.linalg.norm(y))
            check_zero(target.numpy() - (z + sign * x @ y), limit, library)


BAD: dict[str, Callable[..., None]] = {
    "cholesky": lapack.cholesky,
    "eigh": lapack.eigh,
    "eigvalsh": lapack.eigvalsh,
    "svd": lapack.svd,
    "svdvals": lapack.svdvals,
}


@pytest.mark.parametrize("library", list(fortran.LIBRARIES))
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", [3, lapack.MIN_BY_POINTER])
def test_what_is_no_number_is_an_error_in_every_library(library: str, dtype: str, n: int) -> None:
    if library not in CHOLESKY.libraries(torch.float64):
        assert fortran.mkl() is None
        return
    shapes = {"eigvalsh": (n,), "svdvals": (n,), "eigh": (n + 1, n), "svd": (2 * n + 1, n)}
    for bad in (np.nan, np.inf):
        for place in ((0, 0), (n - 1, n - 1), (n - 1, 0)):
            x = n * np.eye(n, dtype=dtype)
            x[place] = bad
            for name, compute in BAD.items():
                if name == "cholesky" and bad == np.inf:
                    continue  # its factor has infinity, or NaN
                real = name in ("eigvalsh", "svdvals")
                out = torch.zeros(shapes.get(name, (n, n)), dtype=torch.from_numpy(x).dtype)
                with pytest.raises(LinAlgError):
                    compute(out.real if real else out, torch.from_numpy(x), tuner=Fixed(library))


def test_the_choice_is_the_tuner_s_and_by_class_of_size() -> None:
    called = []

    def compute(a: torch.Tensor, *, library: str) -> None:
        called.append((library, tuple(a.shape)))

    routine = Routine("cholesky", compute, ("potrf",), lambda shapes: float(shapes[0][0]) ** 3)
    tuner, last = Fixed("torch"), list(fortran.LIBRARIES)[-1]
    for n in (900, 1000, 5000, 9000):
        routine(tuner, torch.empty(n, n))
    assert [library for library, _ in called] == [last] * 4
    assert tuner.asked == ["cholesky 992×992, float32"] * 4
    routine(tuner, torch.empty(20, 20))
    assert len(tuner.asked) == 4
    assert called[-1] == ("scipy", (20, 20))


@pytest.mark.parametrize(("deterministic", "repeated"), [(0, 0), (0, 1), (1, 0)])
def test_who_computes_what_others_compute_does_not_choose(
    deterministic: int, repeated: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[Tuner] = []
    monkeypatch.setattr(lapack, "cholesky", lambda out, a, *, tuner: used.append(tuner))
    a, whole = torch.eye(3), (IndexSet.range(0, 3),) * 2
    context: Any = SimpleNamespace(deterministic=bool(deterministic))
    OPERATIONS["cholesky"].kernel(
        KernelCall(a, [a], {}, whole, [whole], (3, 3), [(3, 3)], context, bool(repeated))
    )()
    assert used[0].enabled == (not deterministic and not repeated)


def test_without_measuring_the_first_library_computes() -> None:
    x = torch.eye(200, dtype=torch.float64)
    tuner = Tuner(enabled=False)
    CHOLESKY(tuner, x.clone())
    assert tuner.table() == []


@pytest.mark.parametrize("routine", ALL, ids=lambda r: r.name)
def test_every_routine_can_be_measured(routine: Routine) -> None:
    """The stand-ins are good data, and of the operands' form."""
    n, tuner = 120, Tuner()
    a = torch.eye(n, dtype=torch.float64)
    operands = {
        "divide": (torch.ones(40, n, dtype=torch.float64), a),
        "reflections": (a, a.clone()),
    }
    options: dict[str, dict[str, Any]] = {
        "divide": {"flags": "LUCN"}, "eigen": {"job": "V"}, "singular": {"job": "S"}
    }  # fmt: skip
    wanted = operands.get(routine.name, (a,))
    routine(tuner, *wanted, **options.get(routine.name, {}))
    (timing,) = tuner.table()
    assert timing.operation.startswith(routine.name)
    assert set(timing.seconds) == set(routine.libraries(torch.float64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
@pytest.mark.parametrize("requested", [1, 1000, 2**24 + 1, 2**27 + 3, 10**9 + 1])
def test_a_workspace_has_the_size_that_lapack_stores_as_a_float(
    dtype: torch.dtype, requested: int
) -> None:
    elements = fortran.workspace_elements(torch.full((1,), requested, dtype=dtype))
    assert requested <= elements <= requested * (1 + 2**-22) + 1


@pytest.mark.parametrize("size", [2**31, 2**32 - 1, 2**32, 2**32 + 1, -(2**31) - 1])
def test_sizes_that_integers_of_lapack_do_not_hold_are_refused(size: int) -> None:
    matrix = torch.eye(2)
    with pytest.raises(RangeError, match=f"a matrix is too large for LAPACK.*{size}"):
        fortran.call("potrf", matrix, b"L", size, matrix, 2)


def test_workspaces_may_have_more_elements_than_matrices_have_rows() -> None:
    """Their sizes wrap, as in LAPACK; -1 is a request for the size."""
    assert fortran.workspace_extent(2**31 - 1).value == 2**31 - 1
    assert fortran.workspace_extent(2**31).value == -(2**31)
    assert fortran.workspace_extent(2**32 - 2).value == -2
    for elements in (2**32 - 1, 2**32):
        with pytest.raises(RangeError, match=f"too large for LAPACK.*{elements}"):
            fortran.workspace_extent(elements)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("library", list(fortran.LIBRARIES))
def test_eigenvalues_alone_need_no_workspace_of_the_size_of_vectors(
    dtype: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of matrices too, for whose vectors the size of the workspace exceeds 32 bits."""
    if library not in EIGEN.libraries(torch.float64):
        assert fortran.mkl() is None
        return
    passed: list[torch.Tensor] = []
    invoke = fortran.invoke

    def noted(routine: str, like: torch.Tensor, *arguments: Any, library: str) -> None:
        passed.extend(x for x in arguments if isinstance(x, torch.Tensor) and x is not like)
        is_request = any(isinstance(x, int) and x == -1 for x in arguments)
        if is_request or len(like) < 1000:  # a request reads no matrix
            invoke(routine, like, *arguments, library=library)

    monkeypatch.setattr(fortran, "invoke", noted)
    for n in (100, 32_767):
        large = torch.zeros(1, dtype=torch.from_numpy(np.zeros(1, dtype)).dtype).expand(n, n)
        EIGEN.compute(
            torch.eye(n, dtype=large.dtype) if n < 1000 else large, job="N", library=library
        )
        assert passed
        assert all(x.numel() <= 300 * n for x in passed)
    with pytest.raises(RangeError, match="too large for LAPACK"):
        EIGEN.compute(large, job="V", library=library)
