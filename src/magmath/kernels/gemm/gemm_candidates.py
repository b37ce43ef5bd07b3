"""The candidates for a matrix product on one device.

`ROWS` lists the devices and types of each candidate, in order of preference;
`kernels/gemm/gemm.py` chooses among them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

import numpy as np
import torch

from magmath.codegen.aot_cache import AotModule
from magmath.core.call_sequence import sequence
from magmath.core.type_aliases import BoundCall, Number
from magmath.kernels.dispatch.candidate import (
    ANYWHERE,
    BOOL,
    COMPLEX,
    CPU,
    CUDA,
    FLOATING,
    HALF,
    INTEGER,
    SINGLE_AND_DOUBLE,
    KernelCandidate,
    Row,
    matching,
)
from magmath.kernels.dtype_names import dtype_name
from magmath.kernels.gemm import limb_gemm
from magmath.kernels.gemm.gemm_problem import BlasOrder, GemmProblem, blas_order, to_integer
from magmath.kernels.half_instructions import has_instructions

_BLAS_MAX = 2**31 - 1
"""The largest 32-bit integer, which sizes and strides of BLAS must not exceed."""


def candidates_for(product: GemmProblem, workspace_limit: int) -> list[KernelCandidate]:
    """Return the candidates that accept a product, the default first, at least one.

    Candidates that need more than `workspace_limit` bytes are omitted; if all do, the default
    remains.
    """
    offered = _offered(product.out.device.type, product.a.dtype)
    usable = [candidate for candidate in offered if candidate.can_bind(product)]
    small = [candidate for candidate in usable if candidate.workspace(product) <= workspace_limit]
    return small or usable[:1]


@cache
def _offered(device: str, dtype: torch.dtype) -> tuple[KernelCandidate, ...]:
    return matching(ROWS, device, dtype)


# torch: MKL, oneDNN, cuBLAS -----------------------------------------------------------------------


def _can_bind_torch(product: GemmProblem) -> bool:
    if product.is_widening:
        return product.out.is_cuda and product.is_plain
    return has_instructions(product.a)


def _bind_torch(product: GemmProblem, bind_product: object) -> BoundCall:
    out, a, b = product.out, product.a, product.b
    if product.is_plain:
        if product.bias is not None and out.ndim == 2 and not product.is_widening:
            call: BoundCall = partial(torch.addmm, product.bias, a, b, out=out)
            return sequence(call, *product.epilogue_calls(bias=False))
        multiply = torch.mm if out.ndim == 2 else torch.bmm
        wider = {"out_dtype": out.dtype} if product.is_widening else {}
        return sequence(partial(multiply, a, b, out=out, **wider), *product.epilogue_calls())
    return sequence(_torch_scaled(product), *product.epilogue_calls())


def _torch_scaled(product: GemmProblem) -> BoundCall:
    """Return a call for out = alpha · a·b + beta · out, in place."""
    out, a, b, alpha = product.out, product.a, product.b, product.alpha
    add = out.addmm_ if out.ndim == 2 else out.baddbmm_
    is_inexact = out.is_floating_point() or out.is_complex()
    convert = _unchanged if is_inexact else to_integer
    beta = convert(product.beta)
    if not callable(alpha):
        return partial(add, a, b, alpha=convert(alpha), beta=beta)
    if is_inexact:
        return lambda: add(a, b, alpha=alpha(), beta=beta)
    return lambda: add(a, b, alpha=to_integer(alpha()), beta=beta)


def _unchanged(value: Number) -> Number:
    return value


# torch's product with bias and ReLU in one call, and in one kernel with cuBLASLt


def _can_bind_fused(product: GemmProblem) -> bool:
    fits = (
        product.is_plain and product.bias is not None and product.relu and not product.is_widening
    )
    return fits and product.out.ndim == 2 and has_instructions(product.a)


def _bind_fused(product: GemmProblem, bind_product: object) -> BoundCall:
    assert product.bias is not None
    return partial(
        torch._addmm_activation,
        product.bias, product.a, product.b, out=product.out,
    )  # fmt: skip


# NumPy: its OpenBLAS, or the BLAS that NumPy was built with ---------------------------------------


def _can_bind_numpy(product: GemmProblem) -> bool:
    """Return True for products that NumPy computes; of integers, those with a vector, since it has
    no fast ones of matrices."""
    if not product.is_plain:
        return False
    is_inexact = product.dtype.is_floating_point or product.dtype.is_complex
    if not is_inexact and min(product.extents[:2]) > 1:
        return False
    operands = (product.out, product.a, product.b)
    return not any(x.is_conj() or x.is_neg() for x in operands)


def _bind_numpy(product: GemmProblem, bind_product: object) -> BoundCall:
    out, a, b = (x.numpy() for x in (product.out, product.a, product.b))

    @np.errstate(all="ignore")  # infinities and NaN are valid results
    def call() -> None:
        np.matmul(a, b, out=out)

    return sequence(call, *product.epilogue_calls())


# SciPy's OpenBLAS by pointer, with a compiled epilogue --------------------------------------------


def _can_bind_blas(product: GemmProblem) -> bool:
    out, a, b = (blas_order(x) for x in (product.out, product.a, product.b))
    if out is None or a is None or b is None:
        return False
    if max(*product.extents, out.row_stride, a.row_stride, b.row_stride) > _BLAS_MAX:
        return False
    return not (out.is_transposed and product.bias is not None)


def _bind_blas(product: GemmProblem, bind_product: object) -> BoundCall:
    from magmath.kernels.gemm import blas

    return _recorded(product, blas.code(dtype_name(product.dtype)))


def _recorded(product: GemmProblem, code: AotModule) -> BoundCall:
    """Return a call of the compiled function `run`, which reads the product from a record."""
    from magmath.kernels.gemm.blas import RECORD

    run = code.function("run")
    record = np.zeros(1, RECORD)
    address = record.ctypes.data
    for name, value in _blas_record(product).items():
        record[name] = value
    call: BoundCall = partial(run, address)
    alpha, alphas = product.alpha, record["alpha"]
    if callable(alpha):

        def call() -> None:
            alphas[0] = alpha()
            run(address)

    call.__dict__["memory"] = record, product  # the addresses hold no reference
    return call


def _blas_record(product: GemmProblem) -> dict[str, Number]:
    m, n, k = product.extents
    out, a, b, bias = product.out, product.a, product.b, product.bias
    if _known_order(out).is_transposed:  # Cᵀ = Bᵀ·Aᵀ
        out, a, b, m, n = out.mT, b.mT, a.mT, n, m
    (transpose_a, lda), (transpose_b, ldb) = _known_order(a), _known_order(b)
    ldc = _known_order(out).row_stride
    steps = [x.stride(0) * x.itemsize if x.ndim == 3 else 0 for x in (a, b, out)]
    record = {
        "transpose_a": transpose_a, "transpose_b": transpose_b, "m": m, "n": n, "k": k,
        "a": a.data_ptr(), "lda": lda, "b": b.data_ptr(), "ldb": ldb,
        "c": out.data_ptr(), "ldc": ldc, "count": out.shape[0] if out.ndim == 3 else 1,
        "step_a": steps[0], "step_b": steps[1], "step_c": steps[2], "relu": product.relu,
        "alpha": product.sample_alpha(), "beta": product.beta,
    }  # fmt: skip
    if bias is not None:
        record |= {"bias": bias.data_ptr(), "bias_step": bias.stride(0) if n > 1 else 1}
    return record


def _known_order(x: torch.Tensor) -> BlasOrder:
    order = blas_order(x)
    assert order is not None, "BLAS accepts the matrix"
    return order


# products of a matrix and a vector on all threads -------------------------------------------------


def _can_bind_divided(product: GemmProblem) -> bool:
    m, n, k = product.extents
    if torch.get_num_threads() == 1 or (m == 1) == (n == 1) or not _can_bind_blas(product):
        return False
    from magmath.kernels.gemm import divided_gemv

    vector = product.b if n == 1 else product.a
    contiguous = vector.stride(-2 if n == 1 else -1) == 1
    large = m * n * k * product.out.itemsize >= divided_gemv.MIN_BYTES
    return product.out.ndim == 2 and large and contiguous and divided_gemv.is_ready()


def _bind_divided(product: GemmProblem, bind_product: object) -> BoundCall:
    from magmath.kernels.gemm import divided_gemv

    if product.extents[1] == 1:
        matrix, vector, out = product.a, product.b, product.out
    else:
        matrix, vector, out = product.b.mT, product.a.mT, product.out.mT
    order = _known_order(matrix)
    rows, columns = matrix.shape[::-1] if order.is_transposed else matrix.shape
    call = divided_gemv.bind(
        dtype_name(product.dtype),
        divided_gemv.Matrix(matrix.data_ptr(), rows, columns, order.row_stride),
        vector.data_ptr(),
        divided_gemv.Vector(out.data_ptr(), out.stride(0)),
        transposed=order.is_transposed,
        alpha=product.alpha,
        beta=product.beta,
    )
    call.__dict__["memory"] = product  # the addresses hold no reference
    return sequence(call, *product.epilogue_calls())


# magmath's own microkernel, on one thread ---------------------------------------------------------


def _can_bind_tiled(product: GemmProblem) -> bool:
    if not _can_bind_blas(product):
        return False
    from magmath.kernels.gemm import packed_gemm

    record = _blas_record(product)
    both = record["transpose_a"] and record["transpose_b"]
    written = not both and record.get("bias_step", 1) == 1
    return written and packed_gemm.code(dtype_name(product.dtype)).is_cached()


def _bind_tiled(product: GemmProblem, bind_product: object) -> BoundCall:
    from magmath.kernels.gemm import packed_gemm

    return _recorded(product, packed_gemm.code(dtype_name(product.dtype)))


# in float32, for half types and bool, with which the processor is slow


def _can_bind_widened(product: GemmProblem) -> bool:
    return product.out.is_cpu or product.dtype == torch.bool or product.is_widening


def _bind_widened(
    product: GemmProblem, bind_product: Callable[[GemmProblem], BoundCall]
) -> BoundCall:
    wide = replace(
        product,
        out=_float32_like(product.out), a=_float32_like(product.a), b=_float32_like(product.b),
        bias=_float32_like(product.bias) if product.bias is not None else None,
    )  # fmt: skip
    pairs = [(wide.a, product.a), (wide.b, product.b)]
    if product.beta:
        pairs.append((wide.out, product.out))
    if product.bias is not None and wide.bias is not None:
        pairs.append((wide.bias, product.bias))
    calls: list[BoundCall] = [partial(to.copy_, source) for to, source in pairs if to is not source]
    calls.append(bind_product(wide))
    if product.dtype == torch.bool:  # rounding never makes a positive sum of ones 0
        calls.append(partial(torch.ne, wide.out, 0, out=product.out))
    elif wide.out is not product.out:
        calls.append(partial(product.out.copy_, wide.out))
    return sequence(*calls)


def _float32_like(x: torch.Tensor) -> torch.Tensor:
    """Return x if it is float32, otherwise an empty float32 tensor of its shape."""
    return x if x.dtype == torch.float32 else torch.empty_like(x, dtype=torch.float32)


def _widened_workspace(product: GemmProblem) -> int:
    return 4 * (product.out.numel() + product.a.numel() + product.b.numel())


_TORCH = KernelCandidate("torch", _can_bind_torch, _bind_torch)
_WIDENED = KernelCandidate("widened", _can_bind_widened, _bind_widened, _widened_workspace)
_LIMBS = KernelCandidate("limbs", limb_gemm.can_bind, limb_gemm.bind, limb_gemm.workspace)
_NUMPY_TYPES = SINGLE_AND_DOUBLE | COMPLEX | INTEGER

ROWS: tuple[Row, ...] = (
    Row(_TORCH, CPU, FLOATING | COMPLEX | INTEGER),
    Row(_TORCH, CUDA, FLOATING | COMPLEX),
    Row(KernelCandidate("fused", _can_bind_fused, _bind_fused), ANYWHERE, FLOATING),
    Row(KernelCandidate("numpy", _can_bind_numpy, _bind_numpy), CPU, _NUMPY_TYPES),
    Row(KernelCandidate("blas", _can_bind_blas, _bind_blas), CPU, SINGLE_AND_DOUBLE),
    Row(KernelCandidate("divided", _can_bind_divided, _bind_divided), CPU, SINGLE_AND_DOUBLE),
    Row(KernelCandidate("tiled", _can_bind_tiled, _bind_tiled), CPU, SINGLE_AND_DOUBLE),
    Row(_WIDENED, ANYWHERE, HALF | BOOL),
    Row(_LIMBS, ANYWHERE, INTEGER),
)
