"""A matrix product as the candidates see it: two or three dimensions, types that kernels know.

`reduced` brings what users and programs ask for (any number of batch dimensions, broadcasting,
unsigned integers) to that form without copying an element; `stand_in` makes operands of the same
form to be measured on, and `key` names the form in the tuner's table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from magmath.errors import DTypeError, ShapeError

Number = float | complex
TUNED_EXTENT = 2048
"""Longer dimensions are measured as if they had this length: the rate does not change any more."""
TINY = 32**3
"""Products of fewer multiplications are measured with their dimensions rounded up to powers of two,
since what counts there is the cost of a call."""

_SIGNED = {
    torch.uint16: torch.int16,
    torch.uint32: torch.int32,
    torch.uint64: torch.int64,
}


@dataclass(frozen=True, slots=True)
class Product:
    """out = relu(alpha · a·b + beta · out + bias), relu and bias being optional.

    a is (…, m, k), b (…, k, n), out (…, m, n), bias a row (n,). `alpha` may be a function that is
    asked before every call.
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
    def is_plain(self) -> bool:
        """True for out = a·b + bias, with nothing else to scale or add."""
        return not callable(self.alpha) and self.alpha == 1 and self.beta == 0

    @property
    def dtype(self) -> torch.dtype:
        """The type of all operands."""
        return self.out.dtype

    @property
    def operands(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """out, a and b."""
        return self.out, self.a, self.b

    def current_alpha(self) -> Number:
        """alpha's value now."""
        return self.alpha() if callable(self.alpha) else self.alpha


def check(product: Product) -> None:
    """ShapeError or DTypeError unless the operands fit together."""
    out, a, b, bias = product.out, product.a, product.b, product.bias
    m, n, k = product.extents
    fits = a.ndim >= 2 and b.ndim >= 2 and a.shape[-2:] == (m, k) and b.shape[-2:] == (k, n)
    try:
        fits = fits and torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]) == out.shape[:-2]
    except RuntimeError:
        fits = False
    if not fits or (bias is not None and bias.shape != (n,)):
        row = f" + {tuple(bias.shape)}" if bias is not None else ""
        raise ShapeError(
            f"gemm: needs (…, m, k) @ (…, k, n) + (n,) into (…, m, n), was given "
            f"{tuple(a.shape)} @ {tuple(b.shape)}{row} into {tuple(out.shape)}"
        )
    types = {out.dtype, a.dtype, b.dtype, out.dtype if bias is None else bias.dtype}
    if len(types) > 1:
        raise DTypeError(
            f"gemm: all operands need one type, was given {', '.join(sorted(map(str, types)))}; "
            "convert them first"
        )
    whole = not (out.is_floating_point() or out.is_complex())
    if whole and not callable(product.alpha) and (product.alpha % 1 or product.beta % 1):
        raise DTypeError(f"gemm: alpha and beta must be whole numbers for {out.dtype}")


def reduced(product: Product) -> list[Product]:
    """The same product as one, or several, of two or three dimensions; views throughout."""
    product = _signed(product)
    a, b, out = product.a, product.b, product.out
    if out.ndim > 2 and b.shape[:-2].numel() == 1:
        rows = _flat_rows(product)
        if rows is not None:
            return [rows]
    batch = out.shape[:-2]
    a, b = a.expand(*batch, *a.shape[-2:]), b.expand(*batch, *b.shape[-2:])
    wide = replace(product, a=a, b=b)
    if out.ndim <= 3:
        return [wide]
    try:
        flat = [x.view(-1, *x.shape[-2:]) for x in (out, a, b)]
    except RuntimeError:  # the batch dimensions do not lie evenly in memory
        parts = [replace(wide, out=out[i], a=a[i], b=b[i]) for i in range(batch[0])]
        return [small for part in parts for small in reduced(part)]
    return [replace(product, out=flat[0], a=flat[1], b=flat[2])]


def _signed(product: Product) -> Product:
    """Unsigned operands seen as signed ones: the same bits come out, and nothing is below 0."""
    signed = _SIGNED.get(product.dtype)
    if signed is None:
        return replace(product, relu=product.relu and product.dtype not in _NEVER_NEGATIVE)
    bias = product.bias.view(signed) if product.bias is not None else None
    out, a, b = (x.view(signed) for x in product.operands)
    return replace(product, out=out, a=a, b=b, bias=bias, relu=False)


_NEVER_NEGATIVE = (torch.bool, torch.uint8)


def _flat_rows(product: Product) -> Product | None:
    """All rows of a batch against one matrix: a single product, if the rows lie evenly."""
    out, a, b = product.operands
    try:
        return replace(
            product,
            out=out.view(-1, out.shape[-1]),
            a=a.expand(*out.shape[:-1], a.shape[-1]).view(-1, a.shape[-1]),
            b=b.reshape(b.shape[-2:]),
        )
    except RuntimeError:
        return None


def stand_in(product: Product) -> Product:
    """A product of the same form on operands of its own, no longer than what is measured."""
    m, n, k = _measured_extents(product)
    batch = _measured_batch(product)
    bias = product.bias
    if bias is not None:
        bias = _like(bias, (n,), batch=())
    return replace(
        product,
        out=_like(product.out, (m, n), batch),
        a=_like(product.a, (m, k), batch),
        b=_like(product.b, (k, n), batch),
        bias=bias,
        alpha=_constant(product),
    )


def key(product: Product) -> str:
    """The form of a product: sizes, types, memory orders, what is added."""
    m, n, k = _measured_extents(product)
    batch = "".join(f"{extent}x" for extent in _measured_batch(product))
    orders = "".join(_order(x) for x in (product.a, product.b, product.out))
    scale = "" if product.is_plain else f" beta={product.beta:g}" if _real(product.beta) else " …"
    bias = " bias" if product.bias is not None else ""
    relu = " relu" if product.relu else ""
    dtype = str(product.dtype).removeprefix("torch.")
    return f"gemm {batch}{m}x{n}x{k} {dtype} {orders} {product.out.device.type}{scale}{bias}{relu}"
