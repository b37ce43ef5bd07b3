"""The matrix product that candidates receive: two or three dimensions, types that kernels support.

`kernel_problems` converts a general product (any number of batch dimensions, broadcasting, unsigned
integers) to that form without copying elements; `dummy_operands` creates operands of the same form
for measurements, and `key` returns the form as the tuner's key.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, final

import numpy as np
import torch

from magmath.core.shapes import Shape
from magmath.core.type_aliases import BoundCall, Number
from magmath.errors import DTypeError, ShapeError
from magmath.kernels.dtype_names import dtype_name

TUNED_EXTENT = 2048
"""Length of a dimension up to which measurements have the size of the product."""
TUNED_PRODUCTS = 1 << 26
"""Maximum multiplications of a measurement with longer dimensions."""
TINY = 32**3
"""Products of at most this many multiplications are measured with dimensions rounded up to powers
of two, because the cost of the call dominates."""

_SIGNED = {
    torch.uint16: torch.int16,
    torch.uint32: torch.int32,
    torch.uint64: torch.int64,
}


@final
@dataclass(frozen=True, slots=True)
class GemmProblem:
    """The product out = relu(alpha · a·b + beta · out + bias); relu and bias are optional.

    a is (…, m, k), b (…, k, n), out (…, m, n), bias a row (n,). All have one type, or a and b are
    half and the others float32. `alpha` may be a function that is evaluated before every call.
    """

    out: torch.Tensor
    a: torch.Tensor
    b: torch.Tensor
    alpha: Number | Callable[[], Number]
    beta: Number
    bias: torch.Tensor | None
    relu: bool

    @property
    def extents(self) -> tuple[int, int, int]:
        """m, n and k."""
        return self.out.shape[-2], self.out.shape[-1], self.a.shape[-1]

    @property
    def is_gram(self) -> bool:
        """True for the product of a matrix with its own transpose, which is symmetric."""
        a, b_transposed = self.a, self.b.mT
        same = a.data_ptr() == b_transposed.data_ptr() and a.stride() == b_transposed.stride()
        return same and a.shape == b_transposed.shape and a.ndim == 2 and not a.is_complex()

    @property
    def is_plain(self) -> bool:
        """True if alpha is 1 and beta is 0."""
        return not callable(self.alpha) and self.alpha == 1 and self.beta == 0

    @property
    def dtype(self) -> torch.dtype:
        """The type of the result, and of the operands unless it `is_widening`."""
        return self.out.dtype

    @property
    def is_widening(self) -> bool:
        """True for a product of half types with a float32 result."""
        return self.a.dtype != self.out.dtype

    def sample_alpha(self) -> Number:
        """Return alpha, or 2 if alpha is known only when the product is called."""
        return 2.0 if callable(self.alpha) else self.alpha

    def current_alpha(self) -> Number:
        """Return the current value of alpha."""
        return self.alpha() if callable(self.alpha) else self.alpha

    def epilogue_calls(self, bias: bool = True) -> list[BoundCall]:
        """Return the calls that add the bias and apply the ReLU to out."""
        calls: list[BoundCall] = []
        if bias and self.bias is not None:
            calls.append(partial(self.out.add_, self.bias))
        if self.relu:
            calls.append(self.out.relu_)
        return calls


def check_product(product: GemmProblem) -> None:
    """Raise ShapeError or DTypeError unless the operands fit."""
    out, a, b, bias = product.out, product.a, product.b, product.bias
    if not _are_compatible(out.shape, a.shape, b.shape) or not (
        bias is None or bias.shape == out.shape[-1:]
    ):
        row = f" + {tuple(bias.shape)}" if bias is not None else ""
        raise ShapeError(
            f"gemm: needs (…, m, k) @ (…, k, n) + (n,) into (…, m, n), was given "
            f"{tuple(a.shape)} @ {tuple(b.shape)}{row} into {tuple(out.shape)}"
        )
    types = {a.dtype, b.dtype, out.dtype, out.dtype if bias is None else bias.dtype}
    accumulates = product.is_widening and types == {torch.float32, a.dtype} and a.dtype == b.dtype
    if len(types) > 1 and not (accumulates and a.dtype in (torch.float16, torch.bfloat16)):
        raise DTypeError(
            f"gemm: all operands need one type, or halves a float32 result, was given "
            f"{', '.join(sorted(map(str, types)))}; convert them first"
        )
    if not (out.is_floating_point() or out.is_complex()):
        _check_whole(product)


def _are_compatible(out: Shape, a: Shape, b: Shape) -> bool:
    if min(len(out), len(a), len(b)) < 2 or a[-1] != b[-2] or out[-2:] != (a[-2], b[-1]):
        return False
    try:
        return np.broadcast_shapes(a[:-2], b[:-2]) == out[:-2]
    except ValueError:
        return False


def _check_whole(product: GemmProblem) -> None:
    """Raise DTypeError if alpha or beta is not valid for integers or bool."""
    factors = [product.beta] if callable(product.alpha) else [product.alpha, product.beta]
    if product.dtype == torch.bool:
        if callable(product.alpha) or product.alpha != 1 or product.beta not in (0, 1):
            raise DTypeError("gemm: for bool, alpha must be 1 and beta 0 or 1")
    elif any(isinstance(factor, complex) or factor % 1 for factor in factors):
        raise DTypeError(
            f"gemm: alpha and beta must be integers for {product.dtype}, were given "
            f"{' and '.join(map(str, factors))}"
        )


def kernel_problems(product: GemmProblem) -> list[GemmProblem]:
    """Return the same product as one or several of two or three dimensions, on views."""
    product = _signed(product)
    a, b, out = product.a, product.b, product.out
    if out.ndim > 2 and b.shape[:-2].numel() == 1:
        rows = _flat_rows(product)
        if rows is not None:
            return [rows]
    batch = out.shape[:-2]
    a, b = a.expand(*batch, *a.shape[-2:]), b.expand(*batch, *b.shape[-2:])
    broadcast = replace(product, a=a, b=b)
    if out.ndim <= 3:
        return [broadcast]
    try:
        flat = [x.view(-1, *x.shape[-2:]) for x in (out, a, b)]
    except RuntimeError:  # the batch dimensions cannot be merged into one stride
        parts = [replace(broadcast, out=out[i], a=a[i], b=b[i]) for i in range(batch[0])]
        return [small for part in parts for small in kernel_problems(part)]
    return [replace(product, out=flat[0], a=flat[1], b=flat[2])]


def _signed(product: GemmProblem) -> GemmProblem:
    """Return the product on signed views of unsigned operands, with factors of the signed type, and
    without a ReLU where no element can be negative. The bits of the result are the same."""
    signed = _SIGNED.get(product.dtype)
    if signed is None:
        return replace(product, relu=product.relu and product.dtype not in _NEVER_NEGATIVE)
    bias = product.bias.view(signed) if product.bias is not None else None
    out, a, b = (x.view(signed) for x in (product.out, product.a, product.b))
    alpha = (
        partial(_current_alpha_as, product, signed)
        if callable(product.alpha)
        else _as_signed(product.alpha, signed)
    )
    beta = _as_signed(product.beta, signed)
    return replace(product, out=out, a=a, b=b, alpha=alpha, beta=beta, bias=bias, relu=False)


def _as_signed(factor: Number, signed: torch.dtype) -> int:
    """Return the integer of a signed type that has the bits of an integer factor."""
    half = 1 << (torch.iinfo(signed).bits - 1)
    return (to_integer(factor) + half) % (2 * half) - half


def _current_alpha_as(product: GemmProblem, signed: torch.dtype) -> int:
    """Return the current value of alpha as an integer of a signed type."""
    return _as_signed(product.current_alpha(), signed)


def to_integer(value: Number) -> int:
    """Return a factor of a product of integers as an int."""
    return int(value.real)


_NEVER_NEGATIVE = (torch.bool, torch.uint8)


def _flat_rows(product: GemmProblem) -> GemmProblem | None:
    """Return the product of a batch with one matrix as a single product of all rows; None if the
    rows cannot be merged into one stride."""
    out, a, b = product.out, product.a, product.b
    try:
        return replace(
            product,
            out=out.view(-1, out.shape[-1]),
            a=a.expand(*out.shape[:-1], a.shape[-1]).view(-1, a.shape[-1]),
            b=b.reshape(b.shape[-2:]),
        )
    except RuntimeError:
        return None


@final
class BlasOrder(NamedTuple):
    """The memory order of a matrix for BLAS: whether it is the transpose of a row-major matrix, and
    the distance of the rows of that matrix in elements (LAPACK's leading dimension)."""

    is_transposed: bool
    row_stride: int


def blas_order(x: torch.Tensor) -> BlasOrder | None:
    """Return the memory order of a matrix; None if neither rows nor columns are contiguous."""
    rows, columns = x.shape[-2:]
    down, across = x.stride()[-2:]
    if (across == 1 or columns == 1) and (down >= columns or rows == 1):
        return BlasOrder(False, max(columns, 1) if rows == 1 else down)
    if (down == 1 or rows == 1) and (across >= rows or columns == 1):
        return BlasOrder(True, max(rows, 1) if columns == 1 else across)
    return None


def key(product: GemmProblem) -> str:
    """Return the form of a product: sizes, type, memory orders, device, scaling and epilogue."""
    m, n, k = _measured_extents(product)
    batch = f"{_measured_batch(product)}x" if product.out.ndim == 3 else ""
    orders = "".join(_ORDERS[_order(x)] for x in (product.a, product.b, product.out))
    dtype = dtype_name(product.a.dtype)
    words = ["gemm", f"{batch}{m}x{n}x{k}", dtype, orders, product.out.device.type]
    words += ["widening"] * product.is_widening
    words += ["Gram"] * product.is_gram
    if not product.is_plain:
        words.append("accumulated" if product.beta else "scaled")
    if product.bias is not None:
        words.append("strided bias" if _is_strided(product.bias) else "bias")
    words += ["relu"] * product.relu
    return " ".join(words)


def dummy_operands(product: GemmProblem) -> GemmProblem:
    """Return a product of the same form on new operands, with the extents of the measurement."""
    m, n, k = _measured_extents(product)
    a = _like(product.a, m, k, _measured_batch(product))
    return replace(
        product,
        out=_like(product.out, m, n, _measured_batch(product)),
        a=a,
        b=a.mT if product.is_gram else _like(product.b, k, n, _measured_batch(product)),
        bias=_bias_like(product.bias, n) if product.bias is not None else None,
        alpha=product.sample_alpha(),
    )


def _is_strided(bias: torch.Tensor) -> bool:
    return len(bias) > 1 and bias.stride(0) != 1


def _bias_like(bias: torch.Tensor, count: int) -> torch.Tensor:
    step = 2 if _is_strided(bias) else 1
    return _values(bias, step * count)[::step]


_ORDERS = {False: "n", True: "t", None: "s"}


def _order(x: torch.Tensor) -> bool | None:
    """Return False for row-major, True for column-major and None for other strides. For vectors,
    return False if contiguous, otherwise None."""
    rows, columns = x.shape[-2:]
    if 1 in (rows, columns):
        step = x.stride(-1) if rows == 1 else x.stride(-2)
        return False if step == 1 or rows == columns else None
    order = blas_order(x)
    return None if order is None else order.is_transposed


def _measured_extents(product: GemmProblem) -> tuple[int, int, int]:
    """Return m, n and k of a measurement.

    Long dimensions are powers of two. They are shortened if the measurement would take long: the
    rate is constant beyond that. A product that reads much more than it multiplies, such as that of
    a tall matrix and a vector, remains long, because its rate depends on the cache that the matrix
    fits.
    """
    m, n, k = product.extents
    if m * n * k <= TINY:
        m, n, k = map(_power_of_two, (m, n, k))
        return m, n, k
    extents = [_power_of_two(x) if x > TUNED_EXTENT else x for x in (m, n, k)]
    while max(extents) > TUNED_EXTENT and _is_long(*extents):
        extents[extents.index(max(extents))] //= 2
    m, n, k = extents
    return m, n, k


def _power_of_two(extent: int) -> int:
    """Return the least power of two that is not below `extent`."""
    return 1 << (extent - 1).bit_length()


def _is_long(m: int, n: int, k: int) -> bool:
    return m * n * k > TUNED_PRODUCTS or max(m * k, k * n, m * n) > TUNED_EXTENT**2


def _measured_batch(product: GemmProblem) -> int:
    if product.out.ndim == 2:
        return 1
    m, n, k = _measured_extents(product)
    return min(product.out.shape[0], max(1, TUNED_EXTENT**2 // (m * n + n * k + k * m)))


def _like(x: torch.Tensor, rows: int, columns: int, batch: int) -> torch.Tensor:
    """Return a matrix, or a batch, with the memory order of `x`."""
    shared = x.ndim == 3 and x.stride(0) == 0
    count = 1 if shared else batch
    match _order(x):
        case False:
            stack = _values(x, count * rows * columns).view(count, rows, columns)
        case True:
            stack = _values(x, count * rows * columns).view(count, columns, rows).mT
        case None:
            stack = _values(x, count * rows * columns * 4).view(count, 2 * rows, 2 * columns)
            stack = stack[:, ::2, ::2]
    return stack.expand(batch, -1, -1) if x.ndim == 3 else stack[0]


def _values(x: torch.Tensor, count: int) -> torch.Tensor:
    """Return `count` small numbers of the type and on the device of `x`, without random state."""
    pattern = torch.arange(7 * 512, device=x.device).remainder_(7).sub_(3).to(x.dtype)
    return pattern.repeat(count // len(pattern) + 1)[:count]
