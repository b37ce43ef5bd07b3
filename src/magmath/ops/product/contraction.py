"""Contraction: the general product of two arrays, summed over letters that both have.

matmul, tensordot, vecdot and einsum all build `contract` nodes. Each node carries its index
notation (`"abk,akc->abc"`), so every letter may be split over workers and no operand is transposed
or reshaped in advance: a kernel views the local operands as (a batch of) matrices. Products of half
types accumulate in and return float32; `passes/fold_epilogues.py` folds the conversion back into
the product if that conversion is its direct consumer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any, final

import numpy as np

from magmath.codegen.emit import NativeCall, NativeOperand, Writer
from magmath.core.call_sequence import sequence
from magmath.core.dtypes import DType, bool_, complex64, complex128, compute_dtype, float32, float64
from magmath.core.shapes import broadcast
from magmath.core.type_aliases import BoundCall
from magmath.errors import DTypeError, ShapeError
from magmath.graph import KernelCall, Node, Operation, Shape, apply, apply_to
from magmath.graph.operation import Gradients, Line
from magmath.ops.elementwise import OPERATIONS as ELEMENTWISE
from magmath.ops.elementwise import astype
from magmath.ops.index_letters import LETTERS, einsum_text
from magmath.ops.leaves import constant
from magmath.ops.manipulation import permute, reshape
from magmath.ops.product.gemm import (
    bind_product,
    emit_gemm,
    numpy_product,
    product_efficiency,
)
from magmath.ops.product.panel_products import in_panels
from magmath.ops.sums import sum_
from magmath.ops.type_rules import require_kind

if TYPE_CHECKING:
    import torch


MAX_NUMPY_PRODUCTS = 1 << 14
"""Products up to which NumPy's `einsum` takes less time than to bind a product."""
NUMPY_SUM_TYPES = frozenset({float32, float64, complex64, complex128})
NOT_EQUAL = ELEMENTWISE["not_equal"]


@final
@dataclass(frozen=True)
class Subscripts:
    """Parsed `"abk,akc->abc"`: a letter for each dimension of two operands and the result."""

    a: str
    b: str
    out: str

    @staticmethod
    @lru_cache(maxsize=4096)
    def parsed(text: str) -> Subscripts:
        """Parse subscripts from text."""
        operands, out = text.split("->")
        a, b = operands.split(",")
        return Subscripts(a, b, out)

    @cached_property
    def batch(self) -> str:
        """Return the letters that both operands and the result have."""
        return "".join([c for c in self.out if c in self.a and c in self.b])

    @cached_property
    def rows(self) -> str:
        """Return the letters of the result that only the first operand has."""
        return "".join([c for c in self.out if c not in self.b])

    @cached_property
    def columns(self) -> str:
        """Return the letters of the result that only the second operand has."""
        return "".join([c for c in self.out if c not in self.a])

    @cached_property
    def summed(self) -> str:
        """Return the letters that both operands have and the result lacks."""
        return "".join([c for c in self.a if c not in self.out])

    def __str__(self) -> str:
        return f"{self.a},{self.b}->{self.out}"


def subscripts_of(node: Node) -> Subscripts:
    """Return the subscripts of a contraction."""
    return Subscripts.parsed(node.attributes["subscripts"])


def _infer(a: Node, b: Node, *, subscripts: str, dtype: DType) -> tuple[Shape, DType]:
    require_kind("matmul", "numeric", a.dtype)
    if a.dtype is not b.dtype or dtype not in (a.dtype, compute_dtype(a.dtype)):
        raise DTypeError(
            f"matmul: operands have types {a.dtype} and {b.dtype}, result {dtype}"
            "; convert the operands with mm.astype"
        )
    parsed = Subscripts.parsed(subscripts)
    extents: dict[str, int] = {}
    for operand, shape in ((parsed.a, a.shape), (parsed.b, b.shape)):
        for c, extent in zip(operand, shape, strict=True):
            known = extents.setdefault(c, extent)
            stretches = c in parsed.batch and 1 in (known, extent)
            if known != extent and not stretches:
                raise ShapeError(
                    f"matmul: {parsed} of {a.shape} and {b.shape}: {known} is not {extent}"
                )
            extents[c] = extent if known == 1 else known
    return tuple([extents[c] for c in parsed.out]), dtype


def _axes(node: Node) -> str:
    """Return the subscripts, with `.` for a broadcast dimension of an operand."""
    subscripts = subscripts_of(node)
    extents = dict(zip(subscripts.out, node.shape, strict=True))
    a, b = (
        "".join(
            c if extents.get(c, extent) == extent else "."
            for c, extent in zip(operand, x.shape, strict=True)
        )
        for operand, x in zip((subscripts.a, subscripts.b), node.inputs, strict=True)
    )
    return f"{a},{b}->{subscripts.out}"


def _vjp(node: Node, g: Node) -> Gradients:
    (a, b), subscripts = node.inputs, subscripts_of(node)
    held_a, held_b = (operand.replace(".", "") for operand in node.index_notation.inputs)
    g = astype(g, a.dtype)
    return (
        reshape(contraction(g, subscripts.out, b, subscripts.b, held_a), a.shape),
        reshape(contraction(a, subscripts.a, g, subscripts.out, held_b), b.shape),
    )


def _flops(node: Node) -> float:
    subscripts, a = subscripts_of(node), node.inputs[0]
    summed = [n for c, n in zip(subscripts.a, a.shape, strict=True) if c in subscripts.summed]
    return 2.0 * node.size * math.prod(summed)


def _efficiency(node: Node, local: Shape) -> float:
    subscripts = subscripts_of(node)
    extents = dict(zip(subscripts.out, local, strict=True))
    rows, columns = (
        math.prod([extents[c] for c in group]) for group in (subscripts.rows, subscripts.columns)
    )
    return product_efficiency(rows, columns)


def _kernel(call: KernelCall) -> BoundCall:
    """Bind a matrix product, or a batch of them, on the local tensors viewed as matrices."""
    subscripts = Subscripts.parsed(call.attributes["subscripts"])
    rows, columns, summed = subscripts.rows, subscripts.columns, subscripts.summed
    a, b = call.inputs
    a, take_a = _matrices(a, subscripts.a, subscripts.batch, rows, summed)
    b, take_b = _matrices(b, subscripts.b, subscripts.batch, summed, columns)
    out, take_out = _matrices(call.out, subscripts.out, subscripts.batch, rows, columns)
    calls = [take for take in (take_a, take_b) if take is not None]
    calls.append(bind_product(call, out, a, b))
    if take_out is not None:
        target = _ordered(call.out, subscripts.out, subscripts.batch + rows + columns)
        calls.append(partial(target.copy_, out.view(target.shape)))
    return sequence(*calls)


def _ordered(x: torch.Tensor, letters: str, result_letters: str) -> torch.Tensor:
    return x.permute([letters.index(c) for c in result_letters])


def _matrices(
    x: torch.Tensor, letters: str, batch: str, rows: str, columns: str
) -> tuple[torch.Tensor, BoundCall | None]:
    """Return x as (batch …, rows, columns) and the call that fills it, or None.

    The tensor is a view of x if the strides allow one; otherwise it is new memory, and the call
    copies x into it.
    """
    ordered = _ordered(x, letters, batch + rows + columns)
    extents, split = ordered.shape, len(batch) + len(rows)
    shape = (
        *extents[: len(batch)],
        math.prod(extents[len(batch) : split]),
        math.prod(extents[split:]),
    )
    try:
        return ordered.view(shape), None
    except RuntimeError:
        memory = x.new_empty(shape)
        return memory, partial(memory.view(extents).copy_, ordered)


def _emit(w: Writer, call: NativeCall) -> bool:
    """Write native code for a product of matrices and vectors; return False for other forms."""
    subscripts = Subscripts.parsed(call.attributes["subscripts"])
    groups = (subscripts.rows, subscripts.columns, subscripts.summed)
    if subscripts.batch or max(map(len, groups)) > 1 or subscripts.out != groups[0] + groups[1]:
        return False
    rows, columns, summed = groups
    (a, transpose_a), (b, transpose_b), (out, _) = (
        _matrix(x, letters, first, second)
        for x, letters, first, second in (
            (call.inputs[0], subscripts.a, rows, summed),
            (call.inputs[1], subscripts.b, summed, columns),
            (call.out, subscripts.out, rows, columns),
        )
    )
    attributes = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    return emit_gemm(w, replace(call, out=out, inputs=[a, b], attributes=attributes))


def _matrix(x: NativeOperand, letters: str, rows: str, columns: str) -> tuple[NativeOperand, bool]:
    """Return a native operand of up to two dimensions as a matrix, and if it is transposed."""
    if len(letters) == 2:
        return x, letters != rows + columns
    extent, step = (x.shape[0], x.strides[0]) if letters else (1, 1)
    is_row = letters == columns
    shape, strides = ((1, extent), (extent * step, step)) if is_row else ((extent, 1), (step, 1))
    return NativeOperand(x.name, shape, x.dtype, strides=strides), False


def _reference(a: Any, b: Any, *, subscripts: str, dtype: DType) -> Any:
    parsed = Subscripts.parsed(subscripts)
    extents: dict[str, int] = {}
    for operand, x in ((parsed.a, a), (parsed.b, b)):
        for c, extent in zip(operand, x.shape, strict=True):
            extents[c] = extent if extents.get(c, 1) == 1 else extents[c]
    a, b = (
        np.broadcast_to(x, [extents[c] for c in operand])
        for operand, x in ((parsed.a, a), (parsed.b, b))
    )
    return np.einsum(einsum_text(subscripts), a, b)


def _numpy_function(node: Node) -> Callable[..., object] | None:
    """Return NumPy's product if both operands are matrices, transposed or not, or vectors; its sums
    of few products otherwise."""
    subscripts = subscripts_of(node)
    rows, columns, summed = subscripts.rows, subscripts.columns, subscripts.summed
    plain = not subscripts.batch and max(len(rows), len(columns), len(summed)) <= 1
    if not plain or subscripts.out != rows + columns:
        return _numpy_sums(node, subscripts)
    return numpy_product(node, subscripts.a != rows + summed, subscripts.b != summed + columns)


def _numpy_sums(node: Node, subscripts: Subscripts) -> Callable[..., object] | None:
    """Return NumPy's sums of few products, whose operands do not stretch, in their own type."""
    shapes = (*node.inputs[0].shape, *node.inputs[1].shape)
    extents = dict(zip(subscripts.a + subscripts.b, shapes, strict=True))
    operands = zip((subscripts.a, subscripts.b), node.inputs, strict=True)
    stretches = any(tuple(extents[c] for c in letters) != x.shape for letters, x in operands)
    is_same = node.dtype is node.inputs[0].dtype and node.dtype in NUMPY_SUM_TYPES
    if stretches or not is_same or math.prod(extents.values()) > MAX_NUMPY_PRODUCTS:
        return None
    text = einsum_text(str(subscripts))
    return lambda a, b, out: np.einsum(text, a, b, out=out)


CONTRACT = Operation(
    name="contract",
    infer=_infer,
    axes=_axes,
    reduction="sum",
    vjp=_vjp,
    kernel=_kernel,
    native=_emit,
    reference=_reference,
    numpy_function=_numpy_function,
    flops=_flops,
    epilogues=frozenset({"convert"}),
    efficiency=_efficiency,
    decompositions=in_panels,
)


# Functions that build products --------------------------------------------------------------------


def contraction(a: Node, in_a: str, b: Node, in_b: str, out: str, line: Line = None) -> Node:
    """Return the product of two arrays, summed over the letters that `out` lacks.

    `in_a` and `in_b` name the operands' dimensions; a letter occurs once in an operand. A dimension
    of extent 1 broadcasts to the other operand's extent. The result has the operands' type; of
    truth values it is true if a summand is, as in NumPy.
    """
    if a.dtype is bool_ and b.dtype is bool_:
        counts = contraction(astype(a, float32), in_a, astype(b, float32), in_b, out, line)
        return apply_to(NOT_EQUAL, (counts, constant(0, float32)), line)
    subscripts = _plain_subscripts(a.shape, in_a, b.shape, in_b, out)
    if subscripts:
        attributes = {"subscripts": subscripts, "dtype": compute_dtype(a.dtype)}
        return astype(apply_to(CONTRACT, (a, b), line, attributes), a.dtype)
    stretched = {
        c for c in (set(in_a) & set(in_b)) - set(out) if _extent(a, in_a, c) != _extent(b, in_b, c)
    }
    (a, in_a), (b, in_b) = _without_flat(a, in_a, stretched), _without_flat(b, in_b, stretched)
    a, in_a = _without_solitary(a, in_a, in_b + out)
    b, in_b = _without_solitary(b, in_b, in_a + out)
    parsed = Subscripts(in_a, in_b, out)
    if not parsed.summed:
        return (_aligned(a, in_a, out) * _aligned(b, in_b, out)).at_line(line)
    attributes = {"subscripts": str(parsed), "dtype": compute_dtype(a.dtype)}
    return astype(apply(CONTRACT, a, b, line=line, **attributes), a.dtype)


@lru_cache(maxsize=4096)
def _plain_subscripts(shape_a: Shape, in_a: str, shape_b: Shape, in_b: str, out: str) -> str:
    """Return the subscripts of a product that needs no change of its operands, otherwise ""."""
    extents = dict(zip(in_a, shape_a, strict=True))
    both = set(in_a) & set(in_b)
    stretched = any(extents[c] != n for c, n in zip(in_b, shape_b, strict=True) if c in both)
    in_one_operand = (set(in_a) ^ set(in_b)) - set(out)
    parsed = Subscripts(in_a, in_b, out)
    return str(parsed) if parsed.summed and not (stretched or in_one_operand) else ""


def _extent(x: Node, letters: str, letter: str) -> int:
    return x.shape[letters.index(letter)]


def _without_flat(x: Node, letters: str, stretched: set[str]) -> tuple[Node, str]:
    """Return x without the dimensions of extent 1 that would be broadcast in a sum."""
    kept_dims = [d for d, c in enumerate(letters) if x.shape[d] != 1 or c not in stretched]
    shape = tuple([x.shape[d] for d in kept_dims])
    return reshape(x, shape), "".join([letters[d] for d in kept_dims])


def _without_solitary(x: Node, letters: str, other_letters: str) -> tuple[Node, str]:
    """Return x summed over the letters that occur in no other operand or result."""
    summed_axes = tuple([d for d, c in enumerate(letters) if c not in other_letters])
    summed = astype(sum_(x, summed_axes), x.dtype) if summed_axes else x
    return summed, "".join([c for c in letters if c in other_letters])


def _aligned(x: Node, letters: str, out: str) -> Node:
    """Return x with its dimensions in the order of `out`; missing ones have extent 1."""
    order = sorted(range(x.ndim), key=lambda d: out.index(letters[d]))
    extents = dict(zip(letters, x.shape, strict=True))
    return reshape(permute(x, tuple(order)), tuple([extents.get(c, 1) for c in out]))


def matmul(a: Node, b: Node, *, line: Line = None) -> Node:
    """Return the product of (…, m, k) and (…, k, n); batch dimensions broadcast.

    A 1-D operand is a row on the left and a column on the right; the result lacks its dimension.
    Raises ShapeError if the shapes do not match.
    """
    if not a.ndim or not b.ndim:
        raise ShapeError(
            f"matmul: needs arrays of 1 or more dimensions, got {a.shape} @ {b.shape}"
            "; multiply by a number with a * b"
        )
    in_a, in_b, out = _matmul_letters(a.shape, b.shape)
    return contraction(a, in_a, b, in_b, out, line)


@lru_cache(maxsize=4096)
def _matmul_letters(a: Shape, b: Shape) -> tuple[str, str, str]:
    """Return the letters of both operands and of the result, for operands of these shapes."""
    k = b[-2] if len(b) > 1 else b[0]
    if a[-1] != k:
        raise ShapeError(
            f"matmul: needs (…, m, k) @ (…, k, n), was given {a} @ {b}: {a[-1]} is not {k}"
            "; transpose or reshape one of them"
        )
    batch = len(broadcast("matmul", a[:-2], b[:-2]))
    stack, inner = LETTERS[:batch], LETTERS[batch + 2]
    rows = LETTERS[batch] if len(a) > 1 else ""
    columns = LETTERS[batch + 1] if len(b) > 1 else ""
    in_a = stack[batch - len(a[:-2]) :] + rows + inner
    in_b = stack[batch - len(b[:-2]) :] + inner + columns
    return in_a, in_b, stack + rows + columns


OPERATIONS = {"contract": CONTRACT}
