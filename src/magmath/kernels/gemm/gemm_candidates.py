"""The candidates for a matrix product on one device.

`kernels/dispatch/registry.py` lists the devices and types of each candidate, in order of
preference; `kernels/gemm/gemm.py` chooses among them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from magmath.core.type_aliases import Number, ReadyCall
from magmath.kernels.dispatch.registry import Candidate, candidates
from magmath.kernels.gemm.gemm_problem import GemmProblem, leading
from magmath.kernels.half_instructions import multiplies

_BLAS_MOST = 2**31 - 1
LIMB_BITS = 16
EXACT_SUMMANDS = 2 ** (53 - 2 * LIMB_BITS)
"""The number of products of two limbs that a float64 sums exactly."""


def candidates_for(product: GemmProblem, workspace_limit: int) -> list[Candidate]:
    """Return the candidates that accept a product, the default first, at least one.

    Candidates that need more than `workspace_limit` bytes are omitted; if all do, the default
    remains.
    """
    offered = candidates("gemm", product.out.device.type, product.a.dtype)
    able: list[Candidate] = [candidate for candidate in offered if candidate.can_bind(product)]
    small = [candidate for candidate in able if candidate.workspace(product) <= workspace_limit]
    return small or able[:1]


def sequence(*calls: ReadyCall) -> ReadyCall:
    """Return one call that executes these calls in order."""
    if len(calls) == 1:
        return calls[0]
    if len(calls) == 2:
        first, second = calls

        def both() -> None:
            first()
            second()

        return both

    def each() -> None:
        for call in calls:
            call()

    return each


def _is_on_cpu(product: GemmProblem) -> bool:
    return product.out.device.type == "cpu"


def _is_whole(dtype: torch.dtype) -> bool:
    return not (dtype.is_floating_point or dtype.is_complex)


def _epilogue(product: GemmProblem, bias: bool = True) -> list[ReadyCall]:
    """Return the calls that add the bias and apply the ReLU to out."""
    out, calls = product.out, list[ReadyCall]()
    if bias and product.bias is not None:
        calls.append(partial(out.add_, product.bias))
    if product.relu:
        calls.append(out.relu_)
    return calls


# torch: MKL, oneDNN, cuBLAS -----------------------------------------------------------------------


def _can_bind_torch(product: GemmProblem) -> bool:
    if product.widens:
        return product.out.is_cuda and product.is_plain
    return multiplies(product.a)


def _bind_torch(product: GemmProblem, inner: object) -> ReadyCall:
    out, a, b = product.out, product.a, product.b
    if product.is_plain:
        if product.bias is not None and out.ndim == 2 and not product.widens:
            call: ReadyCall = partial(torch.addmm, product.bias, a, b, out=out)
            return sequence(call, *_epilogue(product, bias=False))
        multiply = torch.mm if out.ndim == 2 else torch.bmm
        wider = {"out_dtype": out.dtype} if product.widens else {}
        return sequence(partial(multiply, a, b, out=out, **wider), *_epilogue(product))
    return sequence(_torch_scaled(product), *_epilogue(product))


def _torch_scaled(product: GemmProblem) -> ReadyCall:
    """Return a call for out = alpha · a·b + beta · out, in place."""
    out, a, b, alpha = product.out, product.a, product.b, product.alpha
    add = out.addmm_ if out.ndim == 2 else out.baddbmm_
    number = _whole if _is_whole(out.dtype) else _unchanged
    beta = number(product.beta)
    if not callable(alpha):
        return partial(add, a, b, alpha=number(alpha), beta=beta)
    if number is _whole:
        return lambda: add(a, b, alpha=_whole(alpha()), beta=beta)
    return lambda: add(a, b, alpha=alpha(), beta=beta)


def _whole(value: Number) -> int:
    return int(value.real)


def _unchanged(value: Number) -> Number:
    return value


# torch's product with bias and ReLU in one call, and in one kernel with cuBLASLt


def _can_bind_fused(product: GemmProblem) -> bool:
    fits = product.is_plain and product.bias is not None and product.relu and not product.widens
    return fits and product.out.ndim == 2 and multiplies(product.a)


def _bind_fused(product: GemmProblem, inner: object) -> ReadyCall:
    assert product.bias is not None
    return partial(
        torch._addmm_activation,
        product.bias, product.a, product.b, out=product.out,
    )  # fmt: skip


# NumPy: its OpenBLAS, or the BLAS that NumPy was built with ---------------------------------------


def _can_bind_numpy(product: GemmProblem) -> bool:
    if not product.is_plain:
        return False
    operands = (product.out, product.a, product.b)
    return not any(x.is_conj() or x.is_neg() for x in operands)


def _bind_numpy(product: GemmProblem, inner: object) -> ReadyCall:
    out, a, b = (x.numpy() for x in (product.out, product.a, product.b))

    @np.errstate(all="ignore")  # infinities and NaN are valid results
    def call() -> None:
        np.matmul(a, b, out=out)

    return sequence(call, *_epilogue(product))


# SciPy's OpenBLAS by pointer, with a compiled epilogue --------------------------------------------


def _can_bind_blas(product: GemmProblem) -> bool:
    forms = [leading(x) for x in (product.out, product.a, product.b)]
    if None in forms or max(*product.extents, *(form[1] for form in forms if form)) > _BLAS_MOST:
        return False
    turned = forms[0] is not None and forms[0][0]
    return not (turned and product.bias is not None)


def _bind_blas(product: GemmProblem, inner: object) -> ReadyCall:
    from magmath.kernels.gemm import blas

    return _recorded(product, blas.runner(_number(product)))


def _recorded(product: GemmProblem, run: Callable[[int], object]) -> ReadyCall:
    """Return a call of a compiled routine that reads the product from a record."""
    from magmath.kernels.gemm.blas import RECORD

    record = np.zeros(1, RECORD)
    address = record.ctypes.data
    for name, value in _blas_record(product).items():
        record[name] = value
    call: ReadyCall = partial(run, address)
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
    if _form(out)[0]:  # Cᵀ = Bᵀ·Aᵀ
        out, a, b, m, n = out.mT, b.mT, a.mT, n, m
    (transpose_a, lda), (transpose_b, ldb), (_, ldc) = _form(a), _form(b), _form(out)
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


def _form(x: torch.Tensor) -> tuple[bool, int]:
    form = leading(x)
    assert form is not None
    return form


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


def _bind_divided(product: GemmProblem, inner: object) -> ReadyCall:
    from magmath.kernels.gemm import divided_gemv

    if product.extents[1] == 1:
        matrix, vector, out = product.a, product.b, product.out
    else:
        matrix, vector, out = product.b.mT, product.a.mT, product.out.mT
    transposed, pitch = _form(matrix)
    rows = matrix.mT if transposed else matrix
    call = divided_gemv.bind(
        _number(product), (rows.data_ptr(), *rows.shape, pitch), vector.data_ptr(),
        (out.data_ptr(), out.stride(0)), transposed=transposed, alpha=product.alpha,
        beta=product.beta,
    )  # fmt: skip
    call.__dict__["memory"] = product  # the addresses hold no reference
    return sequence(call, *_epilogue(product))


# magmath's own microkernel, on one thread ---------------------------------------------------------


def _can_bind_tiled(product: GemmProblem) -> bool:
    if not _can_bind_blas(product):
        return False
    from magmath.kernels.gemm import packed_gemm

    record = _blas_record(product)
    both = record["transpose_a"] and record["transpose_b"]
    written = not both and record.get("bias_step", 1) == 1
    return written and packed_gemm.code(_number(product)).is_cached()


def _number(product: GemmProblem) -> str:
    return "float32" if product.dtype == torch.float32 else "float64"


def _bind_tiled(product: GemmProblem, inner: object) -> ReadyCall:
    from magmath.kernels.gemm import packed_gemm

    return _recorded(product, packed_gemm.runner(_number(product)))


# in float32, for half types and bool, with which the processor is slow


def _can_bind_widened(product: GemmProblem) -> bool:
    return _is_on_cpu(product) or product.dtype == torch.bool or product.widens


def _bind_widened(product: GemmProblem, inner: Callable[[GemmProblem], ReadyCall]) -> ReadyCall:
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
    calls: list[ReadyCall] = [partial(to.copy_, source) for to, source in pairs if to is not source]
    calls.append(inner(wide))
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


# exact integer products, from float64 products of 16-bit limbs ------------------------------------


def _limbs_take(product: GemmProblem) -> bool:
    return True


def _limb_count(product: GemmProblem) -> int:
    return max(1, 8 * product.out.itemsize // LIMB_BITS)


def _bind_limbs(product: GemmProblem, inner: Callable[[GemmProblem], ReadyCall]) -> ReadyCall:
    """Bind the sum of aᵢ·bⱼ·2¹⁶⁽ⁱ⁺ʲ⁾, where a = Σ aᵢ·2¹⁶ⁱ and b = Σ bⱼ·2¹⁶ʲ.

    Every aᵢ·bⱼ is exact in float64 over at most 2²¹ summands. Products beyond the type's width are
    omitted, because integers are exact modulo 2 to that width.
    """
    count, out = _limb_count(product), product.out
    a_limbs, b_limbs = _limbs_like(product.a, count), _limbs_like(product.b, count)
    part = torch.empty_like(out, dtype=torch.float64)
    whole, total = (torch.empty_like(out, dtype=torch.int64) for _ in range(2))
    calls: list[ReadyCall] = [
        partial(_split, product.a, a_limbs, torch.empty_like(product.a)),
        partial(_split, product.b, b_limbs, torch.empty_like(product.b)),
        total.zero_,
    ]
    floating = replace(product, out=part, alpha=1.0, beta=0.0, bias=None, relu=False)
    pairs = [(i, j) for i in range(count) for j in range(count - i)]
    for low, high in pairs:
        for start in range(0, max(product.extents[2], 1), EXACT_SUMMANDS):
            columns = a_limbs[low][..., start : start + EXACT_SUMMANDS]
            rows = b_limbs[high][..., start : start + EXACT_SUMMANDS, :]
            calls.append(inner(replace(floating, a=columns, b=rows)))
            calls.append(partial(_add_limb, total, whole, part, LIMB_BITS * (low + high)))
    calls.append(partial(_store_whole, product, total))
    return sequence(*calls, *_epilogue(product))


def _limbs_like(x: torch.Tensor, count: int) -> list[torch.Tensor]:
    return [torch.empty_like(x, dtype=torch.float64) for _ in range(count)]


def _split(x: torch.Tensor, limbs: list[torch.Tensor], scratch: torch.Tensor) -> None:
    """Store the limbs of x, the lowest first; the highest one contains the sign."""
    for i, limb in enumerate(limbs):
        torch.bitwise_right_shift(x, LIMB_BITS * i, out=scratch)
        if i < len(limbs) - 1:
            scratch.bitwise_and_(2**LIMB_BITS - 1)
        limb.copy_(scratch)


def _add_limb(total: torch.Tensor, whole: torch.Tensor, part: torch.Tensor, shift: int) -> None:
    total.add_(whole.copy_(part).bitwise_left_shift_(shift))


def _store_whole(product: GemmProblem, total: torch.Tensor) -> None:
    alpha, beta = _whole(product.current_alpha()), _whole(product.beta)
    if alpha != 1:
        total.mul_(alpha)
    if beta:
        product.out.mul_(beta).add_(total.to(product.dtype))
    else:
        product.out.copy_(total)


def _limbs_workspace(product: GemmProblem) -> int:
    operands = product.a.numel() + product.b.numel()
    width = 8 * _limb_count(product) + product.out.itemsize
    return width * operands + 24 * product.out.numel()


CANDIDATES: Mapping[str, Candidate] = {
    candidate.name: candidate
    for candidate in (
        Candidate("torch", _can_bind_torch, _bind_torch),
        Candidate("fused", _can_bind_fused, _bind_fused),
        Candidate("numpy", _can_bind_numpy, _bind_numpy),
        Candidate("blas", _can_bind_blas, _bind_blas),
        Candidate("divided", _can_bind_divided, _bind_divided),
        Candidate("tiled", _can_bind_tiled, _bind_tiled),
        Candidate("widened", _can_bind_widened, _bind_widened, _widened_workspace),
        Candidate("limbs", _limbs_take, _bind_limbs, _limbs_workspace),
    )
}
