"""The local matrix product: every candidate, form and type against NumPy, and BLAS by pointer."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from magmath.core.type_aliases import BoundCall
from magmath.errors import DTypeError, ShapeError
from magmath.kernels import runtime_library, thread_count
from magmath.kernels.dispatch.candidate import KernelCandidate
from magmath.kernels.dispatch.tuner import Tuner
from magmath.kernels.gemm import blas, divided_gemv, gemm_candidates, limb_gemm
from magmath.kernels.gemm.gemm import bind_gemm
from magmath.kernels.gemm.gemm_candidates import ROWS, candidates_for
from magmath.kernels.gemm.gemm_problem import (
    GemmProblem,
    _measured_extents,
    dummy_operands,
    kernel_problems,
    key,
)
from magmath.kernels.thread_count import set_threads

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
COMPLEX = [torch.complex64, torch.complex128]
SIGNED = [torch.int8, torch.int16, torch.int32, torch.int64]
UNSIGNED = [torch.uint8, torch.uint16, torch.uint32, torch.uint64]
TYPES = [*FLOATS, *COMPLEX, *SIGNED, *UNSIGNED, torch.bool]
TOLERANCE = {torch.float16: 2e-2, torch.bfloat16: 8e-2, torch.float64: 1e-12}
CANDIDATES = {row.candidate.name: row.candidate for row in ROWS}
OFF = Tuner(enabled=False)
BROADCASTS = [
    ((), (), ()),
    ((3,), (3,), (3,)),
    ((2, 3), (2, 3), (2, 3)),
    ((2, 3), (3,), (2, 1)),
    ((2, 3), (2, 3), ()),
    ((2, 2, 3), (2, 3), (2, 1, 1)),
    ((0,), (0,), ()),
]  # of out, a, b

extents = st.sampled_from([0, 1, 2, 3, 5, 17])
orders = st.sampled_from(["rows", "columns", "padded", "strided", "outer"])


def matrix(
    dtype: torch.dtype, shape: tuple[int, ...], order: str, rng: np.random.Generator
) -> torch.Tensor:
    """Random numbers in one of the memory orders of a matrix."""
    *batch, rows, columns = shape
    if order == "columns":
        return values(dtype, (*batch, columns, rows), rng).mT
    if order == "padded":
        return values(dtype, (*batch, rows, columns + 3), rng)[..., 2:-1]
    if order == "strided":
        return values(dtype, (*batch, 2 * rows, 3 * columns), rng)[..., ::2, ::3]
    if order == "outer":  # the batch dimensions are innermost
        made = values(dtype, (rows, columns, *batch), rng)
        return made.permute(*range(2, made.ndim), 0, 1)
    return values(dtype, shape, rng)


def values(dtype: torch.dtype, shape: tuple[int, ...], rng: np.random.Generator) -> torch.Tensor:
    if dtype.is_complex:
        parts = rng.normal(size=(2, *shape))
        return torch.as_tensor(parts[0] + 1j * parts[1]).to(dtype)
    if dtype.is_floating_point:
        return torch.as_tensor(rng.normal(size=shape)).to(dtype)
    if dtype == torch.bool:
        return torch.as_tensor(rng.random(shape) < 0.3)
    bits = torch.iinfo(dtype).bits
    signed = getattr(torch, f"int{bits}")
    limits = torch.iinfo(signed)
    drawn = torch.as_tensor(rng.integers(limits.min, limits.max, shape, endpoint=True))
    return drawn.to(signed).view(dtype)


def expected(
    out: torch.Tensor, a: torch.Tensor, b: torch.Tensor, alpha: Any, beta: Any,
    bias: torch.Tensor | None, relu: bool,
) -> Any:  # fmt: skip
    """The product in NumPy, in the widest type of the kind; integers wrap to their width."""
    before, product = widest(out), np.matmul(widest(a), widest(b))
    row = widest(bias) if bias is not None else None
    if out.dtype == torch.bool:
        return product | (before if beta else False) | (row if row is not None else False)
    if product.dtype == np.int64:
        alpha = (int(alpha) + 2**63) % 2**64 - 2**63
    if alpha != 1:
        product = product * product.dtype.type(alpha)
    if beta:
        product = product + before * product.dtype.type(beta)
    if row is not None:
        product = product + row
    if not (out.dtype.is_floating_point or out.dtype.is_complex):
        product = product.astype(out.numpy().dtype)
    return np.maximum(product, 0) if relu else product


def widest(x: torch.Tensor) -> Any:
    if x.dtype.is_floating_point:
        return x.double().numpy()
    if x.dtype.is_complex:
        return x.to(torch.complex128).numpy()
    return x.numpy() if x.dtype == torch.bool else x.numpy().astype(np.int64)


def agree(out: torch.Tensor, truth: np.ndarray[Any, Any], k: int) -> None:
    got = widest(out) if out.dtype.is_floating_point or out.dtype.is_complex else out.numpy()
    assert got.shape == truth.shape
    if not (out.dtype.is_floating_point or out.dtype.is_complex):
        np.testing.assert_array_equal(got, truth)
        return
    tolerance = TOLERANCE.get(out.dtype, 1e-5) * max(k, 1) ** 0.5
    np.testing.assert_allclose(got, truth, rtol=tolerance, atol=4 * tolerance)


@st.composite
def problems(draw: st.DrawFn, types: list[torch.dtype] = TYPES) -> dict[str, Any]:
    """Operands and options for `bind_gemm`."""
    dtype = draw(st.sampled_from(types))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    m, n, k = draw(extents), draw(extents), draw(extents)
    shapes = draw(st.sampled_from(BROADCASTS))
    out, a, b = (
        matrix(dtype, (*batch, *last), draw(orders), rng)
        for batch, last in zip(shapes, ((m, n), (m, k), (k, n)), strict=True)
    )
    bias = None
    if draw(st.booleans()):
        bias = values(dtype, (n, 2), rng)[:, 0] if draw(st.booleans()) else values(dtype, (n,), rng)
    real = dtype.is_floating_point or dtype.is_complex
    factors = [0, 1] if dtype == torch.bool else [0, 1, -3, 2.5] if real else [0, 1, -3]
    alphas = factors[1:] if real or dtype == torch.bool else [1, -3, torch.iinfo(dtype).max - 2]
    return {
        "out": out, "a": a, "b": b, "bias": bias, "beta": draw(st.sampled_from(factors)),
        "alpha": draw(st.sampled_from(alphas)),
        "activation": "none" if dtype.is_complex else draw(st.sampled_from(["none", "relu"])),
    }  # fmt: skip


def truth_of(problem: dict[str, Any]) -> Any:
    kept = {name: value for name, value in problem.items() if name != "activation"}
    return expected(**kept, relu=problem["activation"] == "relu")


@given(problems())
def test_every_form_and_type(problem: dict[str, Any]) -> None:
    out, truth = problem["out"], truth_of(problem)
    where, strides = out.data_ptr(), out.stride()
    if out.dtype.is_floating_point and not problem["beta"]:
        out.fill_(torch.nan)  # must not be read
    bind_gemm(**problem, tuner=OFF)()
    agree(out, truth, problem["a"].shape[-1])
    assert (out.data_ptr(), out.stride()) == (where, strides)


@given(problems())
def test_every_candidate_agrees(problem: dict[str, Any]) -> None:
    """Each candidate of the table on all operands that it accepts, independent of the tuner."""
    before, truth = problem["out"].clone(), truth_of(problem)
    relu = problem.pop("activation") == "relu"
    whole = GemmProblem(**problem, relu=relu)
    if before.numel() == 0:
        return
    if before.is_floating_point() and not problem["beta"]:
        before.fill_(torch.nan)  # must not be read
    parts = kernel_problems(whole)
    for candidate in CANDIDATES.values():
        if all(candidate in candidates_for(part, 2**60) for part in parts):
            problem["out"].copy_(before)
            for part in parts:
                candidate.bind(part, default)()
            agree(problem["out"], truth, problem["a"].shape[-1])


@pytest.mark.parametrize("extents", [(1, 1, 5), (3, 17, 8), (17, 1, 33), (1, 20, 7), (40, 35, 70)])
@pytest.mark.parametrize("dtype", [*FLOATS, *COMPLEX], ids=str)
def test_nan_reaches_its_row_and_its_column(
    dtype: torch.dtype, extents: tuple[int, int, int]
) -> None:
    """Of every candidate, through bias and ReLU, and no other elements; so do infinities."""
    (m, n, k), rng = extents, np.random.default_rng(3)
    out, a, b = (values(dtype, shape, rng) for shape in ((m, n), (m, k), (k, n)))
    a[-1, k // 2] = torch.nan
    b[k // 3, n // 2] = torch.inf
    bias, relu = values(dtype, (n,), rng), not dtype.is_complex
    with np.errstate(invalid="ignore"):
        truth = expected(out, a, b, 1.0, 0.0, bias, relu)
    classes = [np.isfinite] if dtype.is_complex else [np.isfinite, np.isnan]
    (part,) = kernel_problems(GemmProblem(out, a, b, 1.0, 0.0, bias, relu))
    for candidate in candidates_for(part, 2**60):
        out.fill_(torch.nan)
        candidate.bind(part, default)()
        for belongs in classes:
            np.testing.assert_array_equal(belongs(widest(out)), belongs(truth), candidate.name)


@pytest.mark.usefixtures("two_threads")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_matrix_and_vector_on_all_threads(data: st.DataObject) -> None:
    """Any division of rows and columns, any order of the matrix, a vector on either side."""
    dtype = data.draw(st.sampled_from([torch.float32, torch.float64]))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    extent = st.sampled_from([2, 3, 4, 7, 33, 100, 257])
    rows, columns = data.draw(extent), data.draw(extent)
    a = matrix(
        dtype, (rows, columns), data.draw(st.sampled_from(["rows", "columns", "padded"])), rng
    )
    b = values(dtype, (columns, 1), rng)
    step = data.draw(st.sampled_from([1, 3]))
    out = values(dtype, (rows, step), rng)[:, :1]
    alpha, beta = (
        data.draw(st.sampled_from([1.0, -2.5])),
        data.draw(st.sampled_from([0.0, 1.0, 0.5])),
    )
    truth = expected(out, a, b, alpha, beta, None, relu=False)
    if not beta:
        out.fill_(torch.nan)  # must not be read
    if data.draw(st.booleans()):
        out, a, b, truth = out.mT, b.mT, a.mT, truth.T
    late = data.draw(st.booleans())
    product = GemmProblem(out, a, b, (lambda: alpha) if late else alpha, beta, None, False)
    divided = CANDIDATES["divided"]
    if not divided.can_bind(product):  # neither rows nor columns of the result are contiguous
        assert step == 3
        return
    divided.bind(product, default)()
    agree(out, truth, columns)


@pytest.mark.usefixtures("two_threads")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shape=st.tuples(st.integers(0, 300), st.integers(0, 20)),
    dtype=st.sampled_from(["float32", "float64", "complex64"]),
    orders=st.tuples(st.sampled_from("CF"), st.sampled_from([1, 2]), st.sampled_from([1, 3])),
    transposed=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_slender_matrices_of_numpy(
    shape: tuple[int, int],
    dtype: str,
    orders: tuple[Literal["C", "F"], int, int],
    transposed: bool,
    seed: int,
) -> None:
    """In any order, with any distance of the vectors' elements."""
    rng = np.random.default_rng(seed)
    order, x_step, out_step = orders
    a = rng.standard_normal(shape).astype(dtype, order=order)
    rows, columns = shape if transposed else shape[::-1]
    x = rng.standard_normal(rows * x_step).astype(dtype)[::x_step]
    memory = np.full(columns * out_step, np.nan, dtype)
    divided_gemv.multiply_slender(a, x, memory[::out_step], transposed=transposed)
    tolerance = 1e-12 if dtype == "float64" else 1e-4
    expected = (a.T if transposed else a) @ x
    np.testing.assert_allclose(memory[::out_step], expected, tolerance, tolerance)
    assert np.isnan(memory.reshape(columns, out_step)[:, 1:]).all()


@pytest.mark.usefixtures("two_threads")
def test_rows_of_a_divided_product_are_independent() -> None:
    """Infinities and nan reach the rows in which they are, and no others."""
    a = torch.ones(100, 40)
    a[3, 7], a[50, 0], a[99, 39] = torch.nan, torch.inf, -torch.inf
    out = torch.empty(100, 1)
    CANDIDATES["divided"].bind(
        GemmProblem(out, a, torch.ones(40, 1), 1.0, 0.0, None, False), default
    )()
    known = torch.full((100, 1), 40.0)
    known[3], known[50], known[99] = torch.nan, torch.inf, -torch.inf
    assert torch.equal(out.nan_to_num(nan=-1), known.nan_to_num(nan=-1))


def default(product: GemmProblem) -> BoundCall:
    return candidates_for(product, 2**30)[0].bind(product, default)


@pytest.fixture
def two_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two threads, and parts of matrices that are small enough for tests."""
    monkeypatch.setattr(divided_gemv, "MIN_BYTES", 0)
    monkeypatch.setattr(divided_gemv, "PART_BYTES", 128)
    monkeypatch.setattr(divided_gemv, "LONG_PART", 4)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_each_candidate_takes_something() -> None:
    taken = {c.name for dtype in TYPES for c in candidates_for(full_product(dtype), 2**30)}
    rng = np.random.default_rng(0)
    out, a, b = (values(torch.float32, shape, rng) for shape in ((9, 1), (9, 8), (8, 1)))
    (part,) = kernel_problems(GemmProblem(out, a, b, 1.0, 0.0, None, False))
    taken |= {c.name for c in candidates_for(part, 2**30)}
    assert taken == set(CANDIDATES)


def full_product(dtype: torch.dtype, size: int = 8) -> GemmProblem:
    rng = np.random.default_rng(0)
    out, a, b = (values(dtype, (size, size), rng) for _ in range(3))
    bias = values(dtype, (size,), rng)
    relu = not dtype.is_complex
    (part,) = kernel_problems(GemmProblem(out, a, b, 1.0, 0.0, bias, relu))
    return part


@pytest.fixture(scope="module", autouse=True)
def tiles() -> None:
    """A product in tiles is a candidate once its library is there."""
    runtime_library.load("tiled_gemm_float32")
    runtime_library.load("tiled_gemm_float64")
    divided_gemv.CODE.compile()


@pytest.fixture
def tuner() -> Tuner:
    return Tuner()


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_the_tuner_measures_on_operands_of_its_own(dtype: torch.dtype, tuner: Tuner) -> None:
    rng = np.random.default_rng(1)
    out, a, b = (values(dtype, (7, 7), rng) for _ in range(3))
    before = [x.clone() for x in (out, a, b)]
    state = torch.random.get_rng_state()
    call = bind_gemm(out, a, b.T, beta=1, tuner=tuner)
    assert torch.equal(torch.random.get_rng_state(), state)
    for x, kept in zip((out, a, b), before, strict=True):
        assert torch.equal(x, kept)
    truth = expected(out, a, b.T, 1, 1, None, False)
    call()
    agree(out, truth, 7)


def test_a_known_form_is_not_measured_again(tuner: Tuner, monkeypatch: pytest.MonkeyPatch) -> None:
    out, a, b = (torch.rand(20, 20) for _ in range(3))
    bind_gemm(out, a, b, tuner=tuner)
    known = len(tuner.table())
    monkeypatch.setattr("magmath.kernels.dispatch.tuner._rounds", None)
    bind_gemm(out, a + 1, b, tuner=tuner)()
    np.testing.assert_allclose(out, (a + 1) @ b, rtol=1e-5)
    assert len(tuner.table()) == known


@given(problems())
def test_a_stand_in_has_the_form_of_the_product(problem: dict[str, Any]) -> None:
    relu = problem.pop("activation") == "relu"
    if 0 in (*problem["out"].shape, *problem["a"].shape):
        return
    for part in kernel_problems(GemmProblem(**problem, relu=relu)):
        made = dummy_operands(part)
        assert key(made) == key(part)
        names = [candidate.name for candidate in candidates_for(part, 2**30)]
        assert [candidate.name for candidate in candidates_for(made, 2**30)] == names


def test_a_large_product_is_measured_on_a_smaller_one() -> None:
    operand = torch.empty(1).expand(100_000, 100_000)
    made = dummy_operands(GemmProblem(operand, operand, operand, 1.0, 0.0, None, False))
    assert sum(x.untyped_storage().nbytes() for x in (made.out, made.a, made.b)) < 2**28


@pytest.mark.parametrize(
    ("extents", "measured"),
    [
        ((25_000, 1, 50), (32_768, 1, 50)),
        ((50, 1, 25_000), (50, 1, 32_768)),
        ((1118, 1, 1118), (1118, 1, 1118)),
        ((50, 50, 25_000), (50, 50, 16_384)),
        ((1_000_000, 1, 50), (65_536, 1, 50)),
        ((3000, 3000, 3000), (2048, 2048, 2048)),
        ((100_000, 528, 528), (2048, 528, 528)),
    ],
)
def test_long_products_are_measured_as_long_as_that_takes_little_time(
    extents: tuple[int, int, int], measured: tuple[int, int, int]
) -> None:
    """A tall matrix times a vector is as fast as the memory that holds the matrix."""
    m, n, k = extents
    one = torch.ones(1)
    a, b, out = one.expand(m, k), one.expand(k, n), one.expand(m, n)
    assert _measured_extents(GemmProblem(out, a, b, 1.0, 0.0, None, False)) == measured


def test_workspaces_beyond_the_limit_leave_the_candidate_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gemm_candidates, "has_instructions", lambda x: True)
    product = full_product(torch.float16)
    assert "widened" in [c.name for c in candidates_for(product, 2**20)]
    assert "widened" not in [c.name for c in candidates_for(product, 100)]
    only = full_product(torch.bool)  # nothing else computes it
    assert [c.name for c in candidates_for(only, 0)] == ["widened"]


def test_half_types_without_instructions_are_computed_in_float32(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gemm_candidates, "has_instructions", lambda x: False)
    for dtype in (torch.float16, torch.bfloat16):
        names = [c.name for c in candidates_for(full_product(dtype), 2**20)]
        assert names == ["widened"]


@pytest.mark.parametrize("dtype", TYPES)
def test_alpha_is_not_asked_before_the_first_call(tuner: Tuner, dtype: torch.dtype) -> None:
    """When a product is bound, the memory of alpha may have any content."""

    def unknown() -> float:
        raise AssertionError("alpha is not computed yet")

    out, a, b = (torch.ones(shape).to(dtype) for shape in ((3, 4), (3, 5), (5, 4)))
    if dtype != torch.bool:
        bind_gemm(out, a, b, alpha=unknown, beta=1.0, tuner=tuner)


def test_alpha_is_asked_before_every_call(tuner: Tuner) -> None:
    rate = torch.tensor(0.0)
    for dtype in (torch.float32, torch.float64, torch.float16, torch.int32):
        out, a, b = (torch.ones(4, 4, dtype=dtype) for _ in range(3))
        call = bind_gemm(out, a, b, alpha=rate.item, beta=1.0, tuner=tuner)
        for value, total in ((2.0, 9.0), (-1.0, 5.0)):
            rate.fill_(value)
            call()
            assert torch.equal(out, torch.full((4, 4), total, dtype=dtype))


@pytest.mark.parametrize("candidate", CANDIDATES.values(), ids=lambda c: c.name)
def test_not_a_number_and_infinity_pass_through(candidate: KernelCandidate) -> None:
    out, a, b = torch.zeros(3, 3), torch.eye(3), torch.eye(3)
    a[0, 0], a[1, 1] = torch.nan, torch.inf
    product = GemmProblem(out, a, b, 1.0, 0.0, torch.zeros(3), True)
    if candidate in candidates_for(product, 2**60):
        candidate.bind(product, default)()
        assert out[0, 0].isnan()
        assert out[1, 1] == torch.inf or out[1, 1].isnan()


def test_half_types_accumulate_in_float32() -> None:
    """4096 ones and then a half: a half type's own sum would stop at 2048 or 256."""
    for dtype in (torch.float16, torch.bfloat16):
        a, b = torch.ones(2, 4096, dtype=dtype), torch.ones(4096, 2, dtype=dtype)
        product = GemmProblem(torch.empty(2, 2, dtype=dtype), a, b, 1.0, 0.0, None, False)
        for candidate in candidates_for(product, 2**30):
            candidate.bind(product, default)()
            assert torch.equal(product.out, torch.full((2, 2), 4096, dtype=dtype)), candidate.name


def test_integers_are_exact_over_more_summands_than_a_float_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limb_gemm, "EXACT_SUMMANDS", 5)
    rng = np.random.default_rng(2)
    for dtype in SIGNED:
        out, a, b = (values(dtype, shape, rng) for shape in ((3, 4), (3, 13), (13, 4)))
        product = GemmProblem(out, a, b, 1.0, 0.0, None, False)
        limbs = CANDIDATES["limbs"]
        truth = expected(out, a, b, 1, 0, None, False)
        limbs.bind(product, default)()
        agree(out, truth, 13)


def test_a_bound_call_keeps_its_memory() -> None:
    pointer = CANDIDATES["blas"]

    def bound() -> tuple[BoundCall, torch.Tensor]:
        out = torch.empty(50, 50)
        return pointer.bind(GemmProblem(out, torch.ones(50, 50), torch.ones(50, 50), 1.0, 0.0,
                                    None, False), default), out  # fmt: skip

    calls = [bound() for _ in range(20)]
    gc.collect()
    for call, out in calls:
        call()
        assert torch.equal(out, torch.full((50, 50), 50.0))


@pytest.mark.parametrize(
    ("shapes", "options", "error"),
    [
        (((2, 3), (2, 4), (5, 3)), {}, ShapeError),
        (((2, 3), (2, 4), (4, 4)), {}, ShapeError),
        (((3, 3), (2, 4), (4, 3)), {}, ShapeError),
        (((2, 2, 3), (3, 2, 4), (4, 3)), {}, ShapeError),
        (((2, 2, 3), (3, 2, 4), (2, 4, 3)), {}, ShapeError),
        (((3,), (3,), (3, 3)), {}, ShapeError),
        (((2, 3), (2, 4), (4, 3)), {"bias": torch.ones(2)}, ShapeError),
        (((2, 3), (2, 4), (4, 3)), {"bias": torch.ones(3, dtype=torch.float64)}, DTypeError),
        (((2, 3), (2, 4), (4, 3)), {"activation": "swish"}, ValueError),
    ],
)
def test_operands_that_do_not_fit(
    shapes: tuple[tuple[int, ...], ...], options: dict[str, Any], error: type[Exception]
) -> None:
    out, a, b = (torch.ones(shape) for shape in shapes)
    with pytest.raises(error):
        bind_gemm(out, a, b, **options, tuner=OFF)


def test_factors_that_leave_the_type() -> None:
    for dtype, alpha in ((torch.int32, 0.5), (torch.uint8, 1j), (torch.bool, 2)):
        out, a, b = (torch.ones(2, 2, dtype=dtype) for _ in range(3))
        with pytest.raises(DTypeError):
            bind_gemm(out, a, b, alpha=alpha, tuner=OFF)


# BLAS by pointer ----------------------------------------------------------------------------------


def by_pointer(dtype: type) -> Callable[..., Any]:
    """`gemm` of the library for float32 or float64."""
    number = np.dtype(dtype).name
    return blas.code(number).function("gemm")


@given(
    dtype=st.sampled_from([np.float32, np.float64]),
    transposes=st.tuples(st.booleans(), st.booleans()),
    m=extents, n=extents, k=extents,
    padding=st.tuples(*[st.integers(0, 3)] * 3),
    factors=st.tuples(st.sampled_from([1.0, -0.5]), st.sampled_from([0.0, 1.0, 2.0])),
    seed=st.integers(0, 2**32),
)  # fmt: skip
def test_gemm_by_pointer(
    dtype: type, transposes: tuple[bool, bool], m: int, n: int, k: int,
    padding: tuple[int, int, int], factors: tuple[float, float], seed: int,
) -> None:  # fmt: skip
    rng = np.random.default_rng(seed)

    def stored(rows: int, columns: int, transpose: bool, extra: int) -> np.ndarray[Any, Any]:
        shape = (columns, rows + extra) if transpose else (rows, columns + extra)
        return rng.normal(size=shape).astype(dtype)

    a, b = stored(m, k, transposes[0], padding[0]), stored(k, n, transposes[1], padding[1])
    c = stored(m, n, False, padding[2])
    if factors[1] == 0:
        c[...] = np.nan  # must not be read
    left, right = a[:k, :m].T if transposes[0] else a[:m, :k], b
    right = b[:n, :k].T if transposes[1] else b[:k, :n]
    truth = factors[0] * left.astype(float) @ right
    if factors[1]:
        truth = truth + factors[1] * c[:, :n]
    adjacent = c[:, n:].copy()
    leading = [max(x.shape[1], 1) for x in (a, b, c)]
    x, y, z = (v.ctypes.data for v in (a, b, c))
    by_pointer(dtype)(
        *transposes, m, n, k, factors[0], x, leading[0], y, leading[1], factors[1], z, leading[2]
    )
    tolerance = 1e-4 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(c[:, :n], truth, rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(c[:, n:], adjacent)


def test_threads_multiply_side_by_side() -> None:
    gemm = by_pointer(np.float64)

    def work(seed: int) -> bool:
        rng = np.random.default_rng(seed)
        size = 3 + 7 * seed
        a, b = rng.random((2, size, size))
        c = np.empty((size, size))
        truth = a @ b
        for _ in range(200):
            c[...] = 0
            turned = b.T.copy()
            places = [x.ctypes.data for x in (a, turned, c)]
            gemm(
                0, 1, size, size, size, 1.0, places[0], size, places[1], size, 0.0, places[2], size
            )
            if not np.allclose(c, truth):
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))


CACHED = """
import sys
import numpy as np
from magmath.kernels import runtime_library as library
from magmath.kernels.gemm import blas
ready = library.is_ready("gemm_float32")
a = np.ones((3, 3), np.float32); c = np.empty_like(a)
gemm = blas.code("float32").function("gemm")
gemm(0, 0, 3, 3, 3, 1, a.ctypes.data, 3, a.ctypes.data, 3, 0, c.ctypes.data, 3)
assert (c == 3).all()
print(ready, "magmath.codegen.compiler" in sys.modules)
"""


def test_compiled_code_is_kept_and_linked_in_another_process() -> None:
    with tempfile.TemporaryDirectory() as directory:
        said = [child(CACHED, MAGMATH_CACHE=directory) for _ in range(2)]
    assert said == ["False True", "True False"]


# settings of the libraries ------------------------------------------------------------------------


def child(script: str, **environment: str) -> str:
    """What a fresh Python prints; `""` takes a variable away."""
    merged = {k: v for k, v in (os.environ | environment).items() if v != ""}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], env=merged, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


THREADS = """
import threading
import scipy.linalg.cython_blas, torch
from threadpoolctl import threadpool_info
from magmath.kernels.thread_count import set_threads, single_threaded_blas

def blas_threads():
    return {found["num_threads"] for found in threadpool_info() if found["user_api"] == "blas"}

for count in (1, 2):
    set_threads(count)
    assert blas_threads() == {count}
    assert torch.get_num_threads() == count
with single_threaded_blas():
    assert blas_threads() == {1}
assert blas_threads() == {2}
for count in (1, 2):
    other = threading.Thread(target=set_threads, args=(count,))
    other.start()
    other.join()
    assert blas_threads() == {count}
contexts = [single_threaded_blas() for _ in range(3)]  # of threads, which end in any order
for context in contexts:
    context.__enter__()
for context in contexts:
    assert blas_threads() == {1}
    context.__exit__(None, None, None)
assert blas_threads() == {2}
print("as set")
"""


def test_set_threads_reaches_every_library() -> None:
    assert child(THREADS) == "as set"


def test_set_threads_refuses_less_than_one() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        set_threads(0)


LEFT = """
import threading
import numpy, torch
import magmath as mm
from threadpoolctl import threadpool_info
from magmath.errors import DeviceError
from magmath.kernels.scipy_openblas import load_blas_of_scipy
from magmath.kernels.thread_count import set_threads, torch_threads
from magmath.runtime.transport import inline, threads

def numbers():
    libraries = sorted((x["filepath"], x["num_threads"]) for x in threadpool_info())
    return [torch.get_num_threads(), *[count for _, count in libraries]]

def fail(*arguments):
    raise DeviceError("no such device")

load_blas_of_scipy()
with torch_threads(3):  # the libraries of linear algebra keep their own numbers
    before = numbers()
    for options in ({"threads": 1}, {"workers": 2, "launcher": "threads", "threads": 1}):
        with mm.init(device="cpu", **options):
            assert 1 in numbers()[1:]
        assert numbers() == before
    threads.Worker = inline.Worker = fail
    for options in ({"threads": 1}, {"workers": 2, "launcher": "threads", "threads": 1}):
        try:
            mm.init(device="cpu", **options)
        except DeviceError:
            assert numbers() == before
            assert not [x for x in threading.enumerate() if x.name.startswith("magmath-worker")]
            print("as before", end=" ")
"""


def test_a_pool_in_this_process_leaves_the_threads_as_they_were() -> None:
    assert child(LEFT, OPENBLAS_NUM_THREADS="2") == "as before as before"


LATER = """
import ctypes, os, shutil, tempfile
import magmath as mm
from threadpoolctl import threadpool_info
from magmath.kernels.scipy_openblas import scipy_openblas
from magmath.kernels.thread_count import single_threaded_blas

def numbers():
    libraries = sorted((x["filepath"], x["num_threads"]) for x in threadpool_info())
    return [count for path, count in libraries if "openblas" in path]

library = scipy_openblas()
with single_threaded_blas():  # finds the libraries
    pass
with tempfile.TemporaryDirectory() as folder:
    if library is not None:
        former = len(numbers())
        copy = os.path.join(folder, "libscipy_openblas-other.so")
        shutil.copy(library._name, copy)
        ctypes.CDLL(copy)
        assert len(numbers()) > former
    before = numbers()
    with mm.init(device="cpu", threads=1):
        assert set(numbers()) == {1}
    assert numbers() == before, (numbers(), before)
print("as before")
"""


def test_a_pool_in_this_process_leaves_a_library_as_it_was_that_was_loaded_late() -> None:
    assert child(LATER, OPENBLAS_NUM_THREADS="2") == "as before"


def test_concurrent_changes_of_the_number_of_threads_are_not_lost() -> None:
    """A library that ignores the calls of all threads but the one that controls it."""

    class Library:
        def __init__(self) -> None:
            self.controlling: threading.Thread | None = None
            self.counts: list[int] = []

        def clear_controlling_thread(self, *, force: bool) -> None:
            self.controlling = None
            time.sleep(1e-4)

        def set_num_threads(self, count: int) -> None:
            if self.controlling in (None, threading.current_thread()):
                self.controlling = threading.current_thread()
                self.counts.append(count)
                time.sleep(1e-4)

    library: Any = Library()

    def change(first: int) -> None:
        for count in range(first, first + 20):
            thread_count._set_count(library, count)

    threads = [threading.Thread(target=change, args=(20 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(library.counts) == list(range(80))


LATE = """
import threadpoolctl, torch
from magmath.kernels.thread_count import set_threads
set_threads(1)
from magmath.kernels.gemm import blas
blas.code("float32").address("gemm")
print(*{x["num_threads"] for x in threadpoolctl.threadpool_info() if x["user_api"] == "blas"})
"""


def test_set_threads_reaches_a_library_that_loads_later() -> None:
    assert child(LATE) == "1"
