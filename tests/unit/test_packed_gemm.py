"""The packed product against NumPy: every form, size and epilogue, and no access outside of the
matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magmath.codegen.vectors import VECTOR_BYTES
from magmath.kernels.gemm import packed_gemm

TOLERANCE = {np.float32: 2e-4, np.float64: 1e-12}
FORMS = [(False, False), (False, True), (True, False)]
SIZES = st.one_of(st.integers(0, 9), st.integers(10, 130))


@dataclass
class Padded:
    """A matrix with gaps between its rows, and its whole memory."""

    memory: Any
    rows: int
    columns: int

    @property
    def matrix(self) -> Any:
        return self.memory[: self.rows, : self.columns]

    @property
    def pitch(self) -> int:
        return int(self.memory.shape[1])

    @property
    def address(self) -> int:
        return int(self.memory.ctypes.data)


def padded(rng: Any, rows: int, columns: int, dtype: Any, padding: int) -> Padded:
    memory = rng.standard_normal((rows + 1, columns + padding)).astype(dtype)
    return Padded(memory, rows, columns)


def multiply(form: Any, a: Padded, b: Padded, c: Padded, alpha: float, beta: float,
             bias: Any = None, relu: bool = False) -> None:  # fmt: skip
    number = c.memory.dtype.name
    k = a.rows if form[0] else a.columns
    gemm = packed_gemm.code(number).function("gemm")
    gemm(
        *form, c.rows, c.columns, k, alpha, a.address, a.pitch, b.address, b.pitch,
        beta, c.address, c.pitch, 0 if bias is None else bias.ctypes.data, int(relu),
    )  # fmt: skip


def operands(rng: Any, form: Any, m: int, n: int, k: int, dtype: Any, padding: int) -> Any:
    a = padded(rng, *((k, m) if form[0] else (m, k)), dtype, padding)
    b = padded(rng, *((n, k) if form[1] else (k, n)), dtype, padding)
    return a, b, padded(rng, m, n, dtype, padding)


def reference(form: Any, a: Padded, b: Padded) -> Any:
    left = a.matrix.T if form[0] else a.matrix
    right = b.matrix.T if form[1] else b.matrix
    return left.astype(np.float64) @ right.astype(np.float64)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@settings(max_examples=150)
@given(
    form=st.sampled_from(FORMS), m=st.one_of(SIZES, st.just(200)),  # enough to copy B
    n=st.one_of(SIZES, st.just(256)),  # and rows of B a power of two apart
    k=st.one_of(SIZES, st.sampled_from([767, 768, 769, 1600])), padding=st.integers(0, 3),
    scales=st.sampled_from([(1, 0), (0.5, 1), (-0.1, 2)]), biased=st.booleans(),
    relu=st.booleans(), seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_product(
    dtype: Any, form: Any, m: int, n: int, k: int, padding: int, scales: Any, biased: bool,
    relu: bool, seed: int,
) -> None:  # fmt: skip
    rng = np.random.default_rng(seed)
    a, b, c = operands(rng, form, m, n, k, dtype, padding)
    alpha, beta = scales
    bias = rng.standard_normal(n).astype(dtype) if biased else None
    expected = alpha * reference(form, a, b) + beta * c.matrix
    expected = expected + (bias if biased else 0)
    around = c.memory.copy()
    around[:m, :n] = np.maximum(expected, 0) if relu else expected
    multiply(form, a, b, c, alpha, beta, bias, relu)
    np.testing.assert_allclose(
        c.memory, around, atol=TOLERANCE[dtype] * max(1, k) ** 0.5, rtol=1e-5
    )


@pytest.mark.parametrize("form", FORMS)
def test_several_passes_over_a_tall_matrix(form: Any) -> None:
    rng = np.random.default_rng(0)
    a, b, c = operands(rng, form, 1030, 70, 1700, np.float32, 1)
    multiply(form, a, b, c, 1, 0)
    np.testing.assert_allclose(c.matrix, reference(form, a, b), atol=2e-3, rtol=1e-4)


@pytest.mark.parametrize("form", FORMS)
def test_what_the_result_held_is_not_read(form: Any) -> None:
    rng = np.random.default_rng(1)
    a, b, c = operands(rng, form, 21, 50, 9, np.float32, 0)
    c.memory[...] = np.nan
    multiply(form, a, b, c, 1, 0)
    np.testing.assert_allclose(c.matrix, reference(form, a, b), atol=1e-4)


def test_relu_keeps_nan() -> None:
    rng = np.random.default_rng(2)
    a, b, c = operands(rng, FORMS[0], 5, 20, 4, np.float64, 0)
    a.matrix[2, 1] = np.nan
    multiply(FORMS[0], a, b, c, 1, 0, relu=True)
    assert np.isnan(c.matrix[2]).all()
    assert (np.delete(c.matrix, 2, axis=0) >= 0).all()


def test_rows_of_a_size_that_caches_dislike() -> None:
    """Rows as long as a page, read in whole vectors up to the last byte of the matrix."""
    rng = np.random.default_rng(3)
    width = VECTOR_BYTES // 4
    a, b, c = operands(rng, FORMS[0], 7, 3 * width, 1024, np.float32, 0)
    multiply(FORMS[0], a, b, c, 1, 0)
    np.testing.assert_allclose(c.matrix, reference(FORMS[0], a, b), atol=1e-3)
